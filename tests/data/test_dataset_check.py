# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A look at a dataset: every problem is found with its count, its rows and its fix, and clean data has none."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.data.data_report import DataReport, Finding
from glc_hf.data.dataset_check import check_dataset
from glc_hf.data.input_checks import Inputs, find_repeated, read_inputs, rows_in_both
from glc_hf.data.label_values import EVAL, TRAIN, skip_missing
from glc_hf.labels.columns import Columns


def rows(number: int = 12, **changes: dict[int, Any]) -> Dataset:
    """Clean rows of two classes, one in three trusted; `column={row: value}` changes single values."""
    columns: dict[str, list[Any]] = {
        "text": [f"text number {row}" for row in range(number)],
        "label": ["ham" if row % 2 else "spam" for row in range(number)],
        "trusted": ["yes" if row % 3 == 0 else "no" for row in range(number)],
    }
    for name, values in changes.items():
        for row, value in values.items():
            columns[name][row] = value
    return Dataset.from_dict(columns)


def finding(report: DataReport, kind: str, part: str = TRAIN) -> Finding:
    """The only finding of a kind."""
    (found,) = [entry for entry in report.findings if (entry.kind, entry.part) == (kind, part)]
    return found


def kinds(report: DataReport) -> list[str]:
    return [entry.kind for entry in report.findings]


def test_clean_data_has_no_findings_and_right_counts() -> None:
    evaluation = Dataset.from_dict({"text": ["new"], "label": ["ham"]})
    report = check_dataset(rows(), evaluation)
    assert report.findings == []
    assert report.short_lines("") == []
    assert (report.rows, report.eval_rows, report.trusted_rows) == (12, 1, 4)
    assert [tuple(entry) for entry in report.classes] == [("ham", 6, 2, 1), ("spam", 6, 2, 0)]


@pytest.mark.parametrize("missing", [None, "", "  "])
def test_missing_labels_and_flags_stop_training(missing: str | None) -> None:
    report = check_dataset(rows(label={1: missing, 7: missing}, trusted={7: missing}))
    labels, flags = finding(report, "missing_labels"), finding(report, "missing_flags")
    assert (labels.severity, labels.count, labels.rows) == ("error", 2, [1, 7])
    assert (flags.severity, flags.count, flags.rows) == ("error", 1, [7])
    value = "" if missing is None else f"; row 1 has {missing!r}"
    assert f"(rows 1, 7{value})" in labels.message
    assert "--on-missing skip" in labels.fix
    with pytest.raises(ValueError, match="2 rows have no label in column 'label' of the training split"):
        report.raise_for_rows()


def test_missing_values_are_warnings_if_they_are_skipped() -> None:
    data = rows(label={1: None, 2: ""}, trusted={7: None})
    report = check_dataset(data, on_missing="skip")
    assert report.errors == []
    report.raise_for_rows()
    kept = skip_missing({TRAIN: data, EVAL: data}, "label", "trusted")
    assert kept[TRAIN]["text"][:] == [text for row, text in enumerate(data["text"]) if row not in (1, 2, 7)]
    assert len(kept[EVAL]) == 10
    assert check_dataset(kept[TRAIN]).findings == []


@pytest.mark.parametrize(
    ("labels", "missing", "wrong"),
    [
        ([0, 1, -1, 0, -5, 1], [2], [4]),
        ([0.0, 1.0, float("nan"), 0.5, 1.0, 0.0], [2], [3]),
        (["0", "1", "NA", "1", "n/a", "0"], [2, 4], []),
    ],
)
def test_numbers_that_are_no_class_are_found(labels: list[Any], missing: list[int], wrong: list[int]) -> None:
    data = Dataset.from_dict({"text": list("abcdef"), "label": labels, "trusted": [True, True, *[False] * 4]})
    report = check_dataset(data)
    assert finding(report, "missing_labels").rows == missing
    assert [entry.rows for entry in report.findings if entry.kind == "wrong_labels"] == ([wrong] if wrong else [])
    assert [entry.name for entry in report.classes] == ["0", "1"]


def test_words_for_missing_values_among_names_are_a_warning() -> None:
    report = check_dataset(rows(label={1: "None", 3: "none"}))
    assert finding(report, "missing_words").rows == [1, 3]
    assert report.errors == []


