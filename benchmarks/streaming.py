# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Memory of a run on a stream of ten million rows: does it stay the same from the first rows to the last?

    python benchmarks/streaming.py --output benchmarks/results/streaming.json

The rows are made up as they are read, flagged by `mark_trusted` and made noisy by `corrupt_labels`, both by the rows'
own numbers. Stage 1 drops trusted rows on the fly, the matrix comes from one pass over all ten million rows, of which
one in a thousand is trusted, and stage 2 reads the stream again. The resident memory is noted after every 10,000 rows.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from datasets import IterableDataset
from transformers import BertConfig, BertForSequenceClassification

from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted


BLOCK = 10_000
CLASSES = 4


class Passes:
    """The resident memory in MiB after each block of each pass over the stream."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.found: list[list[float]] = []

    def blocks(self) -> Iterator[dict[str, int]]:
        """What the stream is made from; begins a new pass."""
        notes: list[float] = []
        self.found.append(notes)
        for block in range(self.rows // BLOCK):
            yield {"block": block}
            notes.append(resident())


def resident() -> float:
    """Resident memory in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def make_rows(batch: dict[str, list[int]]) -> dict[str, Any]:
    """A block of rows whose words tell their class."""
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
    """Trains, and gives what each pass took."""
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
            folder, max_steps=steps, per_device_train_batch_size=batch, per_device_eval_batch_size=batch,
            learning_rate=1e-2, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, trusted_share=0,
            logging_steps=steps,
        )  # fmt: skip
        trainer = GLCTrainer(model, settings, train_dataset=stream(passes))
        trainer.train()
    true = CorruptionMatrix.flip(CLASSES, 0.4).probs
    names = ("stage 1", "estimate", "stage 2")
    read = [notes for notes in passes.found if len(notes) > 1]
    if len(read) != len(names):
        raise SystemExit(f"expected {len(names)} passes over the stream, there were {len(read)}")
    return {
        "rows": rows,
        "batch": batch,
        "steps_of_each_stage": steps,
        "passes": {name: figures(notes) for name, notes in zip(names, read, strict=True)},
        "largest_error_of_the_matrix": round(float(np.abs(trainer.corruption_matrix.probs - true).max()), 3),
        "processor_seconds": round(time.process_time() - started, 1),
    }


def figures(notes: list[float]) -> dict[str, Any]:
    """Memory at the beginning (after a hundredth of the pass), and how far it ever rose above that."""
    begin = max(len(notes) // 100, 1)
    places = sorted({begin, len(notes) // 10, len(notes) // 2, len(notes) - 1})
    return {
        "rows_read": len(notes) * BLOCK,
        "resident_mib": {f"{(place + 1) * BLOCK:,} rows": round(notes[place]) for place in places},
        "rise_mib": round(max(notes[begin:]) - notes[begin], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = run(arguments.rows, arguments.steps, arguments.batch)
    print(json.dumps(found, indent=1))
    if arguments.output is not None:
        content = {
            "command": shlex.join(["python", *sys.argv]),
            "what": "resident memory while both stages and the estimate read a stream, noted every 10,000 rows",
            "versions": {
                "python": platform.python_version(), "torch": torch.__version__, "datasets": datasets.__version__,
            },
            **found,
        }  # fmt: skip
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
