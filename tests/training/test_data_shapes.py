# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training and evaluation sets as people have them: flags, class names, columns, and Python objects."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset, Value
from datasets import IterableDataset as Stream
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset
from transformers import BertForSequenceClassification

from glc_hf import GLCTrainer
from tests.training.tiny import (
    bert,
    bert_config,
    config,
    noisy_text_rows,
    quick_pool,
    same_weights,
    text_rows,
    token_bert,
    token_collator,
    token_rows,
    weights,
)


WORDS = ("dog", "ape", "cat")


class Items(torch.utils.data.Dataset):
    """A torch dataset of tensors."""

    def __init__(self, rows, key="labels"):
        self.rows, self.key = rows, key

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        row = self.rows[number]
        inputs = {name: torch.tensor(row[name]) for name in ("input_ids", "attention_mask")}
        return {**inputs, self.key: torch.tensor(row["label"]), "trusted": row["trusted"]}


class Iterated(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return (self.items[number] for number in range(len(self.items)))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return noisy_text_rows(96).remove_columns("clean_label")


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory) -> dict[str, torch.Tensor]:
    """The weights of a run on a plain `Dataset`."""
    return _trained(tmp_path_factory.mktemp("plain"), data)


def _trained(folder, train_dataset, model=None, eval_dataset=None, **settings):
    model = model or bert()
    GLCTrainer(
        model, config(folder, max_steps=2, **settings), train_dataset=train_dataset, eval_dataset=eval_dataset
    ).train()
    return weights(model)


def _with(data: Dataset, column: str, values: list, name: str | None = None) -> Dataset:
    return data.remove_columns(column).add_column(name or column, values)


# ---------------------------------------------------------------------- flags
@pytest.mark.parametrize("words", [(0, 1), ("no", "yes"), ("False", "true"), (0.0, 1.0), ("n", "Y ")], ids=str)
def test_flags_can_be_numbers_and_words(tmp_path, data, expected, words):
    flags = [words[flag] for flag in data["trusted"]]
    assert same_weights(_trained(tmp_path, _with(data, "trusted", flags)), expected)


def test_evaluation_sets_may_have_missing_and_strange_flags(tmp_path, data, expected):
    held_out = text_rows(6, trusted=None)
    sets = {
        "null": held_out.add_column("trusted", [None] * 6),
        "mixed": held_out.add_column("trusted", ["yes", None] * 3),
        "strange": held_out.add_column("trusted", ["perhaps"] * 6),
        "transformed": held_out.add_column("trusted", [None, True] * 3).with_transform(lambda batch: batch),
        "list": [{**row, "trusted": None if number % 2 else True} for number, row in enumerate(held_out)],
    }
    assert same_weights(_trained(tmp_path, data, eval_dataset=sets), expected)
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=data, eval_dataset=sets)
    metrics = trainer.evaluate()
    assert len({metrics[f"eval_{name}_loss"] for name in sets}) == 1


# ---------------------------------------------------------------------- labels
def _named(data: Dataset) -> Dataset:
    return _with(data, "label", [WORDS[label] for label in data["label"]])


def test_class_names_are_those_of_the_model(tmp_path, data, expected):
    def named_bert():
        return bert(id2label=dict(enumerate(WORDS)), label2id={word: label for label, word in enumerate(WORDS)})

    held_out = _named(text_rows(20, trusted=None))
    assert same_weights(_trained(tmp_path, _named(data), named_bert(), held_out), expected)
    stream = _named(data).to_iterable_dataset()
    by_stream = _trained(tmp_path, stream, named_bert(), trusted_share=0, dataloader_drop_last=True)
    plain = _trained(tmp_path, data.to_iterable_dataset(), trusted_share=0, dataloader_drop_last=True)
    assert same_weights(by_stream, plain)


