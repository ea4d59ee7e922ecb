# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The same seed, the same weights: again, in a new process, with any number of workers that load rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from glc_hf import GLCTrainer
from tests.training.tiny import bert, config, noisy_text_rows


ROOT = Path(__file__).parents[2]


def train_once(folder: Path, workers: int, seed: int = 42) -> dict[str, torch.Tensor]:
    """Both stages, dropout on; the weights and the matrix."""
    settings = config(folder, dataloader_num_workers=workers, max_steps=14, trusted_eval_fraction=0.2, seed=seed)
    model = bert(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    trainer = GLCTrainer(model, settings, train_dataset=noisy_text_rows())
    trainer.train()
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    return {**weights, "corruption matrix": torch.tensor(trainer.corruption_matrix.probs).contiguous()}


def _equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_seed_gives_the_same_weights_everywhere(tmp_path):
    first = train_once(tmp_path, workers=0)
    for workers in (0, 1, 2):
        assert _equal(first, train_once(tmp_path, workers)), f"{workers} workers"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.training.test_determinism", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=300)
    assert _equal(first, load_file(tmp_path / "weights.safetensors")), "in a new process"
    assert not _equal(first, train_once(tmp_path, workers=0, seed=43)), "with another seed"


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_file(train_once(Path(sys.argv[1]), workers=2), Path(sys.argv[1]) / "weights.safetensors")
