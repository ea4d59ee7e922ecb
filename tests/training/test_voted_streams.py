# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training on a stream with the votes of several sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, IterableDataset
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf import GLCTrainer
from glc_hf.hub.model_card import ModelCardCallback
from glc_hf.labels.label_batch import VOTES_KEY
from glc_hf.labels.transforms import batches_of_stream
from glc_hf.training.stage_trainer import StageTrainer
from glc_hf.voted import voted_streams
from tests.labels.streamed import arrow, python, typed
from tests.training.test_voted_rows import (
    SOURCES,
    make_trainer,
    voted_rows,
    voted_token_rows,
    without_votes_on_trusted_rows,
)
from tests.training.tiny import bert, config, same_weights, token_bert, token_collator, weights


# So that a `Dataset` gives the same batches as a stream, and the same estimate.
IN_ORDER: dict[str, Any] = {"trusted_share": 0, "refine_matrix": False, "train_sampling_strategy": "sequential"}
KINDS = pytest.mark.parametrize("kind", [arrow, python, typed])


def used(data: Dataset) -> np.ndarray:
    """Whether each row has a vote or is trusted."""
    voted = [[vote is not None for vote in data[name]] for name in SOURCES]
    return np.any([*voted, data["trusted"][:]], axis=0)


def with_silent_rows(data: Dataset) -> Dataset:
    """The same rows, without any vote on the untrusted ones of the first 40."""
    silent = [row < 40 and not flag for row, flag in enumerate(data["trusted"])]
    for name in SOURCES:
        column = [None if nothing else vote for nothing, vote in zip(silent, data[name], strict=True)]
        data = data.remove_columns(name).add_column(name, column)
    return data


# ---------------------------------------------------------------------- the same as a dataset
@KINDS
@pytest.mark.parametrize("method", ["glc", "auto", "no_correction"])
def test_stream_gives_the_same_weights_and_matrices_as_a_dataset_in_the_same_order(tmp_path, kind, method):
    data, _ = voted_rows(120)
    trainers = [make_trainer(tmp_path, rows, method=method, **IN_ORDER) for rows in (data, kind(data, 1))]
    for trainer in trainers:
        trainer.train()
    dataset, stream = trainers
    assert same_weights(weights(dataset.model), weights(stream.model))
    assert dataset.corruption_matrices == stream.corruption_matrices
    assert bool(stream.corruption_matrices) == (method != "no_correction")
    assert str(dataset.sources()) == str(stream.sources())


@KINDS
def test_rows_of_a_stream_have_the_labels_of_a_dataset(tmp_path, kind):
    data = with_silent_rows(voted_rows(120)[0])
    labels = np.array(make_trainer(tmp_path, data).train_dataset["label"])
    stream = make_trainer(tmp_path, kind(data, 3)).train_dataset
    rows = list(stream)
    assert 0 < (~used(data)).sum() < 40
    assert [row["label"] for row in rows] == labels[used(data)].tolist()
    assert [row["input_ids"] for row in rows] == np.array(data["input_ids"])[used(data)].tolist()
    assert stream.column_names == (None if kind is python else [*data.column_names, VOTES_KEY])


def test_lists_of_votes_of_a_stream_may_all_be_missing_in_a_part_of_it(tmp_path):
    """The 32 rows that are read at once from a stream of Python objects have no list."""
    data, _ = voted_rows(160)
    lists = [list(votes) for votes in zip(*(data[name] for name in SOURCES), strict=True)]
    lists[64:96] = [None] * 32
    listed = data.remove_columns(SOURCES).add_column("votes", lists)
    where = {"source_columns": None, "votes_column": "votes", "source_names": SOURCES}
    trainers = [make_trainer(tmp_path, rows, **where, **IN_ORDER) for rows in (listed, python(listed, 1))]
    expected = np.array(trainers[0].train_dataset["label"])[
        [votes is not None or flag for votes, flag in zip(lists, data["trusted"], strict=True)]
    ]
    assert [row["label"] for row in trainers[1].train_dataset] == expected.tolist()


