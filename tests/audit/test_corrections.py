# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Decisions applied to datasets: what changes, what stays, and which row an error names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, Image, List, Value, concatenate_datasets
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PILImage

from glc_hf import apply_decisions
from glc_hf.audit.corrections import correct_labels
from glc_hf.audit.dataset_file import fingerprint, row_checks
from glc_hf.audit.decisions import Decision, Decisions


NAMES = ["cat", "cow", "dog"]


def _dataset(label: Any = None, values: list[Any] | None = None, **columns: list[Any]) -> Dataset:
    values = values or ["cat", "dog", "cow", "cat"]
    texts = [f"text {n}" for n in range(len(values))]
    features = {"text": Value("string"), "label": label or Value("string")}
    columns = {"text": texts, "label": values, **columns}
    dataset = Dataset.from_dict({name: columns[name] for name in features}, features=Features(features))
    for name in columns.keys() - features.keys():
        dataset = dataset.add_column(name, columns[name])
    return dataset


def _decisions(dataset: Dataset, entries: list[Decision], names: list[str] | None = NAMES) -> Decisions:
    """Decisions as a page on this dataset saves them."""
    checks = row_checks(dataset, ["text", "label"])
    entries = [entry._replace(check=checks[entry.row]) for entry in entries]
    return Decisions(entries, names, 3, fingerprint(checks), len(dataset), ["text"], "label")


ENTRIES = [
    Decision(1, None, "suggested", "cow", "dog"),
    Decision(3, None, "keep", "cat", "cat"),
    Decision(2, None, "skip"),
]


def test_labels_flags_and_sources_change_and_nothing_else() -> None:
    dataset = _dataset(score=[0.5, 0.1, None, 1e-17], id=[7, 7, 7, 9])
    corrections = correct_labels(dataset, _decisions(dataset, ENTRIES))
    result = corrections.dataset
    assert result["label"][:] == ["cat", "cow", "cow", "cat"]
    assert result["trusted"][:] == [False, True, False, True]
    assert result["label_source"][:] == ["given", "reviewed", "given", "reviewed"]
    assert result.column_names == [*dataset.column_names, "trusted", "label_source", "original_label"]
    assert {name: result.features[name] for name in dataset.column_names} == dict(dataset.features)
    rest = [name for name in dataset.column_names if name != "label"]
    assert result.select_columns(rest)[:] == dataset.select_columns(rest)[:]
    assert corrections[1:5] == (2, 1, 0, 1)
    assert dataset["label"][:] == ["cat", "dog", "cow", "cat"]
    assert apply_decisions(dataset, _decisions(dataset, ENTRIES))[:] == result[:]


@pytest.mark.parametrize(
    ("feature", "values", "names", "expected"),
    [
        (ClassLabel(names=["dog", "cat", "cow"]), [1, 0, 2, 1], NAMES, 2),
        (Value("int64"), [0, 2, 1, 0], NAMES, 1),  # numbers of the classes
        (Value("float64"), [0.0, 2.0, None, 0.0], NAMES, 1.0),
    ],
)
def test_names_become_what_the_column_holds(feature: Any, values: list[Any], names: Any, expected: Any) -> None:
    dataset = _dataset(feature, values)
    result = apply_decisions(dataset, _decisions(dataset, ENTRIES, names))
    assert result.features["label"] == feature
    assert result["label"][:] == [values[0], expected, *values[2:]]


def test_numbers_that_are_names_and_classes_without_names() -> None:
    years = _dataset(Value("int32"), [2001, 2003, 2002, 2001])
    entry = [Decision(0, None, "class", "2002", "2001")]
    assert apply_decisions(years, _decisions(years, entry, ["2001", "2002", "2003"]))["label"][0] == 2002
    plain = _dataset(Value("int64"), [0, 0, 1, 1])
    result = apply_decisions(plain, _decisions(plain, [Decision(0, None, "class", 2, 0)], None))
    assert result["label"][:] == [2, 0, 1, 1]
    flags = _dataset(Value("bool"), [True, False, True, True])
    entry = [Decision(0, None, "class", "False", "True")]
    assert apply_decisions(flags, _decisions(flags, entry, ["False", "True"]))["label"][0] is False


