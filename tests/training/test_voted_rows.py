# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training on the votes of several sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from glc_hf import GLCTrainer
from glc_hf.audit.findings import COLUMNS, Findings
from glc_hf.correction.sources import fit_sources
from glc_hf.correction.sources.vote_counts import vote_numbers
from glc_hf.correction.votes_loss import votes_cross_entropy
from glc_hf.labels.label_batch import Votes, label_batch
from glc_hf.methods import glc
from glc_hf.methods.matrix_files import load_sources
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


def voted_token_rows(rows: int = 60) -> Dataset:
    """Rows with two sources that vote on every second token or more. Only tokens of trusted rows have a label."""
    data = token_rows(rows)
    flags = [row % 3 == 0 for row in range(rows)]
    rng = np.random.default_rng(0)

    def votes(right: float, coverage: float) -> list[list[int | None]]:
        return [
            [
                None
                if label < 0 or rng.random() > coverage
                else label
                if rng.random() < right
                else int(rng.integers(0, 3))
                for label in row
            ]
            for row in data["labels"]
        ]

    labels = [
        row if flag else [label if label < 0 else -1 for label in row]
        for row, flag in zip(data["labels"], flags, strict=True)
    ]
    sources = {"rule": votes(0.8, 0.9), "other": votes(0.3, 0.6)}
    data = data.remove_columns("labels").add_column("labels", labels).add_column("trusted", flags)
    for name, column in sources.items():
        data = data.add_column(name, column)
    return data


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


def test_votes_are_not_read_again_in_each_step(tmp_path, monkeypatch):
    """Only the few steps that estimate the sources again read all votes."""
    read = []
    monkeypatch.setattr(
        glc, "vote_numbers", lambda votes, classes: read.append(len(votes)) or vote_numbers(votes, classes)
    )
    make_trainer(tmp_path, voted_rows()[0], max_steps=8).train()
    assert len(read) == 1


def test_loss_is_that_of_the_votes_of_each_item(tmp_path):
    data, true = voted_rows()
    trainer = make_trainer(tmp_path, data, refine_matrix=False)
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
    assert [stage.mode for stage in trainer.method.first_stages()] == ["probe"]
    assert trainer.state.global_step == 10
    assert list(trainer.corruption_matrices) == SOURCES
    assert trainer.method.sources is not None
    assert trainer.verdict.final


def test_pretrained_network_learns_the_probable_labels_of_the_embedded_rows(tmp_path):
    data, _ = voted_rows()
    trainer = make_trainer(tmp_path, data, method="auto", pretrained=True, max_steps=10)
    trainer.train()
    method = trainer.method
    items, posteriors = method.posterior_items, method.posteriors
    assert torch.allclose(posteriors.sum(dim=1), torch.ones(len(items)), atol=1e-5)
    untrusted, trusted = items[:3], torch.from_numpy(trainer.training_data.numbers_of("trusted")[:2])
    method.posterior_items, method.posteriors = items[:2], posteriors[:2]  # the third is not known
    flags = torch.tensor([False] * 3 + [True] * 2)
    batch = label_batch(torch.tensor([0, 0, 0, 1, 2]), flags, torch.cat([untrusted, trusted]))
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    losses = method.item_losses(logits, batch)
    expected = -(posteriors[:2] * logits[:2].log_softmax(dim=-1)).sum(dim=-1)
    assert torch.allclose(losses[:2], expected)
    assert losses[2] == 0
    assert torch.allclose(
        losses[3:], torch.nn.functional.cross_entropy(logits[3:], batch.labels[3:], reduction="none")
    )
    method.mixed_part = 0.5
    rows = trainer.training_data.for_training(trainer, method.last_stage(), 0.0).rows
    known = trainer.training_data.rows.row_of(items[:2].numpy())
    assert np.array_equal(rows, np.union1d(np.flatnonzero(data["trusted"]), known))


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


def test_no_vote_on_any_untrusted_row_is_an_error_about_the_votes(tmp_path):
    data, _ = voted_rows()
    for name in SOURCES:
        votes = [vote if flag else None for vote, flag in zip(data[name], data["trusted"], strict=True)]
        data = data.remove_columns(name).add_column(name, votes)
    with pytest.raises(ValueError, match="no untrusted row has a vote, so there is nothing to learn from"):
        make_trainer(tmp_path, data).train()


