# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training on the votes of several sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from glc_hf import GLCTrainer
from glc_hf.correction.sources import fit_sources
from glc_hf.correction.votes_loss import votes_cross_entropy
from glc_hf.labels.label_batch import label_batch
from glc_hf.labels.votes import Votes
from tests.training.tiny import bert, config, same_weights, text_rows, token_bert, token_collator, token_rows, weights


SOURCES = ["good", "fair", "useless"]


def votes_on(labels: np.ndarray, right: float, coverage: float, seed: int) -> list[int | None]:
    """Votes of a source with a share of right ones; the others are random."""
    rng = np.random.default_rng(seed)
    votes = np.where(rng.random(len(labels)) < right, labels, rng.integers(0, 3, len(labels)))
    return [
        int(vote) if given else None for vote, given in zip(votes, rng.random(len(labels)) < coverage, strict=True)
    ]


def voted_rows(rows: int = 300, trusted: float = 0.2) -> tuple[Dataset, np.ndarray]:
    """Rows with three sources, and their true labels. Only trusted rows have a label."""
    data = text_rows(rows, trusted=trusted)
    true, flags = np.array(data["label"]), np.array(data["trusted"])
    for number, (name, right, coverage) in enumerate([("good", 0.9, 0.8), ("fair", 0.6, 0.9), ("useless", 0.0, 0.9)]):
        data = data.add_column(name, votes_on(true, right, coverage, number))
    labels = [int(label) if flag else None for label, flag in zip(true, flags, strict=True)]
    return data.remove_columns("label").add_column("label", labels), true


def make_trainer(folder: Any, data: Dataset, **settings: Any) -> GLCTrainer:
    settings = {"method": "glc", "source_columns": SOURCES, "max_steps": 4, **settings}
    return GLCTrainer(bert(), config(folder, **settings), train_dataset=data)


def test_untrusted_rows_get_the_label_that_the_votes_make_most_probable(tmp_path):
    data, true = voted_rows()
    labeled = make_trainer(tmp_path, data).train_dataset
    trusted, labels = np.array(data["trusted"]), np.array(labeled["label"])
    assert (labels[trusted] == true[trusted]).all()
    alone = np.array([-1 if vote is None else vote for vote in data["good"]])
    assert (labels == true)[~trusted].mean() > (alone == true)[~trusted].mean() + 0.05
    assert labeled.column_names == data.column_names


def test_label_of_an_untrusted_row_does_not_matter(tmp_path):
    data, true = voted_rows()
    other = data.remove_columns("label").add_column("label", np.where(data["trusted"], true, 2).tolist())
    first, second = (make_trainer(tmp_path, rows) for rows in (data, other))
    assert first.train_dataset["label"][:] == second.train_dataset["label"][:]


def test_glc_has_one_stage_and_one_matrix_per_source(tmp_path):
    data, true = voted_rows()
    trainer = make_trainer(tmp_path, data)
    assert trainer.method.first_stages() == []
    trainer.train()
    assert list(trainer.corruption_matrices) == SOURCES
    assert trainer.corruption_matrix is None
    diagonals = [matrix.probs.diagonal().mean() for matrix in trainer.corruption_matrices.values()]
    assert diagonals[0] > diagonals[1] > diagonals[2]
    voted = [vote is not None for vote in data["good"]]
    rows = np.bincount(true[np.array(data["trusted"]) & np.array(voted)], minlength=3)
    assert trainer.corruption_matrices["good"].trusted_rows.tolist() == rows.tolist()


def test_loss_is_that_of_the_votes_of_each_item(tmp_path):
    data, true = voted_rows()
    trainer = make_trainer(tmp_path, data)
    trainer.train()
    dense = np.array([[-1 if vote is None else vote for vote in data[name]] for name in SOURCES]).T
    trusted = np.flatnonzero(data["trusted"])
    votes = Votes.from_dense(dense, tuple(SOURCES))
    model = fit_sources(votes, 3, trusted, true[trusted], seed=trainer.args.seed)
    items = torch.tensor([7, 0, 299, 120, int(trusted[0])])
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    flags = torch.tensor(data["trusted"][:])[items]
    batch = label_batch(torch.from_numpy(true)[items], flags, items)
    likelihood = torch.from_numpy(model.log_likelihood(votes.select(items.numpy()))).float()
    expected = votes_cross_entropy(logits, likelihood, batch.labels, flags)
    torch.testing.assert_close(trainer.method.item_losses(logits, batch), expected)