@pytest.mark.parametrize("flags", ["per row", "per token"])
def test_votes_on_the_tokens_of_a_stream(tmp_path, flags):
    data = voted_token_rows()
    if flags == "per token":
        lists = [[bool(flag)] * len(row) for flag, row in zip(data["trusted"], data["labels"], strict=True)]
        data = data.remove_columns("trusted").add_column("trusted", lists)
    trained = []
    for rows in (data, python(data, 1)):
        trainer = GLCTrainer(
            token_bert(),
            config(tmp_path, source_columns=["rule", "other"], **IN_ORDER),
            train_dataset=rows,
            data_collator=token_collator(),
        )
        trainer.train()
        trained.append(trainer)
    assert same_weights(*(weights(trainer.model) for trainer in trained))
    assert trained[0].corruption_matrices == trained[1].corruption_matrices


def test_stream_without_flags_is_judged_by_agreement(tmp_path):
    data, _ = voted_rows()
    data = data.remove_columns(["label", "trusted"])
    chosen = {"source_columns": ["good", "fair"], **IN_ORDER}
    trainers = [make_trainer(tmp_path, rows, **chosen) for rows in (data, arrow(data, 1))]
    for trainer in trainers:
        trainer.train()
    labels = [row["labels"] for row in trainers[1].train_dataset]
    assert labels == [
        label
        for label, *votes in zip(trainers[0].train_dataset["labels"], data["good"], data["fair"], strict=True)
        if votes != [None, None]
    ]
    assert trainers[0].corruption_matrices == trainers[1].corruption_matrices
    assert trainers[1].method.has_trusted is False


@pytest.mark.parametrize("columns_are_known", [True, False])
def test_source_of_a_stream_may_have_the_name_of_a_label_column(tmp_path, columns_are_known):
    data, _ = voted_rows(120)
    data = data.rename_column("good", "labels")
    stream = arrow(data, 1) if columns_are_known else IterableDataset.from_generator(lambda: iter(data))
    chosen = {"source_columns": ["labels", *SOURCES[1:]], **IN_ORDER}
    trainers = [make_trainer(tmp_path, rows, **chosen) for rows in (data, stream)]
    assert [trainer.training_data.label_column for trainer in trainers] == ["label", "label"]
    for trainer in trainers:
        trainer.train()
    assert trainers[0].corruption_matrices == trainers[1].corruption_matrices


def test_sources_that_never_saw_the_trusted_rows_of_a_stream_are_rated_by_agreement(tmp_path, caplog):
    data = without_votes_on_trusted_rows(voted_rows(120)[0])
    stream = make_trainer(tmp_path, arrow(data, 1), **IN_ORDER)
    said = "trusted labels, so the accuracy of the sources is estimated from their agreement."
    assert (caplog.text.count(said), caplog.text.count("is trusted")) == (1, 0)
    assert str(stream.sources()) == str(make_trainer(tmp_path, data, **IN_ORDER).sources())
    stream.train()


# ---------------------------------------------------------------------- what reaches the loss
def test_loss_gets_the_likelihood_of_the_votes_and_the_model_does_not(tmp_path, monkeypatch):
    data, _ = voted_rows(64)
    seen, keys = [], set()
    original = StageTrainer.get_batch_samples

    def spy(self, *args):
        batches, number = original(self, *args)
        seen.extend(batch[VOTES_KEY] for batch in batches)
        return batches, number

    monkeypatch.setattr(StageTrainer, "get_batch_samples", spy)
    model = bert()
    model.register_forward_pre_hook(lambda _, args, inputs: keys.update(inputs), with_kwargs=True)
    stream = arrow(data, 1).with_format("torch")
    trainer = GLCTrainer(
        model, config(tmp_path, source_columns=SOURCES, max_steps=4, trusted_share=0), train_dataset=stream
    )
    trainer.train()
    dense = np.array([[-1 if vote is None else vote for vote in data[name]] for name in SOURCES]).T
    votes = voted_streams.Votes.from_dense(dense, tuple(SOURCES))
    expected = trainer.method.sources.log_likelihood(votes)[used(data)]
    np.testing.assert_allclose(torch.cat(seen)[: len(expected)], expected, rtol=1e-5)
    assert keys == {"input_ids", "attention_mask"}