@pytest.mark.parametrize("settings", [{"method": "glc"}, {"method": "auto", "pretrained": True}])
def test_sources_alone_are_enough_without_trusted_rows(tmp_path, settings):
    data, true = voted_rows()
    data = data.remove_columns(["label", "trusted"])
    trainer = make_trainer(tmp_path, data, source_columns=["good", "fair"], **settings)
    assert trainer.method.first_stages() == []
    assert (np.array(trainer.train_dataset["labels"]) == true).mean() > 0.75
    trainer.train()
    assert list(trainer.corruption_matrices) == ["good", "fair"]


def without_votes_on_trusted_rows(data: Dataset) -> Dataset:
    for name in SOURCES:
        column = [None if flag else vote for flag, vote in zip(data["trusted"], data[name], strict=True)]
        data = data.remove_columns(name).add_column(name, column)
    return data


@pytest.mark.parametrize("settings", [{"method": "glc"}, {"method": "auto", "pretrained": True}])
def test_sources_that_never_saw_the_trusted_rows_are_judged_by_their_agreement(tmp_path, caplog, settings):
    data, true = voted_rows()
    data = without_votes_on_trusted_rows(data)
    trainer = make_trainer(tmp_path, data, **settings)
    said = (
        "No source votes on any of the 60 trusted labels, so the accuracy of the sources is estimated from their "
        "agreement."
    )
    assert caplog.text.count(said) == 1
    untrusted = ~np.array(data["trusted"])
    alone = make_trainer(tmp_path, data.select(np.flatnonzero(untrusted)).remove_columns(["label", "trusted"]))
    labels = np.array(trainer.train_dataset["label"])
    assert (labels[untrusted] == np.array(alone.train_dataset["labels"])).all()
    assert (labels == true)[~untrusted].all()
    trainer.train()
    diagonals = [matrix.probs.diagonal().mean() for matrix in trainer.corruption_matrices.values()]
    assert diagonals[0] > diagonals[1] > diagonals[2]
    assert trainer.sources()["good"].trusted_votes == 0
    assert trainer.training_data.rows.count("trusted") == 60
    flags = torch.tensor([True, False])
    items = torch.tensor([int(np.flatnonzero(~untrusted)[0]), int(np.flatnonzero(untrusted)[0])])
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    trainer.method.judges = torch.empty(0, dtype=torch.int64)
    losses = trainer.method.item_losses(logits, label_batch(torch.from_numpy(labels)[items], flags, items))
    plain = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)[items], reduction="none")
    assert losses[0] == pytest.approx(float(plain[0]))
    assert losses[1] != pytest.approx(float(plain[1]))


# ---------------------------------------------------------------------- columns
@pytest.mark.parametrize("name", ["labels", "label_ids", "category"])
def test_source_may_have_the_name_of_a_label_column(tmp_path, name):
    data, _ = voted_rows(120)
    usual = make_trainer(tmp_path / "usual", data)
    renamed = make_trainer(tmp_path / "renamed", data.rename_column("good", name), source_columns=[name, *SOURCES[1:]])
    assert renamed.training_data.label_column == "label"
    assert renamed.train_dataset["label"][:] == usual.train_dataset["label"][:]
    for trainer in (usual, renamed):
        trainer.train()
    assert same_weights(weights(usual.model), weights(renamed.model))


def test_source_called_labels_without_a_label_column(tmp_path):
    data, true = voted_rows(120)
    data = data.remove_columns(["label", "trusted"]).rename_column("good", "labels")
    trainer = make_trainer(tmp_path, data, source_columns=["labels", "fair"])
    assert trainer.training_data.label_column == "label"
    assert (np.array(trainer.train_dataset["label"]) == true).mean() > 0.7
    trainer.train()


def test_several_columns_that_could_be_the_labels_are_an_error(tmp_path):
    data, _ = voted_rows(60)
    data = data.rename_column("label", "category").add_column("target", [0] * 60)
    with pytest.raises(ValueError, match=r"could be the labels \(category, target\): name label_column\."):
        make_trainer(tmp_path, data)
    assert make_trainer(tmp_path, data, label_column="category").training_data.label_column == "category"


def token_trainer(folder: Any, data: Dataset, **settings: Any) -> GLCTrainer:
    settings = {"method": "glc", "source_columns": ["rule", "other"], "max_steps": 4, **settings}
    return GLCTrainer(token_bert(), config(folder, **settings), train_dataset=data, data_collator=token_collator())


