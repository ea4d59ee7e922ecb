# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the loss of several sources must equal, and the errors about bad votes, through the Trainer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from glc_hf import GLCTrainer, corrected_cross_entropy
from glc_hf.labels.label_batch import LabelBatch, label_batch
from tests.training.test_voted_rows import SOURCES, make_trainer, voted_rows, votes_on
from tests.training.tiny import text_rows


def random_batch(trainer: GLCTrainer, items: int = 64) -> tuple[torch.Tensor, LabelBatch]:
    """Logits and a batch of random items of the training set."""
    data = trainer.train_dataset
    chosen = torch.from_numpy(np.random.default_rng(1).permutation(len(data))[:items])
    logits = 3 * torch.randn(items, 3, generator=torch.Generator().manual_seed(0))
    labels, flags = (torch.tensor(data[name][:])[chosen] for name in ("label", "trusted"))
    return logits, label_batch(labels, flags, chosen)


def losses_and_gradient(trainer: GLCTrainer) -> tuple[torch.Tensor, torch.Tensor]:
    logits, batch = random_batch(trainer)
    leaf = logits.requires_grad_()
    losses = trainer.method.item_losses(leaf, batch)
    return losses.detach(), torch.autograd.grad(losses.sum(), leaf)[0]


def rows_of_one_source() -> Dataset:
    """Rows with one source that votes on every row; the label of untrusted rows is its vote."""
    data = text_rows(200, trusted=0.3)
    true, flags = np.array(data["label"]), np.array(data["trusted"])
    votes = votes_on(true, right=0.7, coverage=1.0, seed=0)
    labels = np.where(flags, true, votes)
    return data.remove_columns("label").add_column("label", labels.tolist()).add_column("rule", votes)


def test_one_source_has_the_loss_of_its_matrix(tmp_path):
    trainer = make_trainer(tmp_path, rows_of_one_source(), source_columns=["rule"], refine_matrix=False, max_steps=1)
    trainer.train()
    trainer.method.set_sources(replace(trainer.method.sources, temperature=1.0))
    found, found_gradient = losses_and_gradient(trainer)
    logits, batch = random_batch(trainer)
    votes = torch.tensor(trainer.train_dataset["rule"][:])[batch.items]
    labels = torch.where(batch.trusted, batch.labels, votes)
    leaf = logits.requires_grad_()
    matrix = trainer.corruption_matrices["rule"]
    losses = corrected_cross_entropy(leaf, labels, matrix, batch.trusted, reduction="none")
    torch.testing.assert_close(found, losses.detach(), rtol=1e-6, atol=1e-6)
    expected_gradient = torch.autograd.grad(losses.sum(), leaf)[0]
    torch.testing.assert_close(found_gradient, expected_gradient, rtol=1e-6, atol=1e-6)


def test_copies_of_a_source_have_the_loss_of_one(tmp_path):
    data = rows_of_one_source()
    copied = data.add_column("copy", data["rule"][:]).add_column("again", data["rule"][:])
    one = make_trainer(tmp_path / "one", data, source_columns=["rule"], refine_matrix=False, max_steps=1)
    three = make_trainer(
        tmp_path / "three", copied, source_columns=["rule", "copy", "again"], refine_matrix=False, max_steps=1
    )
    for trainer in (one, three):
        trainer.train()
    assert three.train_dataset["label"][:] == one.train_dataset["label"][:]
    for found, expected in zip(losses_and_gradient(three), losses_and_gradient(one), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_order_of_the_sources_does_not_matter(tmp_path):
    data, _ = voted_rows(150)
    first, second = (
        make_trainer(tmp_path / "".join(order), data, source_columns=order) for order in (SOURCES, SOURCES[::-1])
    )
    for trainer in (first, second):
        trainer.train()
    assert first.train_dataset["label"][:] == second.train_dataset["label"][:]
    for name, matrix in first.corruption_matrices.items():
        np.testing.assert_allclose(matrix.probs, second.corruption_matrices[name].probs, atol=1e-5)
    for mine, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def changed(data: Dataset, name: str, row: int, value: Any) -> Dataset:
    column = [value if number == row else old for number, old in enumerate(data[name][:])]
    return data.remove_columns(name).add_column(name, column)


BAD = {
    "vote outside the classes": (
        lambda data: changed(data, "fair", 7, 5),
        {},
        r"vote 5 of source 'fair' in row 7 is not a class: the classes are 0…2\. Correct it, or write None",
    ),
    "source that never votes": (
        lambda data: data.remove_columns("fair").add_column("fair", [None] * len(data)),
        {},
        r"source 'fair' never votes .*remove it from source_columns",
    ),
    "lists of unequal lengths": (
        lambda data: data.add_column("v", [[0, 1] if row != 9 else [0] for row in range(len(data))]),
        {"source_columns": None, "votes_column": "v"},
        r"row 9 has 1 votes in column 'v' and row 0 has 2; .*Write None where a source has no vote",
    ),
    "source with the name of the labels": (
        lambda data: data,
        {"source_columns": ["good", "label"], "label_column": "label"},
        r"'label' is the label_column and can't be a column of votes too",
    ),
    "source named twice": (
        lambda data: data,
        {"source_columns": ["good", "fair", "good"]},
        r"source_columns has 'good' twice",
    ),
    "names of sources given twice": (
        lambda data: data,
        {"source_names": ["anna", "anna", "bob"]},
        r"source_names has 'anna' twice: each source has its own",
    ),
    "trusted row without a label": (
        lambda data: changed(data, "label", int(np.flatnonzero(data["trusted"])[1]), None),
        {},
        r"row \d+ is trusted, but has no label in column 'label'.*write it, or set 'trusted' to false",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_votes_are_errors_with_row_source_and_fix(tmp_path, case):
    change, settings, message = BAD[case]
    data, _ = voted_rows(60)
    with pytest.raises(ValueError, match=message) as error:
        make_trainer(tmp_path, change(data), **settings)
    if case == "trusted row without a label":
        assert str(error.value).startswith(f"row {np.flatnonzero(data['trusted'])[1]} is trusted")
