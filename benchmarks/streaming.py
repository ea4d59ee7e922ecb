# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Memory of a training on a stream of ten million rows: it must not grow with the rows read.

    python benchmarks/streaming.py --output benchmarks/results/streaming.json

The rows are generated while they are read; `mark_trusted` and `corrupt_labels` use their `id` column. Stage 1 skips
trusted rows, the matrix is estimated in one pass over all ten million rows, of which one in a thousand is trusted, and
stage 2 reads the stream again. The resident memory is recorded after every 10,000 rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from datasets import IterableDataset
from many_classes import resident
from result_files import write_result
from transformers import BertConfig, BertForSequenceClassification

from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted


BLOCK = 10_000
CLASSES = 4


class Passes:
    """Records the resident memory, in MiB, after each block of each pass over the stream."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.memory: list[list[float]] = []

    def blocks(self) -> Iterator[dict[str, int]]:
        """The block numbers of a new pass."""
        memory: list[float] = []
        self.memory.append(memory)
        for block in range(self.rows // BLOCK):
            yield {"block": block}
            memory.append(resident())


def make_rows(batch: dict[str, list[int]]) -> dict[str, Any]:
    """A block of rows whose first word is the class."""
    number = batch["block"][0]
    draw = np.random.default_rng(number)
    labels = draw.integers(CLASSES, size=BLOCK)
    words = draw.integers(CLASSES, 40, size=(BLOCK, 4))
    words[:, 0] = labels
    return {"id": np.arange(number * BLOCK, (number + 1) * BLOCK), "input_ids": list(words), "label": labels}


def stream(passes: Passes) -> IterableDataset:
    """The flagged, noisy rows."""
    features = datasets.Features(
        {
            "id": datasets.Value("int64"),
            "input_ids": datasets.List(datasets.Value("int64")),
            "label": datasets.ClassLabel(num_classes=CLASSES),
        }
    )
    rows = IterableDataset.from_generator(passes.blocks).map(
        make_rows, batched=True, batch_size=1, remove_columns=["block"], features=features
    )
    rows = mark_trusted(rows, fraction=0.001, index_column="id")
    return corrupt_labels(rows, CorruptionMatrix.flip(CLASSES, 0.4), index_column="id")


def run(rows: int, steps: int, batch: int) -> dict[str, Any]:
    """Train, and return the memory of each pass."""
    passes = Passes(rows)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=8, num_labels=CLASSES,
        )
    )  # fmt: skip
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        settings = GLCConfig(
            folder, method="glc", max_steps=steps, per_device_train_batch_size=batch, per_device_eval_batch_size=batch,
            learning_rate=1e-2, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, trusted_share=0,
            logging_steps=steps,
        )  # fmt: skip
        trainer = GLCTrainer(model, settings, train_dataset=stream(passes))
        trainer.train()
    true = CorruptionMatrix.flip(CLASSES, 0.4).probs
    names = ("stage 1", "estimate", "stage 2")
    read = [memory for memory in passes.memory if len(memory) > 1]
    if len(read) != len(names):
        raise SystemExit(f"expected {len(names)} passes over the stream, got {len(read)}")
    return {
        "rows": rows,
        "batch": batch,
        "steps_of_each_stage": steps,
        "passes": {name: figures(memory) for name, memory in zip(names, read, strict=True)},
        "largest_error_of_the_matrix": round(float(np.abs(trainer.corruption_matrix.probs - true).max()), 3),
        "processor_seconds": round(time.process_time() - started, 1),
    }


def figures(memory: list[float]) -> dict[str, Any]:
    """Memory at several points, and its maximum rise after the first hundredth of the pass."""
    begin = max(len(memory) // 100, 1)
    blocks = sorted({begin, len(memory) // 10, len(memory) // 2, len(memory) - 1})
    return {
        "rows_read": len(memory) * BLOCK,
        "resident_mib": {f"{(block + 1) * BLOCK:,} rows": round(memory[block]) for block in blocks},
        "rise_mib": round(max(memory[begin:]) - memory[begin], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = run(arguments.rows, arguments.steps, arguments.batch)
    print(json.dumps(result, indent=1))
    if arguments.output is not None:
        what = "resident memory while both stages and the estimate read a stream, every 10,000 rows"
        write_result(arguments.output, what, ["torch", "datasets"], **result)


if __name__ == "__main__":
    main()