def test_flags_that_are_marks_and_blanks_are_explained() -> None:
    report = check_dataset(rows(trusted={row: None if row % 3 else "x" for row in range(12)}))
    assert kinds(report) == ["wrong_flags"]
    found = finding(report, "wrong_flags")
    assert "has 'x' in 4 rows (rows 0, 3, 6, 9) and is empty in 8, " in found.message
    assert found.fix == "Write yes in place of 'x', and no in the empty fields."
    two = check_dataset(rows(trusted={row: (None, "x", "y?")[row % 3] for row in range(12)}))
    assert "such as 'x' (rows 1, 2, 4, 5, 7, …)" in finding(two, "wrong_flags").message
    assert finding(two, "missing_flags").fix == "No row has the flag no: write no in the rows that were not checked."


def test_wrong_flags_are_found() -> None:
    found = finding(check_dataset(rows(trusted={2: "maybe"})), "wrong_flags")
    assert (found.severity, found.rows) == ("error", [2])
    assert "'maybe'" in found.message


def test_rows_of_one_kind_stop_methods_that_need_both() -> None:
    none = rows(trusted=dict.fromkeys(range(12), "no"))
    assert kinds(check_dataset(none)) == ["no_trusted_rows"]
    assert kinds(check_dataset(none.remove_columns("trusted"))) == ["no_trusted_rows"]
    assert kinds(check_dataset(none, needs_trusted=False)) == []
    every = rows(trusted=dict.fromkeys(range(12), "yes"))
    assert kinds(check_dataset(every)) == ["no_untrusted_rows"]
    assert kinds(check_dataset(every, needs_untrusted=False)) == []
    only_yes = rows(trusted={row: None for row in range(12) if row % 3})
    assert kinds(check_dataset(only_yes)) == ["missing_flags"]
    assert kinds(check_dataset(only_yes, on_missing="skip")) == ["no_untrusted_rows", "missing_flags"]


def test_a_trusted_dataset_counts_as_trusted_rows() -> None:
    gold = Dataset.from_dict({"text": ["g1", "g2"], "label": ["ham", "spam"]})
    report = check_dataset(rows().remove_columns("trusted"), trusted_dataset=gold)
    assert report.findings == []
    assert (report.rows, report.trusted_rows) == (14, 2)
    assert [tuple(entry) for entry in report.classes] == [("ham", 7, 1, 0), ("spam", 7, 1, 0)]


def test_spellings_are_counted_and_shown() -> None:
    report = check_dataset(rows(label={1: "Ham", 3: " ham", 0: "SPAM"}))
    found = finding(report, "label_spellings")
    assert "5 class names are 2 classes" in found.message
    assert "'ham' = ' ham' = 'Ham'" in found.message
    assert "--normalize-labels" in found.fix


def test_classes_without_trusted_rows_and_with_one_row_are_named() -> None:
    report = check_dataset(rows(label={1: "eggs"}))
    assert "1 of 3 classes has no trusted row: eggs" in finding(report, "classes_without_trusted_rows").message
    assert "eggs" in finding(report, "classes_with_one_row").message


def test_empty_and_repeated_texts_are_found() -> None:
    report = check_dataset(rows(text={1: "", 3: None, 5: " \n", 8: " text  number 0", 10: "text number 2"}))
    assert finding(report, "empty_texts").rows == [1, 3, 5]
    assert finding(report, "duplicates").rows == [8, 10]
    assert "duplicates_with_different_labels" not in kinds(report)


def test_repeated_texts_with_different_labels_are_found_with_an_example() -> None:
    report = check_dataset(rows(text={3: "text number 0", 7: "text number 0"}, label={7: None}), on_missing="skip")
    found = finding(report, "duplicates_with_different_labels")
    assert (found.count, found.rows) == (2, [0, 3])
    assert "row 0 is 'spam', row 3 is 'ham'" in found.message
    assert finding(report, "trusted_duplicates_with_different_labels").rows == [0, 3]


def test_spellings_of_one_class_are_not_different_labels() -> None:
    report = check_dataset(rows(text={2: "text number 0"}, label={2: "Spam "}))
    assert "duplicates" in kinds(report)
    assert "duplicates_with_different_labels" not in kinds(report)