@pytest.mark.parametrize("method", ["glc", "auto", "no_correction"])
def test_a_list_of_votes_is_the_same_as_a_column_per_source(tmp_path, method):
    data, _ = voted_rows(120)
    lists = [list(votes) for votes in zip(*(data[name] for name in SOURCES), strict=True)]
    listed = data.remove_columns(SOURCES).add_column("votes", lists)
    columns = make_trainer(tmp_path / "columns", data, method=method)
    votes = make_trainer(
        tmp_path / "votes", listed, method=method, source_columns=None, votes_column="votes", source_names=SOURCES
    )
    for trainer in (columns, votes):
        trainer.train()
    assert same_weights(weights(columns.model), weights(votes.model))
    assert columns.corruption_matrices == votes.corruption_matrices


def test_pretrained_network_is_trained_in_the_stages_of_auto_with_the_loss_of_the_votes(tmp_path):
    data, _ = voted_rows()
    trainer = make_trainer(tmp_path, data, method="auto", pretrained=True, max_steps=10)
    trainer.train()
    assert len(trainer.method.first_stages()) == 2
    assert list(trainer.corruption_matrices) == SOURCES
    assert trainer.method.sources is not None
    assert trainer.verdict.final


def test_rows_without_a_vote_and_a_label_are_not_used(tmp_path, caplog):
    data, _ = voted_rows()
    silent = np.flatnonzero(~np.array(data["trusted"]))[:20]
    for name in SOURCES:
        column = [None if row in silent else vote for row, vote in enumerate(data[name])]
        data = data.remove_columns(name).add_column(name, column)
    trainer = make_trainer(tmp_path, data)
    nothing = sum(
        not flag and all(vote is None for vote in votes)
        for flag, *votes in zip(data["trusted"], *(data[name] for name in SOURCES), strict=True)
    )
    assert nothing >= 20
    assert f"{nothing} rows have no vote and are not trusted: they are not used." in caplog.text
    assert len(trainer.training_data.votes) == 300 - nothing
    trainer.train()


@pytest.mark.parametrize("settings", [{"method": "glc"}, {"method": "auto", "pretrained": True}])
def test_sources_alone_are_enough_without_trusted_rows(tmp_path, settings):
    data, true = voted_rows()
    data = data.remove_columns(["label", "trusted"])
    trainer = make_trainer(tmp_path, data, source_columns=["good", "fair"], **settings)
    assert trainer.method.first_stages() == []
    assert (np.array(trainer.train_dataset["labels"]) == true).mean() > 0.75
    trainer.train()
    assert list(trainer.corruption_matrices) == ["good", "fair"]


def test_votes_on_tokens(tmp_path):
    data = token_rows(60)
    rows = data["labels"][:]
    flags = [row % 3 == 0 for row in range(60)]
    rng = np.random.default_rng(0)
    votes = [[label if label < 0 or rng.random() < 0.8 else int(rng.integers(0, 3)) for label in row] for row in rows]
    labels = [
        row if flag else [label if label < 0 else -1 for label in row] for row, flag in zip(rows, flags, strict=True)
    ]
    data = (
        data.remove_columns("labels")
        .add_column("labels", labels)
        .add_column("trusted", flags)
        .add_column("rule", votes)
    )
    trainer = GLCTrainer(
        token_bert(), config(tmp_path, method="glc", source_columns=["rule"], max_steps=4), train_dataset=data,
        data_collator=token_collator(),
    )  # fmt: skip
    trainer.train()
    assert list(trainer.corruption_matrices) == ["rule"]
    assert 0.6 < trainer.corruption_matrices["rule"].probs.diagonal().mean() < 1.0


@pytest.mark.parametrize("pretrained", [False, True])
def test_resumed_run_ends_with_the_same_weights(tmp_path, pretrained):
    data, _ = voted_rows(120)
    settings = {"method": "auto", "pretrained": pretrained, "max_steps": 6, "save_strategy": "steps", "save_steps": 2}
    whole = make_trainer(tmp_path / "whole", data, **settings)
    whole.train()
    first = make_trainer(tmp_path / "part", data, **settings)
    first.train()
    last = sorted((tmp_path / "part").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))[0]
    resumed = make_trainer(tmp_path / "part", data, **settings)
    resumed.train(resume_from_checkpoint=str(last))
    assert same_weights(weights(resumed.model), weights(whole.model))
    assert resumed.corruption_matrices == whole.corruption_matrices


def test_other_votes_are_other_data(tmp_path):
    data, _ = voted_rows(120)
    other = data.remove_columns("useless").add_column("useless", [0] * 120)
    first, second = (make_trainer(tmp_path, rows).training_data.fingerprint() for rows in (data, other))
    assert first != second


def test_stream_is_refused(tmp_path):
    data, _ = voted_rows(60)
    with pytest.raises(TypeError, match=r"votes of several sources need a `datasets.Dataset`"):
        make_trainer(tmp_path, data.to_iterable_dataset())
