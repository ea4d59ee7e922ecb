# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The same seed gives the same weights: in another run, in another process, with any number of data loader workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from glc_hf import GLCTrainer
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, weights


ROOT = Path(__file__).parents[2]


def train_once(folder: Path, workers: int, seed: int = 42) -> dict[str, torch.Tensor]:
    """Train both stages with dropout. Return the weights and the matrix."""
    settings = config(folder, dataloader_num_workers=workers, max_steps=14, trusted_eval_fraction=0.2, seed=seed)
    model = bert(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    trainer = GLCTrainer(model, settings, train_dataset=noisy_text_rows())
    trainer.train()
    return {**weights(trainer.model), "corruption matrix": torch.tensor(trainer.corruption_matrix.probs).contiguous()}


def test_same_seed_gives_the_same_weights_in_any_process_and_with_any_workers(tmp_path):
    first = train_once(tmp_path, workers=0)
    for workers in (0, 1, 2):
        assert same_weights(first, train_once(tmp_path, workers)), f"{workers} workers"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.training.test_determinism", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=300)
    assert same_weights(first, load_file(tmp_path / "weights.safetensors")), "in a new process"
    assert not same_weights(first, train_once(tmp_path, workers=0, seed=43)), "with another seed"


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_file(train_once(Path(sys.argv[1]), workers=2), Path(sys.argv[1]) / "weights.safetensors")
