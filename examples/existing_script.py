# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
r"""
A plain Trainer script with the few lines that make it robust to wrong labels, marked `# glc_hf`.

On a dataset of the Hub, with every fifth row marked as trusted:

    python examples/existing_script.py --dataset stanfordnlp/imdb --model distilbert/distilbert-base-uncased \
        --output_dir robust-imdb --num_train_epochs 1

Without arguments it runs on synthetic rows, offline, in a few seconds.
"""

from __future__ import annotations

import argparse

from datasets import Dataset, DatasetDict, load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    set_seed,
)

from glc_hf import GLCConfig, GLCTrainer, mark_trusted  # glc_hf: replaces TrainingArguments, Trainer


def main() -> None:
    """Fine-tune, evaluate and save a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset")
    parser.add_argument("--model")
    parser.add_argument("--output_dir", default="robust-model")
    parser.add_argument("--num_train_epochs", type=float, default=3.0)
    options = parser.parse_args()
    set_seed(0)

    if options.dataset is None:
        data, model, tokenizer, learning_rate = *tiny_example(), None, 3e-3
    else:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
        model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=2)
        data = load_dataset(options.dataset).map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True)
        learning_rate = 5e-5
    data["train"] = mark_trusted(data["train"], indices=range(0, len(data["train"]), 5))  # glc_hf

    args = GLCConfig(  # glc_hf: was TrainingArguments
        output_dir=options.output_dir,
        num_train_epochs=options.num_train_epochs,
        per_device_train_batch_size=16,
        learning_rate=learning_rate,
        save_strategy="no",
    )
    trainer = GLCTrainer(  # glc_hf: was Trainer
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model()


def tiny_example() -> tuple[DatasetDict, BertForSequenceClassification]:
    """Create rows of two classes, a third of the untrusted labels wrong, and a very small network."""

    def rows(number: int, noisy: bool) -> Dataset:
        classes = [row % 2 for row in range(number)]
        wrong = [noisy and row % 5 != 0 and row % 3 == 0 for row in range(number)]
        return Dataset.from_dict(
            {
                "input_ids": [[2 + label, 4 + row % 5, 9 + row % 7] for row, label in enumerate(classes)],
                "label": [1 - label if flip else label for label, flip in zip(classes, wrong, strict=True)],
            }
        )

    network = BertConfig(
        vocab_size=16, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=8, initializer_range=0.2,
    )  # fmt: skip
    return DatasetDict(train=rows(300, noisy=True), test=rows(60, noisy=False)), BertForSequenceClassification(network)


if __name__ == "__main__":
    main()