def test_class_names_that_the_model_does_not_have_are_sorted_and_told(tmp_path, data):
    model, held_out = bert(), text_rows(20, trusted=None)
    with pytest.warns(UserWarning, match=r"'label' holds words.*0 ape, 1 cat, 2 dog.*label2id"):
        trainer = GLCTrainer(model, config(tmp_path), train_dataset=_named(data), eval_dataset=_named(held_out))
    assert model.config.id2label == {0: "ape", 1: "cat", 2: "dog"}
    assert trainer.class_names == ["ape", "cat", "dog"]
    order = [sorted(WORDS).index(WORDS[label]) for label in data["label"]]
    assert trainer.training_data.item_labels("all").tolist() == order
    trainer.train()
    metrics = trainer.evaluate()
    numbers = _with(held_out, "label", [sorted(WORDS).index(WORDS[label]) for label in held_out["label"]])
    for other in (_named(held_out), numbers):
        assert trainer.evaluate(other)["eval_loss"] == metrics["eval_loss"]
        assert trainer.predict(other).metrics["test_loss"] == metrics["eval_loss"]
    audited = trainer.audit(_named(data).select(range(10)), folds=0)
    assert audited["given_label"][:] == order[:10]


def test_class_names_with_model_init_reach_every_new_model(tmp_path, data):
    with pytest.warns(UserWarning, match="holds words"):
        trainer = GLCTrainer(
            model_init=lambda: BertForSequenceClassification(bert_config()),
            args=config(tmp_path, max_steps=1),
            train_dataset=_named(data),
        )
    trainer.train()
    assert trainer.model.config.label2id == {"ape": 0, "cat": 1, "dog": 2}