def test_integers_are_read_in_the_same_way_in_every_part_of_a_stream(tmp_path):
    """The classes are called 1, 2 and 3, and the votes are numbers 0 to 2. Only the first row says so."""
    data, _ = voted_rows(96)
    names = ClassLabel(names=["1", "2", "3"])
    data = data.cast_column("label", names)
    first = [0 if row == 0 else vote if vote else None for row, vote in enumerate(data["good"])]
    data = (
        data.remove_columns("good")
        .add_column("good", first)
        .select_columns(["input_ids", "attention_mask", "label", "trusted", "good"])
    )
    trainers = [make_trainer(tmp_path, rows, source_columns=["good"]) for rows in (data, typed(data, 1))]
    expected = [
        label
        for label, flag, vote in zip(trainers[0].train_dataset["label"], data["trusted"], first, strict=True)
        if flag or vote is not None
    ]
    assert [row["label"] for row in trainers[1].train_dataset] == expected


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_likelihood_of_a_row_does_not_depend_on_the_rows_read_with_it(data):
    rows = data.draw(st.integers(1, 40))
    votes = st.none() | st.integers(-1, 2)
    columns: dict[str, list[Any]] = {
        name: data.draw(st.lists(votes, min_size=rows, max_size=rows)) for name in ("a", "b")
    }
    columns["a"][0], columns["b"][0] = 0, 1
    columns["trusted"] = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    columns["label"] = [data.draw(st.integers(0, 2)) if flag else None for flag in columns["trusted"]]
    dataset = Dataset.from_dict(columns)
    args = config("unused", source_columns=["a", "b"])
    streams = [
        voted_streams.label_stream_by_votes(kind(dataset, shards), args, 3, None)
        for kind, shards in ((arrow, 1), (arrow, data.draw(st.integers(1, rows))), (python, 1))
    ]
    whole, *others = (list(stream.dataset) for stream in streams)
    known = [
        flag or any(vote is not None and vote >= 0 for vote in own)
        for flag, *own in zip(columns["trusted"], columns["a"], columns["b"], strict=True)
    ]
    assert len(whole) == sum(known)
    for other in others:
        assert [row["label"] for row in other] == [row["label"] for row in whole]
        np.testing.assert_allclose([row[VOTES_KEY] for row in other], [row[VOTES_KEY] for row in whole], rtol=1e-6)


# ---------------------------------------------------------------------- how much is read before training
def test_only_the_first_rows_are_counted(tmp_path, monkeypatch):
    data, _ = voted_rows(300)
    monkeypatch.setattr(voted_streams, "MAX_ROWS", 150)
    read = 0

    def rows() -> Any:
        nonlocal read
        for row in data:
            read += 1
            yield row

    trainer = make_trainer(tmp_path, IterableDataset.from_generator(rows), **IN_ORDER)
    assert 150 <= read < 200
    alone = make_trainer(tmp_path, data.select(range(150)), **IN_ORDER)
    assert str(trainer.sources()) == str(alone.sources())
    assert len(list(trainer.train_dataset)) == used(data).sum()


def test_warning_if_no_row_that_was_read_is_trusted(tmp_path, monkeypatch, caplog):
    data, _ = voted_rows(100)
    monkeypatch.setattr(voted_streams, "MAX_ROWS", 30)
    last = data.sort("trusted")
    trainer = make_trainer(tmp_path, arrow(last, 1), **IN_ORDER)
    message = (
        "None of the first 30 rows of the stream is trusted: the accuracy of the sources is estimated from their "
        "agreement."
    )
    assert message in caplog.text
    assert caplog.text.count("estimated from their agreement") == 1
    trainer.train()
    with pytest.raises(
        ValueError, match=r"'trusted_only' needs trusted rows, but column 'trusted' marks none of the "
    ):
        make_trainer(tmp_path, arrow(last, 1), method="trusted_only")


def test_stream_that_is_split_among_readers_is_counted_as_a_whole(tmp_path):
    from datasets.distributed import split_dataset_by_node

    data, _ = voted_rows(120)
    whole = make_trainer(tmp_path, arrow(data, 2)).sources()
    for rank in range(2):
        part = split_dataset_by_node(arrow(data, 2), rank=rank, world_size=2)
        trainer = make_trainer(tmp_path, part)
        assert str(trainer.sources()) == str(whole)
        assert len(list(trainer.train_dataset)) < 80


# ---------------------------------------------------------------------- resume and audit
@pytest.mark.parametrize("method", ["glc", "auto"])
def test_resumed_run_on_a_stream_ends_with_the_same_weights(tmp_path, monkeypatch, method):
    monkeypatch.setattr(ModelCardCallback, "save", lambda self, folder: None)  # to save time
    data, _ = voted_rows(120)
    chosen = {"method": method, "max_steps": 6, "save_strategy": "steps", "save_steps": 2, "trusted_share": 0}
    whole = make_trainer(tmp_path / "run", arrow(data), **chosen)
    whole.train()
    resumed = make_trainer(tmp_path / "run", arrow(data), **chosen)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-4"))
    assert same_weights(weights(resumed.model), weights(whole.model))
    assert resumed.corruption_matrices == whole.corruption_matrices
    other = data.remove_columns("useless").add_column("useless", [0] * 120)
    with pytest.raises(ValueError, match="can't resume from .*the training data"):
        make_trainer(tmp_path / "run", arrow(other), **chosen).train(resume_from_checkpoint=True)


