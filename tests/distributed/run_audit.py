# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Audits with a trainer, in a script that every process runs, with the output folder as its argument."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from glc_hf import GLCTrainer
from tests.training.tiny import bert, config, noisy_text_rows, quick_pool


def audits(folder: Path) -> dict[str, Any]:
    """The columns of an audit and the rows to check next, with the predictions of the network and in folds."""
    torch.set_num_threads(1)
    processes, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", 1), ("RANK", 0)))
    data = noisy_text_rows(rows=121)
    args = config(folder / "model", per_device_train_batch_size=12 // processes, max_steps=12, learning_rate=5e-3)
    trainer = GLCTrainer(bert(initializer_range=0.3), args, train_dataset=data)
    trainer.train()
    results = {}
    with quick_pool(folder / f"cache-{rank}", iterations=100):
        for folds in (0, 3):
            audited = trainer.audit(data, folds=folds)
            results[f"{folds} folds"] = {
                name: list(audited[name]) for name in ("given_label", "suggested_label", "p_wrong")
            }
            results[f"{folds} folds"]["suggested rows"] = list(trainer.suggest(data, 9, folds=folds)["row"])
    return results


def main(folder: Path) -> None:
    """Each process writes what it has found."""
    (folder / f"results-{os.environ['RANK']}.json").write_text(json.dumps(audits(folder)))
    gc.collect()  # see run_training.py
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