@pytest.mark.parametrize("method", ["glc", "auto", "no_correction"])
def test_votes_on_tokens(tmp_path, method):
    trainer = token_trainer(tmp_path, voted_token_rows(), method=method)
    trainer.train()
    if method == "no_correction":
        assert trainer.corruption_matrices == {}
        return
    assert list(trainer.corruption_matrices) == ["rule", "other"]
    diagonals = [matrix.probs.diagonal().mean() for matrix in trainer.corruption_matrices.values()]
    assert 1.0 > diagonals[0] > 0.7 > diagonals[1]


def test_other_votes_are_other_data(tmp_path):
    data, _ = voted_rows(120)
    other = data.remove_columns("useless").add_column("useless", [0] * 120)
    first, second = (make_trainer(tmp_path, rows).training_data.fingerprint() for rows in (data, other))
    assert first != second


# ---------------------------------------------------------------------- what the sources are worth
@pytest.mark.parametrize("method", ["glc", "no_correction"])
def test_sources_are_judged_before_and_after_training(tmp_path, method):
    data, true = voted_rows()
    trainer = make_trainer(tmp_path, data, method=method)
    before = trainer.sources()
    assert [row.name for row in before] == SOURCES
    trusted = np.array(data["trusted"])
    votes = np.array([-1 if vote is None else vote for vote in data["good"]])
    known = trusted & (votes >= 0)
    assert (before["good"].trusted_votes, before["good"].right) == (known.sum(), (votes == true)[known].sum())
    trainer.train()
    assert [row.name for row in trainer.sources()] == SOURCES
    assert trainer.sources() is trainer.sources()


def test_table_does_not_count_rows_that_are_held_out(tmp_path):
    data, _ = voted_rows()
    whole, part = (make_trainer(tmp_path, data, trusted_eval_fraction=share) for share in (0.0, 0.5))
    assert part.sources()["good"].trusted_votes < 0.7 * whole.sources()["good"].trusted_votes


def test_labels_of_other_rows_do_not_depend_on_rows_that_are_held_out(tmp_path):
    data, true = voted_rows()
    trainer = make_trainer(tmp_path, data, trusted_eval_fraction=0.5)
    held_out = trainer.training_data.rows.held_out
    assert len(held_out) > 20
    kept = np.setdiff1d(np.flatnonzero(data["trusted"]), held_out)
    dense = np.array([[-1 if vote is None else vote for vote in data[name]] for name in SOURCES]).T
    votes = Votes.from_dense(dense, tuple(SOURCES))
    expected = fit_sources(votes, 3, kept, true[kept], seed=trainer.args.seed).posterior(votes).argmax(axis=1)
    judged = ~np.array(data["trusted"]) & (dense >= 0).any(axis=1)
    assert (np.array(trainer.train_dataset["label"])[judged] == expected[judged]).all()


def test_table_without_votes_is_an_error_that_says_how_to_name_them(tmp_path):
    trainer = GLCTrainer(bert(), config(tmp_path, method="glc"), train_dataset=text_rows(60))
    with pytest.raises(ValueError, match=r"no votes of several sources: name their columns with GLCConfig"):
        trainer.sources()