def test_audit_of_a_dataset_after_training_on_a_stream(tmp_path):
    data, _ = voted_rows(120)
    trainers = [make_trainer(tmp_path, rows, **IN_ORDER) for rows in (data, arrow(data, 1))]
    for trainer in trainers:
        trainer.train()
    first, second = (trainer.audit(data)["p_wrong"][:] for trainer in trainers)
    assert first == second
    with pytest.raises(TypeError, match="an audit needs a `datasets.Dataset`, not a IterableDataset"):
        trainers[1].audit(arrow(data))


# ---------------------------------------------------------------------- errors
def replaced(data: Dataset, name: str, row: int, value: Any) -> list[Any]:
    """A column with another value in one row."""
    return [value if number == row else old for number, old in enumerate(data[name])]


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("fair", 7, r"row 70.*'fair'.*7|7.*'fair'.*row 70"),
        ("label", None, r"row 70 is trusted, but has no label in column 'label'"),
        ("label", 9, r"label 9 in column 'label', row 70, is not a class"),
    ],
)
@pytest.mark.parametrize("limit", [50, 1000])
def test_bad_value_is_named_with_its_row_before_training_or_when_it_is_read(
    tmp_path, monkeypatch, name, value, match, limit
):
    data, true = voted_rows(100)
    flags = replaced(data, "trusted", 70, True)
    labels = [int(label) for label in true]
    data = data.remove_columns(["trusted", "label"]).add_column("trusted", flags).add_column("label", labels)
    data = data.add_column("new", replaced(data, name, 70, value)).remove_columns(name).rename_column("new", name)
    monkeypatch.setattr(voted_streams, "MAX_ROWS", limit)
    with pytest.raises(ValueError, match=match):  # noqa: PT012
        trainer = make_trainer(tmp_path, python(data, 1), max_steps=10)
        assert limit == 50
        trainer.train()


def test_streams_that_can_not_be_used_raise_with_the_fix(tmp_path):
    data, _ = voted_rows(60)
    cases: list[tuple[Callable[[], Any], dict[str, Any], str]] = [
        (lambda: arrow(data).remove_columns("fair"), {}, "there is no column of source_columns 'fair'"),
        (lambda: IterableDataset.from_generator(lambda: iter(())), {}, "the stream has no rows"),
        (lambda: arrow(data), {"method": "forward"}, "row numbers"),
        (lambda: arrow(data), {"trusted_eval_fraction": 0.5}, "which a stream can't"),
    ]
    for stream, chosen, match in cases:
        with pytest.raises(ValueError, match=match):
            make_trainer(tmp_path, stream(), **chosen)
    with pytest.raises(TypeError, match="soft labels need a `datasets.Dataset`"):
        make_trainer(tmp_path, arrow(data), soft_label_column="probs")
    with pytest.raises(TypeError, match=r"votes of several sources need a `datasets.Dataset` or a"):
        make_trainer(tmp_path, {"train": data})


def test_value_of_another_type_after_the_first_rows_is_an_error_that_names_the_column(tmp_path, monkeypatch):
    data, _ = voted_rows(96)
    rows = list(data)
    rows[70]["fair"] = "unsure"
    for row in rows[64:]:
        row["fair"] = str(row["fair"])
    monkeypatch.setattr(voted_streams, "MAX_ROWS", 40)
    trainer = make_trainer(tmp_path, IterableDataset.from_generator(lambda: iter(rows)), max_steps=10)
    with pytest.raises(
        ValueError, match=r"column 'fair' holds int64 in the first rows of the stream, and string from"
    ):
        trainer.train()


def test_parts_of_a_stream_of_python_objects_have_all_rows():
    data, _ = voted_rows(70)
    for kind in (arrow, python, typed):
        parts = list(batches_of_stream(kind(data, 3)))
        assert [label for part in parts for label in part.column("label").to_pylist()] == data["label"][:]