def test_texts_in_training_and_evaluation_are_found() -> None:
    evaluation = Dataset.from_dict({"text": ["new", "text number 4 ", "gold", ""], "label": ["ham"] * 4})
    gold = Dataset.from_dict({"text": ["gold"], "label": ["ham"]})
    report = check_dataset(rows(text={5: ""}).remove_columns("trusted"), evaluation, gold)
    found = finding(report, "eval_overlap", EVAL)
    assert found.rows == [1, 2]
    assert "(50%)" in found.message


def test_evaluation_labels_that_training_lacks_are_found() -> None:
    some = Dataset.from_dict({"text": ["a", "b"], "label": ["ham", "eggs"]})
    assert finding(check_dataset(rows(), some), "unknown_eval_labels", EVAL).severity == "warning"
    other = Dataset.from_dict({"text": ["a", "b"], "label": ["1", "0"]})
    assert finding(check_dataset(rows(), other), "unknown_eval_labels", EVAL).severity == "error"


def test_trusted_rows_need_labels_although_rows_have_votes() -> None:
    data = rows(label={1: None, 3: None}).add_column("rule", ["ham"] * 12)
    found = finding(check_dataset(data, vote_columns=["rule"]), "missing_labels")
    assert (found.count, found.rows) == (1, [3])
    kept = skip_missing({TRAIN: data}, "label", "trusted", votes=True)[TRAIN]
    assert len(kept) == 11
    assert None in kept["label"][:]


def test_pairs_of_texts_are_compared_as_pairs() -> None:
    data = Dataset.from_dict(
        {
            "sentence1": ["a", "b", "a", "a"],
            "sentence2": ["b", "a", "b", ""],
            "label": [0, 1, 1, 0],
            "trusted": [True, True, False, False],
        }
    )
    report = check_dataset(data)
    assert finding(report, "duplicates").rows == [2]
    assert "empty_texts" not in kinds(report)


def test_token_labels_are_checked_per_token() -> None:
    data = Dataset.from_dict(
        {
            "tokens": [["a", "b"], ["c"], ["a", "b"], [], ["a b"]],
            "ner_tags": [[0, 1], [None], [1, 1], [], [-100]],
            "trusted": [[True, False], [True], [False, False], [], [False]],
        },
        features=Features(
            tokens=List(Value("string")), ner_tags=List(ClassLabel(names=["O", "X"])), trusted=List(Value("bool"))
        ),
    )
    report = check_dataset(data)
    assert finding(report, "missing_labels").rows == [1]
    assert finding(report, "duplicates").rows == [2]
    assert finding(report, "duplicates_with_different_labels").rows == [0, 2]
    assert finding(report, "empty_texts").rows == [3]
    assert [tuple(entry) for entry in report.classes] == [("O", 1, 1, 0), ("X", 3, 0, 0)]
    assert len(skip_missing({TRAIN: data}, "ner_tags", "trusted")[TRAIN]) == 4


def test_a_missing_list_of_labels_is_missing() -> None:
    features = Features(tokens=List(Value("string")), tags=List(Value("string")))
    data = Dataset.from_dict({"tokens": [["a"], ["b"], ["c"]], "tags": [["x"], None, ["y"]]}, features=features)
    report = check_dataset(data, needs_trusted=False)
    assert finding(report, "missing_labels").rows == [1]
    assert [entry.train for entry in report.classes] == [1, 1]


def picture(color: int, kind: str = "PNG") -> bytes:
    import PIL.Image

    file = io.BytesIO()
    noise = np.random.default_rng(color).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    PIL.Image.fromarray(noise).save(file, kind)
    return file.getvalue()