# ---------------------------------------------------------------------- audit
def posterior_by_hand(trainer: GLCTrainer, data: Dataset) -> np.ndarray:
    """softmax(log p(y | x) + ℓ(votes)) of every row."""
    dense = np.array([[-1 if vote is None else vote for vote in data[name]] for name in SOURCES]).T
    likelihood = trainer.method.sources.log_likelihood(Votes.from_dense(dense, tuple(SOURCES)))
    inputs = {name: torch.tensor(data[name][:]) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        logits = trainer.model.eval()(**inputs).logits.double()
    return torch.softmax(torch.log_softmax(logits, dim=-1) + torch.from_numpy(likelihood), dim=-1).numpy()


def test_audit_combines_the_prediction_with_all_votes(tmp_path):
    data, true = voted_rows()
    trainer = make_trainer(tmp_path, data, max_steps=20, refine_matrix=False)
    trainer.train()
    audited = trainer.audit(data)
    assert audited.column_names == [*data.column_names, *COLUMNS]
    posterior, trusted = posterior_by_hand(trainer, data), np.array(data["trusted"])
    given, suggested, p_wrong = (np.array(audited[name]) for name in COLUMNS[:3])
    voted = np.any([[vote is not None for vote in data[name]] for name in SOURCES], axis=0)
    known = voted | trusted
    assert (given[known] == np.array(trainer.train_dataset["label"])[known]).all()
    assert (given[~known] == -100).all()
    judged = voted & ~trusted
    assert (suggested[judged] == posterior.argmax(axis=1)[judged]).all()
    expected = 1 - posterior[np.arange(len(data)), given.clip(0)]
    np.testing.assert_allclose(p_wrong[judged], expected[judged], atol=1e-6)
    assert (p_wrong[trusted] == 0).all()
    assert (suggested[trusted] == true[trusted]).all()
    assert audited["label"][:] == data["label"][:]
    wrong = (given != true)[judged]
    assert p_wrong[judged][wrong].mean() > 2 * p_wrong[judged][~wrong].mean()


def test_rows_to_check_next_are_those_on_which_the_sources_disagree(tmp_path):
    data, _ = voted_rows()
    trainer = make_trainer(tmp_path, data, max_steps=2, refine_matrix=False)
    trainer.train()
    dense = np.array([[-1 if vote is None else vote for vote in data[name]] for name in SOURCES]).T
    disagree = np.array([len(set(votes[votes >= 0].tolist())) > 1 for votes in dense])
    untrusted = ~np.array(data["trusted"])
    suggested = trainer.suggest(data, 60, folds=0)
    chosen = np.array(suggested["row"])
    assert untrusted[chosen].all()
    assert [("the sources disagree" in reason) for reason in suggested["reason"]] == disagree[chosen].tolist()
    assert disagree[chosen].mean() > disagree[untrusted].mean()


def test_row_without_votes_gets_a_suggestion_but_no_verdict(tmp_path):
    data, _ = voted_rows(120)
    row = int(np.flatnonzero(~np.array(data["trusted"]))[0])
    for name in SOURCES:
        column = [None if number == row else vote for number, vote in enumerate(data[name])]
        data = data.remove_columns(name).add_column(name, column)
    trainer = make_trainer(tmp_path, data)
    trainer.train()
    audited = trainer.audit(data)[row]
    assert (audited["given_label"], audited["p_wrong"]) == (-100, 0)
    assert audited["suggested_label"] in (0, 1, 2)
    assert row not in Findings.of(trainer.audit(data), trainer.method.sources.mean_matrix()).row


def test_saved_folder_is_enough_for_the_same_audit(tmp_path):
    data, _ = voted_rows(120)
    trainer = make_trainer(tmp_path, data)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    settings = config(tmp_path / "other", method="glc", source_columns=SOURCES)
    other = GLCTrainer(trainer.model, settings)
    with pytest.raises(ValueError, match="not trained yet"):
        other.audit(data)
    other.given_sources = load_sources(tmp_path / "saved")
    np.testing.assert_allclose(other.audit(data)["p_wrong"], trainer.audit(data)["p_wrong"], rtol=1e-9)
    other.args.source_columns = None
    with pytest.raises(ValueError, match="trained on the votes of 3 sources: name the columns of the votes"):
        other.audit(data)


def test_audit_uses_the_votes_of_known_sources_only(tmp_path, caplog):
    data, _ = voted_rows(120)
    trainer = make_trainer(tmp_path, data)
    trainer.train()
    settings = config(tmp_path, method="glc", source_columns=["new", "fair", "good"])
    other = GLCTrainer(trainer.model, settings)
    other.given_sources = trainer.method.sources
    renamed = data.rename_column("useless", "new")
    audited = other.audit(renamed)
    assert "The votes of 'new' are not used: the model was not trained on votes of this source." in caplog.text
    other.args.source_columns = ["good", "fair"]
    assert other.audit(data)["p_wrong"][:] == audited["p_wrong"][:]
    other.args.source_columns = ["new"]
    with pytest.raises(ValueError, match=r"none of the sources of these rows \('new'\) is known.*'good', 'fair'"):
        other.audit(renamed)


def test_audit_of_votes_on_tokens_has_a_verdict_per_token(tmp_path):
    data = token_rows(60)
    rows = data["labels"][:]
    rng = np.random.default_rng(0)
    votes = [[None if label < 0 or rng.random() < 0.2 else label for label in row] for row in rows]
    flags = [row % 3 == 0 for row in range(60)]
    data = data.add_column("trusted", flags).add_column("rule", votes)
    trainer = GLCTrainer(
        token_bert(), config(tmp_path, method="glc", source_columns=["rule"], max_steps=4), train_dataset=data,
        data_collator=token_collator(),
    )  # fmt: skip
    trainer.train()
    audited = trainer.audit(data)
    for given, p_wrong, own, labels, flag in zip(
        audited["given_label"], audited["p_wrong"], votes, rows, flags, strict=True
    ):
        filled = [-100 if vote is None else vote for vote in own]
        assert given == (labels if flag else filled)
        assert [wrong > 0 for wrong in p_wrong] == [not flag and vote >= 0 for vote in filled]
