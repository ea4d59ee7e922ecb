# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
r"""
Train a language model with a classification head on noisy labels, with LoRA or DoRA adapters.

On a dataset of the Hub. The script flips 40 % of the labels and keeps 2 % of the rows as trusted:

    python examples/lora_llm.py --dataset fancyzhx/ag_news --model Qwen/Qwen3-0.6B --output_dir ag-news-lora \
        --num_train_epochs 1 --learning_rate 2e-4 --bf16 True --gradient_checkpointing True

Without arguments it trains adapters on a tiny Llama on synthetic sentences, offline, in a few seconds. It needs
`peft`. Only the adapters and the classifier are saved: load them with `peft.AutoPeftModelForSequenceClassification`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    HfArgumentParser,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    set_seed,
)

from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted


@dataclass
class ScriptArguments:
    """Options besides those of `GLCConfig`."""

    dataset: str | None = None
    model: str | None = None
    text_column: str = "text"
    noise_strength: float = 0.4
    trusted_fraction: float = 0.02
    lora_r: int = 16
    use_dora: bool = False


def main() -> None:
    """Load the data, add noise, train the adapters, and print their accuracy."""
    parser = HfArgumentParser((ScriptArguments, GLCConfig), description=__doc__)
    script, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)
    if script.dataset is None:
        data, tokenizer, model = tiny_example(args.seed)
        script.trusted_fraction = max(script.trusted_fraction, 0.1)
        args.learning_rate, args.num_train_epochs, args.save_strategy = 2e-2, 5, "no"
        args.per_device_train_batch_size = 32
    else:
        data = load_dataset(script.dataset)
        names = data["train"].features["label"].names
        tokenizer = AutoTokenizer.from_pretrained(script.model)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token  # the trainer gives it to the model
        model = AutoModelForSequenceClassification.from_pretrained(
            script.model, num_labels=len(names), id2label=dict(enumerate(names))
        )

    # Simulate a real dataset: some rows are labeled with care, the others are not.
    train = mark_trusted(data["train"], fraction=script.trusted_fraction, seed=args.seed)
    noise = CorruptionMatrix.flip(model.config.num_labels, script.noise_strength, seed=args.seed)
    train = corrupt_labels(train, noise, seed=args.seed)

    def tokenize(rows: dict) -> dict:
        return tokenizer(rows[script.text_column], truncation=True, max_length=256)

    trainer = GLCTrainer(
        model=with_adapters(model, script.lora_r, script.use_dora),
        args=args,
        train_dataset=train.map(tokenize, batched=True),
        eval_dataset=data["test"].map(tokenize, batched=True),
        processing_class=tokenizer,
    )
    metrics = trainer.train().metrics
    trainer.model.print_trainable_parameters()
    print(f"accuracy before correction: {metrics['stage1_eval_accuracy']:.3f}")
    print(f"accuracy after correction:  {trainer.evaluate()['eval_accuracy']:.3f}")
    print(f"distance of the estimated matrix to the true one: {trainer.corruption_matrix.distance(noise):.3f}")
    trainer.save_model()


def with_adapters(model: LlamaForSequenceClassification, rank: int, use_dora: bool = False):
    """Freeze the network and add trainable adapters to its linear layers. The classifier is new, so it is trained."""
    lora = LoraConfig(
        task_type="SEQ_CLS",
        r=rank,
        lora_alpha=2 * rank,
        use_dora=use_dora,
        target_modules="all-linear",
        modules_to_save=["score"],
    )
    return get_peft_model(model, lora)


def tiny_example(seed: int) -> tuple[DatasetDict, PreTrainedTokenizerFast, LlamaForSequenceClassification]:
    """Create sentences on three topics, a tokenizer for their words, and a Llama small enough for any machine."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    topics = {
        "sport": ["goal", "match", "team"],
        "food": ["soup", "bread", "apple"],
        "music": ["song", "tune", "choir"],
    }
    common = ["the", "a", "was", "good", "today", "we", "like", "it"]
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(topics))})
    draw = random.Random(seed)

    def rows(number: int) -> Dataset:
        labels = [draw.choice(list(topics)) for _ in range(number)]
        words = [[*draw.choices(common, k=draw.randint(2, 5)), *draw.choices(topics[label], k=2)] for label in labels]
        texts = [" ".join(draw.sample(text, len(text))) for text in words]
        return Dataset.from_dict({"text": texts, "label": labels}, features=features)

    words = ["[PAD]", "[UNK]", *common, *(word for about in topics.values() for word in about)]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", padding_side="left"
    )
    set_seed(seed)
    model = LlamaForSequenceClassification(
        LlamaConfig(
            vocab_size=len(words), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=32, num_labels=3, id2label=dict(enumerate(topics)), initializer_range=0.2,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    return DatasetDict(train=rows(600), test=rows(200)), fast, model


if __name__ == "__main__":
    main()
