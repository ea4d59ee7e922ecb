# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Unusual files: words that look like missing values, unbalanced quotes, one split of any name, uneven lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from glc_hf.cli.data import Rows, load_rows
from glc_hf.cli.model import _max_length
from glc_hf.cli.parsing import parse

from .conftest import text_rows, write_csv


def load(path: Path, *words: Any) -> Rows:
    """Load the rows of a run."""
    return load_rows(parse(["--dataset", str(path), "--model", "some/model", *map(str, words)]))


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_only_split_is_not_also_the_evaluation_split(tmp_path: Path, split: str) -> None:
    write_csv(tmp_path / f"reviews_{split}.csv", text_rows(60))
    rows = load(tmp_path, "--noise", "flip")
    assert (len(rows.train), len(rows.evaluation)) == (54, 6)


def test_a_named_training_split_can_be_used_with_a_trusted_file(tmp_path: Path) -> None:
    parts = {"noisy": Dataset.from_list(text_rows(30)), "other": Dataset.from_list(text_rows(9))}
    DatasetDict(parts).save_to_disk(tmp_path / "data")
    gold = write_csv(tmp_path / "gold.csv", text_rows(12))
    rows = load(tmp_path / "data", "--train-split", "noisy", "--trusted-dataset", gold)
    assert len(rows.train) + len(rows.evaluation) == 42


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_words_that_pandas_reads_as_missing_are_kept(tmp_path: Path, suffix: str) -> None:
    given = [{"text": text, "label": label} for text in ("null", "NA", "n/a", "fine") for label in ("None", "Some")]
    path = tmp_path / f"a.{suffix}"
    Dataset.from_list(given * 3).to_csv(path, sep="\t" if suffix == "tsv" else ",")
    with pytest.warns(UserWarning, match="'label' holds labels None, taken as a class like any other"):
        rows = load(path, "--noise", "flip")
    assert rows.label_names == ["None", "Some"]
    assert set(rows.train["text"]) == {"null", "NA", "n/a", "fine"}


def test_a_missing_label_among_numbers_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"text": "a", "label": label} for label in ("0", "1", "NA")] * 4)
    with pytest.raises(ValueError, match=r"4 rows have no label .*row 2 has 'NA'\).*--on-missing skip"):
        load(path, "--noise", "flip")


def test_an_empty_field_is_a_missing_label(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x\nb,\nc,y\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"1 row has no label in column 'label' .*\(row 1\)"):
        load(path, "--noise", "flip")


def test_an_unbalanced_quote_does_not_swallow_rows_of_a_tsv(tmp_path: Path) -> None:
    given = text_rows(90)
    given[10]["text"] = '"quoted at the start only'
    given[40]["text"] = '"and here'
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{row['text']}\t{row['label']}\n" for row in given), encoding="utf-8")
    rows = load(path, "--noise", "flip")
    assert sorted([*rows.train["text"], *rows.evaluation["text"]]) == sorted(row["text"] for row in given)


def test_quoted_fields_of_a_tsv_are_read(tmp_path: Path) -> None:
    given = text_rows(30)
    given[3]["text"] = 'two\nlines, a\ttab and a "word"'
    Dataset.from_list(given).to_csv(tmp_path / "a.tsv", sep="\t")
    rows = load(tmp_path / "a.tsv", "--noise", "flip")
    assert sorted([*rows.train["text"], *rows.evaluation["text"]]) == sorted(row["text"] for row in given)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"tokens": ["a", "b", "c"], "tags": [0, 1]},
            r"the training split, row 3: 3 words \('tokens'\) have 2 labels",
        ),
        ({"tokens": ["a"], "tags": [0, 1]}, r"the training split, row 3: 1 words \('tokens'\) have 2 labels"),
        ({"tokens": None, "tags": []}, "column 'tokens' of the training split, row 3: there are no words"),
        (
            {"tokens": ["a", None], "tags": [0, 1]},
            "column 'tokens' of the training split, row 3, token 1: a word is missing",
        ),
    ],
)
def test_words_without_labels_raise_an_error_with_the_row(tmp_path: Path, row: dict[str, Any], expected: str) -> None:
    rows = [{"tokens": ["a", "b"], "tags": [0, 1]} for _ in range(12)]
    rows[3] = row
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=expected):
        load(tmp_path / "a.parquet", "--noise", "flip")


class _Tokenizer:
    def __init__(self, model_max_length: int) -> None:
        self.model_max_length = model_max_length


SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 10}


@pytest.mark.parametrize(
    ("model", "tokenizer_length", "length"),
    [
        (BertModel(BertConfig(max_position_embeddings=24, **SIZES)), 10**30, 24),
        (BertModel(BertConfig(max_position_embeddings=24, **SIZES)), 512, 24),
        (BertModel(BertConfig(max_position_embeddings=24, **SIZES)), 16, 16),
        (RobertaModel(RobertaConfig(max_position_embeddings=24, pad_token_id=1, **SIZES)), 10**30, 22),
    ],
    ids=["unknown to the tokenizer", "too many for the model", "too many for the tokenizer", "roberta"],
)
def test_texts_are_truncated_to_what_model_and_tokenizer_accept(
    model: Any, tokenizer_length: int, length: int
) -> None:
    import torch

    assert _max_length(None, _Tokenizer(tokenizer_length), model) == length
    model(input_ids=torch.full((1, length), 5))  # the model accepts it
    assert _max_length(8, _Tokenizer(tokenizer_length), model) == 8
    with pytest.raises(ValueError, match="--max-length 25: the model has positions for 2[24] tokens"):
        _max_length(25, _Tokenizer(tokenizer_length), model)
