# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
r"""
Train on the labels of two language models and a rule, with 100 rows checked by hand.

The table has a column of texts, one column per source with class names (empty: no vote), and the columns `label` and
`trusted` for the rows that were checked:

    python examples/llm_and_rules.py --csv tickets.csv --source_columns gpt llama rule \
        --model distilbert/distilbert-base-uncased --output_dir ticket-model

On a dataset of the Hub, which has no such columns: the script simulates the two language models, makes a rule from a
word, and keeps the labels of 100 rows:

    python examples/llm_and_rules.py --dataset fancyzhx/ag_news --rule_word oil --rule_label Business \
        --model distilbert/distilbert-base-uncased --output_dir ag-news --num_train_epochs 1

Without arguments it trains a tiny network on synthetic tickets, offline, in a few seconds. The command line does the
same without a script: `glc-hf train --dataset tickets.csv --source-columns gpt llama rule …`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from datasets import ClassLabel, Dataset, DatasetDict, load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    set_seed,
)

from glc_hf import GLCConfig, GLCTrainer


@dataclass
class ScriptArguments:
    """Options besides those of `GLCConfig`."""

    csv: str | None = None
    dataset: str | None = None
    model: str | None = None
    text_column: str = "text"
    rule_word: str = "refund"
    rule_label: str = "billing"
    checked_rows: int = 100


def main() -> None:
    """Load the table, train, and print the quality of the sources and of the model."""
    parser = HfArgumentParser((ScriptArguments, GLCConfig), description=__doc__)
    script, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)
    test = None
    if script.csv is not None:
        table = load_dataset("csv", data_files=script.csv, split="train", keep_default_na=False, na_values=[""])
    else:
        data = tiny_example(script, args) if script.dataset is None else load_dataset(script.dataset)
        table, test = with_sources(data["train"], script, args), data["test"]
    # Classes may occur as votes only.
    names = sorted({name for column in (*args.source_columns, "label") for name in table.unique(column) if name})
    classes = {name: number for number, name in enumerate(names)}
    table = table.cast_column("label", ClassLabel(names=names))

    tokenizer = AutoTokenizer.from_pretrained(script.model)
    model = AutoModelForSequenceClassification.from_pretrained(
        script.model, num_labels=len(names), id2label=dict(enumerate(names)), label2id=classes
    )

    def tokenize(rows: Dataset) -> Dataset:
        return rows.map(lambda batch: tokenizer(batch[script.text_column], truncation=True), batched=True)

    trainer = GLCTrainer(
        model=model,
        args=args,
        train_dataset=tokenize(table),
        eval_dataset=None if test is None else tokenize(test.align_labels_with_mapping(classes, "label")),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    print(trainer.sources())
    print(trainer.verdict)
    if test is not None:
        print(f"accuracy on the test split: {trainer.evaluate()['eval_accuracy']:.3f}")


def with_sources(rows: Dataset, script: ScriptArguments, args: GLCConfig) -> Dataset:
    """Make a table with the votes of two language models and a rule, and the labels of the checked rows."""
    names = rows.features["label"].names
    draw = random.Random(args.seed)
    checked = set(draw.sample(range(len(rows)), script.checked_rows))
    args.source_columns = ["gpt", "llama", "rule"]

    def row_of_table(number: int, text: str, label: str) -> dict:
        other = draw.choice(names)
        return {
            script.text_column: text,
            "gpt": label if draw.random() < 0.7 else other,
            # It takes the second class for the first, and gives no answer to one row in ten.
            "llama": None if draw.random() < 0.1 else names[0] if label == names[1] else label,
            "rule": script.rule_label if script.rule_word in text.lower().split() else None,
            "label": label if number in checked else None,
            "trusted": number in checked,
        }

    pairs = zip(rows[script.text_column], rows["label"], strict=True)
    return Dataset.from_list([row_of_table(number, text, names[label]) for number, (text, label) in enumerate(pairs)])


def tiny_example(script: ScriptArguments, args: GLCConfig) -> DatasetDict:
    """Create tickets on three topics, and write a tiny network with its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    topics = {
        "billing": ["invoice", "charge", "refund"],
        "delivery": ["parcel", "courier", "late"],
        "account": ["password", "login", "name"],
    }
    common = ["my", "the", "please", "is", "was", "help", "with", "a"]
    draw = random.Random(args.seed)

    def tickets(number: int) -> Dataset:
        labels = [draw.choice(list(topics)) for _ in range(number)]
        texts = [" ".join([*draw.choices(common, k=4), *draw.choices(topics[label], k=2)]) for label in labels]
        return Dataset.from_dict({"text": texts, "label": labels}).class_encode_column("label")

    folder = Path(args.output_dir) / "tiny-network"
    words = ["[PAD]", "[UNK]", *common, *(word for about in topics.values() for word in about)]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=16, num_labels=3, initializer_range=0.2,
        )
    ).save_pretrained(folder)  # fmt: skip
    script.model = str(folder)
    args.learning_rate, args.num_train_epochs, args.save_strategy = 3e-3, 4, "no"
    return DatasetDict(train=tickets(500), test=tickets(200))


if __name__ == "__main__":
    main()
