# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A training as a user's script would be launched: each process runs this file. Options come as one JSON argument."""

from __future__ import annotations

import json
import os
import sys

import torch
from safetensors.torch import save_file

from glc_hf import GLCTrainer
from tests.training.tiny import bert, config, noisy_text_rows


def main(options: dict) -> None:
    """Trains, and has the main process write what the test compares."""
    torch.set_num_threads(1)
    data = noisy_text_rows(rows=options["rows"], trusted=options["trusted"])
    if options.get("trusted_first"):
        # All trusted rows at the front: some process has none of them in a share of the rows.
        data = data.sort("trusted", reverse=True)
    trainer = GLCTrainer(
        bert(**options.get("model", {})),
        config(options["folder"], **options["settings"]),
        train_dataset=data,
        eval_dataset=data.select(range(30)),
    )
    metrics = trainer.train(resume_from_checkpoint=options.get("resume")).metrics
    evaluated = trainer.evaluate()
    trainer.save_model(os.path.join(options["folder"], "saved"))
    weights = trainer.accelerator.get_state_dict(trainer.model)
    if trainer.is_world_process_zero():
        save_file(
            {k: v.contiguous().clone() for k, v in weights.items()}, os.path.join(options["folder"], "weights.st")
        )
        found = {
            "matrix": trainer.corruption_matrix.probs.tolist(),
            "processes": trainer.accelerator.num_processes,
            "train_loss": metrics["train_loss"],
            "stage1_train_loss": metrics["stage1_train_loss"],
            "eval_accuracy": evaluated["eval_accuracy"],
        }
        with open(os.path.join(options["folder"], "found.json"), "w") as file:
            json.dump(found, file)
    trainer.end()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