@pytest.mark.parametrize("trusted", [["yes", "no", "No", "Y"], [1, 0, 0, 1], [True, False, False, True]])
def test_flags_of_any_kind_stay_what_they_mean(trusted: list[Any]) -> None:
    result = apply_decisions(_dataset(trusted=trusted), [{"row": 1, "label": "cat"}])
    assert result["trusted"][:] == [True, True, False, True]
    assert result.column_names == ["text", "label", "trusted", "label_source", "original_label"]


def test_missing_labels_and_flags_stay_missing() -> None:
    dataset = _dataset(values=["cat", None, "cow", "dog"], trusted=[None, "no", "yes", None])
    result = apply_decisions(dataset, [{"row": 1, "label": "cat"}, {"row": 3, "label": "dog"}])
    assert result["label"][:] == ["cat", "cat", "cow", "dog"]
    assert result["trusted"][:] == [None, True, True, True]


def test_labels_that_were_normalized_for_training_fit_and_keep_their_spelling() -> None:
    dataset = _dataset(values=["Cat ", "DOG", "cow", "cat"])
    entries = [Decision(0, None, "keep", "cat", "cat"), Decision(1, None, "suggested", "cow", "dog")]
    assert apply_decisions(dataset, _decisions(dataset, entries))["label"][:] == ["Cat ", "cow", "cow", "cat"]
    # Names that differ only in case can be different classes.
    dataset = _dataset(values=["us", "US", "us", "US"])
    result = apply_decisions(dataset, _decisions(dataset, [Decision(0, None, "class", "US", "us")], ["US", "us"]))
    assert result["label"][:] == ["US", "US", "us", "US"]


def test_rows_with_votes_get_the_labels_of_people() -> None:
    votes = _dataset(values=["cat", None, None, None]).add_column("votes", [[0, 1]] * 4)
    entries = [Decision(1, None, "keep", "dog", "dog"), Decision(0, None, "class", "cow", "dog")]
    decisions = Decisions(entries, NAMES, 3, label_column="label", from_votes=True)
    result = apply_decisions(votes, decisions)
    assert result["label"][:] == ["cow", "dog", None, None]
    assert result["trusted"][:] == [True, True, False, False]
    decisions = Decisions(entries, NAMES, 3, from_votes=True)
    result = apply_decisions(votes.remove_columns("label"), decisions)
    assert result["label"][:] == ["cow", "dog", None, None]
    assert result.column_names == ["text", "votes", "label", "trusted", "label_source"]


def test_a_second_round_keeps_the_sources_of_the_first() -> None:
    first = apply_decisions(_dataset(), [{"row": 0, "label": "dog"}])
    second = apply_decisions(first, [{"row": 1, "label": "dog"}])
    assert second["label_source"][:] == ["reviewed", "reviewed", "given", "given"]
    assert second["trusted"][:] == [True, True, False, False]
    assert second.column_names == first.column_names
    with pytest.raises(ValueError, match="'label_source' of its own, 'crowd' in row 0: rename it"):
        apply_decisions(_dataset(label_source=["crowd"] * 4), [])


