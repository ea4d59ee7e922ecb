# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
r"""
Train a text classifier on noisy labels with a few trusted ones.

On a dataset of the Hub. The script flips 40 % of the labels and keeps 2 % of the rows as trusted:

    python examples/text_classification.py --dataset fancyzhx/ag_news --model distilbert/distilbert-base-uncased \
        --output_dir ag-news --num_train_epochs 2 --per_device_train_batch_size 32 --learning_rate 5e-5

Without arguments it trains a tiny network on synthetic sentences, offline, in a few seconds. If your labels are
already noisy, remove `corrupt_labels` and mark the rows that you checked: `mark_trusted(rows, indices=[…])`.
"""

from __future__ import annotations

from dataclasses import dataclass

from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
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
    label_column_of_dataset: str = "label"
    noise_strength: float = 0.4
    trusted_fraction: float = 0.02


def main() -> None:
    """Load the data, add noise, train, and print the labels that look wrong."""
    parser = HfArgumentParser((ScriptArguments, GLCConfig), description=__doc__)
    script, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)
    if script.dataset is None:
        data, tokenizer, model = tiny_example(args, script)
    else:
        data = load_dataset(script.dataset)
        names = data["train"].features[script.label_column_of_dataset].names
        tokenizer = AutoTokenizer.from_pretrained(script.model)
        model = AutoModelForSequenceClassification.from_pretrained(
            script.model, num_labels=len(names), id2label=dict(enumerate(names))
        )
    label = script.label_column_of_dataset
    num_labels = model.config.num_labels

    # Simulate a real dataset: some rows are labeled with care, the others are not.
    train = mark_trusted(data["train"], fraction=script.trusted_fraction, seed=args.seed, label_column=label)
    noise = CorruptionMatrix.flip(num_labels, script.noise_strength, seed=args.seed)
    train = corrupt_labels(train, noise, seed=args.seed, label_column=label)

    def tokenize(rows: dict) -> dict:
        return tokenizer(rows[script.text_column], truncation=True)

    trainer = GLCTrainer(
        model=model,
        args=args,
        train_dataset=train.map(tokenize, batched=True),
        eval_dataset=data["test"].map(tokenize, batched=True),
        processing_class=tokenizer,
    )
    metrics = trainer.train().metrics
    print(f"accuracy before correction: {metrics['stage1_eval_accuracy']:.3f}")
    print(f"accuracy after correction:  {trainer.evaluate()['eval_accuracy']:.3f}")
    print(f"distance of the estimated matrix to the true one: {trainer.corruption_matrix.distance(noise):.3f}")
    trainer.save_model()

    audited = trainer.audit(trainer.train_dataset).sort("p_wrong", reverse=True)
    for row in audited.select(range(3)):
        given, better = (audited.features[name].int2str(row[name]) for name in ("given_label", "suggested_label"))
        print(f"{row['p_wrong']:.2f}  {given} → {better}: {row[script.text_column][:80]}")


def tiny_example(args: GLCConfig, script: ScriptArguments) -> tuple:
    """Create sentences on three topics, a tokenizer for their words, and a network small enough for any machine."""
    import random

    from tokenizers import Tokenizer, models, pre_tokenizers

    topics = {
        "sport": ["goal", "match", "team"],
        "food": ["soup", "bread", "apple"],
        "music": ["song", "tune", "choir"],
    }
    common = ["the", "a", "was", "good", "today", "we", "like", "it"]
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(topics))})
    draw = random.Random(args.seed)

    def rows(number: int) -> Dataset:
        labels = [draw.choice(list(topics)) for _ in range(number)]
        texts = [" ".join([*draw.choices(common, k=4), *draw.choices(topics[label], k=2)]) for label in labels]
        return Dataset.from_dict({"text": texts, "label": labels}, features=features)

    words = ["[PAD]", "[UNK]", *common, *(word for about in topics.values() for word in about)]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=16, num_labels=3, id2label=dict(enumerate(topics)), initializer_range=0.2,
        )
    )  # fmt: skip
    script.trusted_fraction = max(script.trusted_fraction, 0.1)
    script.noise_strength = max(script.noise_strength, 0.5)  # with less, a plain network can learn most classes too
    args.learning_rate, args.num_train_epochs, args.save_strategy = 3e-3, 6, "no"
    return DatasetDict(train=rows(400), test=rows(100)), fast, model


if __name__ == "__main__":
    main()
