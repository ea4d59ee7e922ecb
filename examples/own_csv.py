# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
r"""
Train on your own CSV file, and write a table of the labels to check.

The file has the columns `text`, `label` (class names or numbers) and `trusted` (true for the rows you checked):

    python examples/own_csv.py --csv reviews.csv --model distilbert/distilbert-base-uncased --output_dir robust-model

With a file of the Hub, a sentiment dataset whose first 500 rows are marked as trusted:

    python examples/own_csv.py --csv hf://datasets/scikit-learn/imdb/IMDB\ Dataset.csv --text_column review \
        --label_column_of_csv sentiment --first_rows_are_trusted 500 --model distilbert/distilbert-base-uncased \
        --output_dir robust-model --num_train_epochs 1

Without arguments it writes a small CSV file and trains a tiny network on it, offline, in a few seconds. The command
line does the same without a script: `glc-hf train --dataset reviews.csv …`, then `glc-hf audit robust-model …`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    set_seed,
)

from glc_hf import GLCConfig, GLCTrainer, mark_trusted


@dataclass
class ScriptArguments:
    """Options besides those of `GLCConfig`."""

    csv: str | None = None
    model: str | None = None
    text_column: str = "text"
    label_column_of_csv: str = "label"
    first_rows_are_trusted: int | None = None


def main() -> None:
    """Train on the file, save the model, and write the rows with the results of the audit."""
    parser = HfArgumentParser((ScriptArguments, GLCConfig), description=__doc__)
    script, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    if script.csv is None:
        script.csv, script.model = tiny_example(args)
    rows = load_dataset("csv", data_files=script.csv, split="train")
    if script.label_column_of_csv != "label":
        rows = rows.rename_column(script.label_column_of_csv, "label")
    rows = rows.class_encode_column("label")
    names = rows.features["label"].names
    if script.first_rows_are_trusted is not None:
        rows = mark_trusted(rows, indices=range(script.first_rows_are_trusted))

    tokenizer = AutoTokenizer.from_pretrained(script.model)
    trainer = GLCTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(
            script.model, num_labels=len(names), id2label=dict(enumerate(names)), ignore_mismatched_sizes=True
        ),
        args=args,
        train_dataset=rows.map(lambda batch: tokenizer(batch[script.text_column], truncation=True), batched=True),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    matrix = trainer.corruption_matrix
    for label, rate in enumerate(matrix.noise_rates):
        print(f"{matrix.name_of(label)}: estimated noise rate {rate:.0%}")

    audited = trainer.audit(trainer.train_dataset)
    target = Path(args.output_dir) / "labels_to_check.csv"
    columns = [script.text_column, "given_label", "suggested_label", "is_label_issue", "label_score"]
    table = audited.select_columns(columns).to_pandas()
    table = table.sort_values(["is_label_issue", "label_score"], ascending=[False, True])
    for column in ("given_label", "suggested_label"):
        table[column] = [names[label] for label in table[column]]
    table.to_csv(target, index=False)
    print(f"{table.is_label_issue.sum()} of {len(table)} labels look wrong: {target}")


def tiny_example(args: GLCConfig) -> tuple[str, str]:
    """Write a CSV file with a third of the untrusted labels wrong, and a tiny network with its tokenizer."""
    import random

    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"good": ["great", "lovely", "fine"], "bad": ["awful", "poor", "dull"]}
    path, folder = Path(args.output_dir) / "reviews.csv", Path(args.output_dir) / "tiny-network"
    draw = random.Random(args.seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "trusted"])
        for row in range(300):
            label, other = ("good", "bad") if row % 2 else ("bad", "good")
            trusted = row % 10 < 2
            given = other if not trusted and draw.random() < 1 / 3 else label
            writer.writerow([f"a {draw.choice(words[label])} film number {row}", given, str(trusted).lower()])
    known = ["[PAD]", "[UNK]", "a", "film", "number", *words["good"], *words["bad"]]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(known)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    BertForSequenceClassification(
        BertConfig(
            vocab_size=len(known), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=16, initializer_range=0.2,
        )
    ).save_pretrained(folder)  # fmt: skip
    args.learning_rate, args.save_strategy = 3e-3, "no"
    return str(path), str(folder)


if __name__ == "__main__":
    main()