def test_unreadable_and_repeated_images_are_found() -> None:
    whole = picture(3, "JPEG")
    images = [picture(0), b"no image", picture(1, "JPEG"), whole[: len(whole) // 2], picture(0), None]
    features = Features(image=Image(), label=ClassLabel(names=["a", "b"]), trusted=Value("bool"))
    data = Dataset.from_dict(
        {
            "image": [None if content is None else {"bytes": content, "path": None} for content in images],
            "label": [0, 1, 0, 1, 1, 0],
            "trusted": [True, True, False, False, False, False],
        },
        features=features,
    )
    report = check_dataset(data)
    found = finding(report, "unreadable_images")
    assert (found.severity, found.rows) == ("error", [1, 3, 5])
    assert finding(report, "duplicates").rows == [4]
    assert finding(report, "duplicates_with_different_labels").rows == [0, 4]
    quick = check_dataset(data, quick=True)
    assert finding(quick, "unreadable_images").rows == [1, 3, 5]
    with pytest.raises(ValueError, match="3 images .*rows 1, 3, 5"):
        quick.raise_for_rows()


def test_paths_of_images_are_opened(tmp_path: Any) -> None:
    (tmp_path / "a.png").write_bytes(picture(0))
    paths = [str(tmp_path / "a.png"), str(tmp_path / "gone.png")]
    data = Dataset.from_dict({"image": paths, "label": [0, 1], "trusted": [True, False]})
    found = finding(check_dataset(data, columns=Columns("image", ("image",), "label")), "unreadable_images")
    assert found.rows == [1]
    assert "gone.png" in found.message


def test_a_column_that_could_be_the_flags_is_named() -> None:
    dataset = rows().rename_column("trusted", "checked").add_column("price", [0.5] * 12)
    assert (
        "there is no column 'trusted'. Column 'checked' could be the flags."
        in finding(check_dataset(dataset), "no_trusted_rows").message
    )
    message = finding(check_dataset(dataset.remove_columns("checked")), "no_trusted_rows").message
    assert "there is no column 'trusted'. The columns are " in message
    assert "price." in message


def test_names_with_blanks_are_quoted() -> None:
    report = check_dataset(rows(label={3: "spam "}))
    assert "1 of 3 classes has only one row: 'spam '." in finding(report, "classes_with_one_row").message


def test_the_report_can_be_written_as_json() -> None:
    report = check_dataset(rows(label={1: None}, text={2: ""}))
    content = json.loads(json.dumps(report.to_dict()))
    assert (content["errors"], content["warnings"], content["rows"]) == (1, 1, 12)
    assert content["findings"][0]["kind"] == "missing_labels"
    assert content["columns"] == {"task": "text", "inputs": ["text"], "label": "label"}


def test_the_short_form_is_limited() -> None:
    report = check_dataset(rows())
    report.findings = [Finding(f"kind {number}", "warning", TRAIN, 1, [0], "m.", "f.") for number in range(9)]
    lines = report.short_lines("glc-hf check a.csv")
    assert len(lines) == 7
    assert lines[-1] == "3 more problems: run `glc-hf check a.csv` with the same options to see them."
    report.findings = report.findings[:7]
    assert len(report.short_lines("glc-hf check a.csv")) == 7


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "a b", "", "c "]), st.integers(-1, 2)), min_size=1, max_size=12),
    st.lists(st.sampled_from(["a", "b ", "", "x"]), max_size=6),
)
def test_repeated_inputs_are_those_of_a_comparison_of_all_pairs(given_rows: list, others: list[str]) -> None:
    texts, labels = [text.strip() for text, _ in given_rows], [label for _, label in given_rows]
    inputs = read_inputs(Dataset.from_dict({"text": [text for text, _ in given_rows]}), ["text"], "text")
    found = find_repeated(inputs, np.array(labels))
    numbers = [row for row, text in enumerate(texts) if text]
    assert found.later.tolist() == [row for row in numbers if texts[row] in texts[:row]]
    disagreeing = [
        row
        for row in numbers
        if labels[row] >= 0
        and any(texts[other] == texts[row] and 0 <= labels[other] != labels[row] for other in numbers)
    ]
    assert found.disagreeing.tolist() == disagreeing
    assert found.num_disagreeing == len({texts[row] for row in disagreeing})
    if found.pair is not None:
        first, second = found.pair
        assert texts[first] == texts[second]
        assert labels[first] != labels[second]
    other_inputs = read_inputs(
        Dataset.from_dict({"text": others}, features=Features(text=Value("string"))), ["text"], "text"
    )
    known = {text.strip() for text in others}
    assert rows_in_both(inputs, [other_inputs]).tolist() == [row for row in numbers if texts[row] in known]


@pytest.mark.parametrize("number", [2, 40])
def test_rows_of_a_shuffled_dataset_are_those_that_the_user_sees(number: int) -> None:
    data = Dataset.from_dict({"text": [str(row % 7) if row % 9 else "" for row in range(60)]})
    chosen = np.random.default_rng(0).permutation(60)[:number]
    selected, flat = data.select(chosen), data.select(chosen).flatten_indices()
    one, other = (read_inputs(part, ["text"], "text") for part in (selected, flat))
    assert isinstance(one, Inputs)
    assert (one.hashes == other.hashes).all()
    assert one.empty.tolist() == other.empty.tolist()