@pytest.mark.filterwarnings("ignore:column 'label' holds words")
def test_class_names_that_do_not_fit_raise(tmp_path, data):
    named = _named(data)
    with pytest.raises(ValueError, match=r"3 words \(ape, cat, dog\), but the model has 5 classes.*num_labels=3"):
        GLCTrainer(bert(5), config(tmp_path), train_dataset=named)
    spelled = _with(data, "label", ["cat", "Cat ", "dog"] * (len(data) // 3) + ["cat"] * (len(data) % 3))
    with pytest.raises(ValueError, match="3 words .* Only 2 of them differ in more than case and spaces: merge them "):
        GLCTrainer(bert(2), config(tmp_path), train_dataset=spelled)
    with pytest.raises(ValueError, match="every label is the word 'cat'"):
        GLCTrainer(bert(), config(tmp_path), train_dataset=_with(data, "label", ["cat"] * len(data)))
    birds = bert(id2label={0: "ape", 1: "cat", 2: "owl"})
    row = named["label"][:].index("dog")
    with pytest.raises(ValueError, match=rf"train_dataset, row {row}: 'dog' is none of the classes ape, cat, owl"):
        GLCTrainer(birds, config(tmp_path), train_dataset=named)
    with pytest.raises(ValueError, match=r"the model of model_init has the classes ape, cat, owl"):
        GLCTrainer(model_init=lambda: birds, args=config(tmp_path), train_dataset=named)
    with pytest.raises(ValueError, match=r"'label' of the stream holds words.*label2id"):
        GLCTrainer(bert(), config(tmp_path), train_dataset=named.to_iterable_dataset())
    held_out = _with(text_rows(3, trusted=None), "label", ["ape", "owl", "cat"])
    with pytest.raises(ValueError, match=r"row 1: 'owl' is none of the classes ape, cat, dog"):
        GLCTrainer(bert(), config(tmp_path), train_dataset=named, eval_dataset=held_out)


@pytest.mark.parametrize("kind", ["dataset", "torch", "stream", "unknown columns"])
def test_label_names_finds_the_column(tmp_path, data, expected, kind):
    topics = data.rename_column("label", "topic").cast_column("topic", Value("int64"))
    held_out = text_rows(20, trusted=None).rename_column("label", "topic")
    if kind in ("dataset", "torch"):
        rows = topics if kind == "dataset" else Items(data, "topic")
        assert same_weights(_trained(tmp_path, rows, None, held_out, label_names=["topic"]), expected)
        return
    stream = topics.to_iterable_dataset()
    if kind == "unknown columns":
        stream = Stream.from_generator(lambda: iter(topics))
    settings = config(tmp_path, max_steps=2, label_names=["topic"], trusted_share=0)
    trainer = GLCTrainer(bert(), settings, train_dataset=stream, eval_dataset=held_out)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] > 0


# ---------------------------------------------------------------------- Python objects
@pytest.mark.parametrize(
    "kind", ["list", "tensors", "frame", "torch", "label", "subset", "nested", "of_torch", "joined"]
)
def test_python_objects_train_like_a_dataset(tmp_path, data, expected, kind):
    items, everything = Items(data), range(len(data))
    rows = {
        "list": lambda: list(data),
        "tensors": lambda: [items[number] for number in everything],
        "frame": lambda: data.to_pandas(),
        "torch": lambda: items,
        "label": lambda: Items(data, "label"),
        "subset": lambda: Subset(data, everything),
        "nested": lambda: Subset(Subset(data, list(everything)[::-1]), list(everything)[::-1]),
        "of_torch": lambda: Subset(items, everything),
        "joined": lambda: ConcatDataset([Subset(items, everything[:40]), Subset(items, everything[40:])]),
    }[kind]()
    held_out = [dict(row) for row in text_rows(20, trusted=None)]
    assert same_weights(_trained(tmp_path, rows, eval_dataset=held_out), expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_torch_iterable_dataset_trains_like_a_stream(tmp_path, data, workers):
    settings = dict(trusted_share=0, dataloader_num_workers=workers)
    plain = _trained(tmp_path, data.to_iterable_dataset(), trusted_share=0)
    assert same_weights(_trained(tmp_path, Iterated(Items(data)), **settings), plain)


def test_items_of_a_torch_dataset_are_read_again_in_training(tmp_path, data):
    class Augmented(Items):
        read = 0

        def __getitem__(self, number):
            Augmented.read += 1
            return super().__getitem__(number)

    trainer = GLCTrainer(bert(), config(tmp_path, max_steps=2), train_dataset=Augmented(data))
    assert Augmented.read == len(data)
    trainer.train()
    assert Augmented.read > len(data) + 2 * 2 * 16 - 1


def test_features_of_other_items_are_not_taken_from_the_cache(tmp_path, data):
    """Two torch datasets with the same labels and flags have different features."""
    other = data.map(lambda row: {"input_ids": row["input_ids"][::-1], "attention_mask": [1, 1, 0, 0, 0, 0]})
    matrices = []
    with quick_pool(tmp_path):
        for rows in (data, other, Items(data), Items(other)):
            trainer = GLCTrainer(bert(), config(tmp_path, max_steps=1, stage1="probe"), train_dataset=rows)
            trainer.train()
            matrices.append(trainer.corruption_matrix.probs)
    assert not np.allclose(matrices[0], matrices[1])
    np.testing.assert_allclose(matrices[2:], matrices[:2])


@pytest.mark.parametrize(
    ("rows", "settings", "error", "message"),
    [
        ([], {}, ValueError, "train_dataset has no rows"),
        ([1, 2], {}, TypeError, r"item 0 of train_dataset \(a list\) is a int; items are dicts.*'trusted': True"),
        (TensorDataset(torch.ones(2)), {}, TypeError, r"item 0 .*TensorDataset\) is a tuple"),
        (iter([1]), {}, TypeError, r"train_dataset is a list_iterator; .*from_generator"),
        ([{"x": 1, "label": 0}], {}, ValueError, r"there is no column 'trusted'.*mark_trusted"),
        ("torch", {"source_columns": ["a"]}, TypeError, r"source_columns needs the columns.*Dataset\.from_list"),
        ("stream", {"dataloader_num_workers": 2}, ValueError, r"Iterated.*one shard.*dataloader_num_workers=2"),
        ("no flag", {}, ValueError, r"there is no column 'trusted'"),
        ("frame", {}, ValueError, r"column 'trusted' has None in row 1"),
    ],
)
def test_python_objects_that_do_not_fit_raise(tmp_path, data, rows, settings, error, message):
    class Unflagged(Items):
        def __getitem__(self, number):
            return {name: value for name, value in super().__getitem__(number).items() if name != "trusted"}

    if isinstance(rows, str):
        rows = {
            "torch": Items(data),
            "stream": Iterated(Items(data)),
            "no flag": Unflagged(data),
            "frame": pd.DataFrame({"input_ids": [[1], [2]], "label": [0, 1], "trusted": [True, None]}),
        }[rows]
    with pytest.raises(error, match=message):
        GLCTrainer(bert(), config(tmp_path, **settings), train_dataset=rows)


def test_flags_of_words_beside_labels_of_tokens_are_explained(tmp_path):
    rows = token_rows(12)
    words = rows.add_column("trusted", [[True] * (len(labels) - 2) for labels in rows["labels"]])
    with pytest.raises(ValueError, match=r"row 0 has \d labels and \d trusted flags.*align_flags\(batch, encoded\)"):
        GLCTrainer(token_bert(), config(tmp_path), token_collator(), train_dataset=words)