def test_token_labels_are_corrected_and_trusted_per_word() -> None:
    features = Features(
        {"tokens": List(Value("string")), "tags": List(ClassLabel(names=NAMES)), "trusted": Value("bool")}
    )
    rows = {"tokens": [["a", "b"], [], ["c"]], "tags": [[0, -100], [], [2]], "trusted": [False, False, True]}
    dataset = Dataset.from_dict(rows, features=features)
    result = apply_decisions(dataset, [{"row": 0, "word": 0, "label": "dog"}])
    assert result["tags"][:] == [[2, -100], [], [2]]
    assert result["trusted"][:] == [[True, False], [], [True]]
    assert result["label_source"][:] == [["reviewed", "given"], [], ["given"]]
    assert result.features["tags"] == features["tags"]
    with pytest.raises(ValueError, match="row 2, word 1: the row has 1 words"):
        apply_decisions(dataset, [{"row": 2, "word": 1, "label": "dog"}])
    with pytest.raises(ValueError, match="row 2: its labels are a list; the decision must name the word"):
        apply_decisions(dataset, [{"row": 2, "label": "dog"}])
    with pytest.raises(ValueError, match="row 2, word 0: the rows of this dataset have one label each"):
        apply_decisions(_dataset(), [{"row": 2, "word": 0, "label": "dog"}])


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=12), st.data())
def test_any_decisions_on_a_shuffled_or_joined_dataset(values: list[str], data) -> None:
    size = len(values)
    dataset = _dataset(values=values)
    if data.draw(st.booleans()):
        dataset = dataset.select(data.draw(st.permutations(range(size))))
    if data.draw(st.booleans()):
        dataset = concatenate_datasets([dataset, dataset])
    before = dataset[:]
    rows = data.draw(st.sets(st.integers(0, len(dataset) - 1)))
    present = sorted(set(values))
    entries = [{"row": row, "label": data.draw(st.sampled_from(present))} for row in rows]
    result = apply_decisions(dataset, entries)
    chosen = {entry["row"]: entry["label"] for entry in entries}
    assert result["text"][:] == before["text"]
    assert result["label"][:] == [chosen.get(row, label) for row, label in enumerate(before["label"])]
    assert result["trusted"][:] == [row in chosen for row in range(len(dataset))]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Decision(4, None, "class", "dog", "cat"), "row 4: the dataset has no such row, it has 4 rows"),
        (Decision(1, None, "class", "dgo", "dog"), "row 1: 'dgo' is none of the classes cat, cow, dog"),
        (Decision(1, None, "keep", "cat", "cat"), "row 1: the given label was 'cat', but column 'label' has 'dog'"),
    ],
)
def test_decisions_that_do_not_fit_name_the_row(entry: Decision, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply_decisions(_dataset(), Decisions([entry], NAMES))


def test_decisions_of_another_dataset_name_a_row_that_differs() -> None:
    dataset = _dataset()
    decisions = _decisions(dataset, ENTRIES)
    other = dataset.map(lambda row: {"text": row["text"].replace("3", "three")})
    with pytest.raises(ValueError, match="row 3: the row has other content .*text, label.* another dataset"):
        apply_decisions(other, decisions)
    with pytest.raises(ValueError, match="had a column|has a column 'text', this one has body"):
        apply_decisions(dataset.rename_column("text", "body"), decisions)
    longer = concatenate_datasets([dataset, _dataset()])
    with pytest.raises(ValueError, match="other rows differ. It had 4 rows, now 8"):
        apply_decisions(longer, decisions)
    assert len(apply_decisions(longer, decisions, force=True)) == 8
    with pytest.raises(ValueError, match="row 3: the row has other content"):
        apply_decisions(other, decisions, force=True)


def test_row_checks_do_not_depend_on_the_format_of_the_file(tmp_path: Path) -> None:
    named = _dataset()
    classes = named.cast_column("label", ClassLabel(names=["dog", "cow", "cat"]))
    assert row_checks(named, ["text", "label"]) == row_checks(classes, ["text", "label"])
    assert row_checks(_dataset(Value("int64"), [1, 2, 3, 1]), ["label"]) == row_checks(
        _dataset(Value("float64"), [1.0, 2.0, 3.0, 1.0]), ["label"]
    )
    checks = row_checks(named, ["text", "label"])
    assert len(set(checks)) == 4
    assert row_checks(_dataset(values=["Cat", "dog ", "COW", "cat"]), ["text", "label"]) == checks
    assert row_checks(named.select([2, 0]), ["text", "label"]) == [checks[2], checks[0]]
    assert (
        row_checks(_dataset(values=["a", "b"], x=["", "c"]), ["label", "x"])[0]
        != row_checks(_dataset(values=["", "b"], x=["a", "c"]), ["label", "x"])[0]
    )
    PILImage.new("RGB", (4, 4)).save(tmp_path / "a.png")
    images = Dataset.from_dict({"image": [str(tmp_path / "a.png")]}).cast_column("image", Image())
    assert len(row_checks(images, ["image"])) == 1


def _audit(path: Path, dataset: Dataset, **columns: Any) -> Path:
    frame = dataset.to_pandas()
    frame.insert(0, "row", range(len(frame)))
    frame["given_label"] = frame.label
    for name, values in columns.items():
        frame[name] = values
    frame.to_csv(path, index=False)
    return path


def test_probable_suggestions_are_taken_without_review_and_not_trusted(tmp_path: Path) -> None:
    dataset = _dataset()
    suggested, p_wrong = ["dog", "cat", "cow", "cow"], [0.95, 0.99, 0.99, 0.6]
    audit = _audit(tmp_path / "audit.csv", dataset, suggested_label=suggested, p_wrong=p_wrong)
    corrections = correct_labels(dataset, [], auto_fix=0.95, audit=audit)
    assert corrections.dataset["label"][:] == ["dog", "cat", "cow", "cat"]
    assert corrections.dataset["label_source"][:] == ["suggested", "suggested", "given", "given"]
    assert corrections.dataset["trusted"][:] == [False] * 4
    assert corrections.suggested == 2
    # A person's word counts more, also the one to leave the row open.
    decisions = [{"row": 0, "label": "cat"}, {"row": 1, "decision": "skip"}]
    result = apply_decisions(dataset, decisions, auto_fix=0.95, audit=audit)
    assert result["label"][:] == ["cat", "dog", "cow", "cat"]
    assert result["label_source"][:] == ["reviewed", "given", "given", "given"]
    # `is_label_issue`, where there is one, must agree.
    audit = _audit(
        audit, dataset, suggested_label=suggested, p_wrong=p_wrong, is_label_issue=[True, False, False, True],
        label_score=1 - np.array(p_wrong),
    )  # fmt: skip
    assert apply_decisions(dataset, [], auto_fix=0.5, audit=audit)["label"][:] == ["dog", "dog", "cow", "cow"]
    pd.read_csv(audit).drop(columns="row").to_parquet(tmp_path / "audit.parquet")
    for place in (tmp_path, tmp_path / "audit.parquet"):
        assert apply_decisions(dataset, [], auto_fix=0.5, audit=place)["label"][:] == ["dog", "dog", "cow", "cow"]


def test_suggestions_for_words(tmp_path: Path) -> None:
    dataset = Dataset.from_dict({"tokens": [["a", "b"], ["c"]], "label": [["cat", "dog"], ["cow"]]})
    audit = tmp_path / "audit.csv"
    audit.write_text(
        'row,given_label,suggested_label,p_wrong\n0,"[""cat"", ""dog""]","[""cat"", ""cow""]","[0.1, 0.9]"\n'
        '1,"[""cow""]","[""cow""]",[null]\n'
    )
    assert apply_decisions(dataset, [], auto_fix=0.9, audit=audit)["label"][:] == [["cat", "cow"], ["cow"]]


def test_audits_that_do_not_fit_name_the_row(tmp_path: Path) -> None:
    dataset, path = _dataset(), tmp_path / "audit.csv"
    findings = {"suggested_label": ["dog"] * 4, "p_wrong": [0.9] * 4}
    other = dataset.map(lambda row: {"text": row["text"].replace("2", "two")})
    for audited, message in (
        (other, "row 2: column 'text' has other text"),
        (_dataset(values=["cat", "dog", "dog", "cat"]), "row 2: column 'label' has other text"),
    ):
        with pytest.raises(ValueError, match=message):
            apply_decisions(dataset, [], auto_fix=0.5, audit=_audit(path, audited, **findings))
    with pytest.raises(ValueError, match="row 3: the dataset has no such row, it has 3 rows"):
        apply_decisions(dataset.select(range(3)), [], auto_fix=0.5, audit=_audit(path, dataset, **findings))
    findings["suggested_label"] = ["dog", "dog", "horse", "cat"]
    with pytest.raises(ValueError, match="row 2: 'horse' is none of the classes"):
        apply_decisions(dataset, [], auto_fix=0.5, audit=_audit(path, dataset, **findings))
    with pytest.raises(ValueError, match="no column 'suggested_label'"):
        apply_decisions(dataset, [], auto_fix=0.5, audit=_audit(path, dataset))
    path.write_text("row,given_label,suggested_label,p_wrong\n0,cat,dog,0.9\n1,cat,dog,0.x\n")
    with pytest.raises(ValueError, match="line 3: p_wrong is '0.x'"):
        apply_decisions(dataset, [], auto_fix=0.5, audit=path)
    with pytest.raises(ValueError, match="give both or none"):
        apply_decisions(dataset, [], auto_fix=0.5)
    for bad in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="is a probability"):
            apply_decisions(dataset, [], auto_fix=bad, audit=path)
    with pytest.raises(FileNotFoundError, match="there is no audit"):
        apply_decisions(dataset, [], auto_fix=0.5, audit=tmp_path / "nothing.csv")
