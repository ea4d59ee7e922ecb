# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Columns found by their names and types."""

from __future__ import annotations

import pytest
from datasets import ClassLabel, Features, Image, List, Value

from glc_hf.labels.columns import find_columns


TEXT, NUMBER, CLASS, FLAG = Value("string"), Value("int64"), ClassLabel(names=["a", "b"]), Value("bool")
WORDS, TAGS = List(Value("string")), List(ClassLabel(names=["a", "b"]))


def find(features: dict, task: str = "auto", label: str | None = None, **inputs: tuple[str, ...]):
    """With the flags in a column `trusted`."""
    return tuple(find_columns(Features(features), inputs, task, label, "trusted"))


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"text": TEXT, "label": CLASS, "trusted": FLAG}, ("text", ("text",), "label")),
        ({"idx": NUMBER, "sentence": TEXT, "label": NUMBER}, ("text", ("sentence",), "label")),
        ({"title": TEXT, "content": TEXT, "label": NUMBER}, ("text", ("content",), "label")),
        ({"abstract": TEXT, "category": TEXT}, ("text", ("abstract",), "category")),
        ({"premise": TEXT, "hypothesis": TEXT, "label": CLASS}, ("text", ("premise", "hypothesis"), "label")),
        ({"img": Image(), "fine_label": CLASS, "coarse_label": CLASS}, ("image", ("img",), "fine_label")),
        ({"photo": Image(), "animal": CLASS}, ("image", ("photo",), "animal")),
        ({"tokens": WORDS, "pos_tags": TAGS}, ("token", ("tokens",), "pos_tags")),
        ({"text": TEXT, "tokens": WORDS, "ner_tags": TAGS}, ("token", ("tokens",), "ner_tags")),
        ({"text": TEXT, "tokens": WORDS, "label": CLASS}, ("text", ("text",), "label")),
        ({"tokens": WORDS, "tags": WORDS}, ("token", ("tokens",), "tags")),
        ({"tokens": WORDS, "label": CLASS, "ner_tags": TAGS}, ("token", ("tokens",), "ner_tags")),
        ({"tokens": WORDS, "entities": TAGS, "source": CLASS}, ("token", ("tokens",), "entities")),
        ({"text": TEXT, "label": CLASS, "labels": CLASS}, ("text", ("text",), "labels")),
        ({"text": TEXT, "label_ids": NUMBER, "category": CLASS}, ("text", ("text",), "label_ids")),
        ({"text": TEXT, "mood": CLASS, "trusted": CLASS}, ("text", ("text",), "mood")),
    ],
)
def test_usual_columns_are_found(features: dict, expected: tuple) -> None:
    assert find(features) == expected


def test_named_columns_take_precedence() -> None:
    features = {"image": Image(), "text": TEXT, "title": TEXT, "label": CLASS, "mood": CLASS}
    assert find(features, text=("title",), label="mood") == ("text", ("title",), "mood")
    assert find(features, image=("image",)) == ("image", ("image",), "label")
    assert find(features, task="text") == ("text", ("text",), "label")
    pair = find(features, text=("title", "text"))
    assert pair == ("text", ("title", "text"), "label")


@pytest.mark.parametrize(
    ("features", "named", "expected"),
    [
        ({"text": TEXT, "review": TEXT, "label": CLASS}, {}, "--text-column"),
        ({"first": TEXT, "second": TEXT, "label": CLASS}, {}, "name --text-column, --image-column or --tokens-column"),
        ({"text": TEXT, "class": CLASS, "category": CLASS}, {}, "(class, category): name --label-column"),
        ({"text": TEXT, "mood": CLASS, "topic": CLASS}, {}, "(mood, topic): name --label-column"),
        ({"text": TEXT, "score": NUMBER}, {}, "--label-column"),
        ({"image": Image(), "text": TEXT, "label": CLASS}, {}, "image or text"),
        ({"tokens": WORDS, "pos_tags": TAGS, "ner_tags": TAGS}, {}, "--label-column"),
        ({"text": TEXT, "label": CLASS}, {"text": ("txt", None)}, "'txt'"),
        ({"text": TEXT, "label": CLASS}, {"label": "lable"}, "'lable'"),
    ],
)
def test_ambiguous_or_missing_columns_raise_an_error_that_lists_the_columns(
    features: dict, named: dict, expected: str
) -> None:
    with pytest.raises(ValueError) as error:
        find(features, **named)
    assert expected in str(error.value)
    assert f"Columns: {', '.join(features)}." in str(error.value)
