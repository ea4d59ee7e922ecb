# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from glc_hf.backbones import read_word_vectors, word_tokenizer


TEXTS = ["A good film , a GOOD plot", "the plot does n't hold", "good<br />film-making's end"]


def test_words_are_numbered_by_frequency_after_padding_and_unknown() -> None:
    tokenizer = word_tokenizer(TEXTS, vocab_size=100, max_length=8)
    vocabulary = tokenizer.get_vocab()
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 1)
    assert vocabulary["good"] == 2
    assert {vocabulary["a"], vocabulary["plot"]} == {3, 4}
    assert {"n't", "film-making's", ","} <= set(vocabulary)
    assert "br" not in vocabulary


def test_only_the_most_frequent_words_are_kept() -> None:
    tokenizer = word_tokenizer(TEXTS, vocab_size=5, max_length=8)
    assert len(tokenizer) == 5
    assert tokenizer("good end").input_ids == [2, 1]


def test_texts_are_truncated_and_padded_to_max_length() -> None:
    tokenizer = word_tokenizer(TEXTS, vocab_size=100, max_length=4)
    rows = tokenizer(["good", "good plot good plot good"], truncation=True, padding="max_length")
    plot = tokenizer.get_vocab()["plot"]
    assert rows.input_ids == [[2, 0, 0, 0], [2, plot, 2, plot]]
    assert rows.attention_mask == [[1, 0, 0, 0], [1, 1, 1, 1]]


def test_stop_words_are_removed_as_whole_words_before_truncation() -> None:
    tokenizer = word_tokenizer(TEXTS, vocab_size=100, max_length=2, stop_words=["A", "the", "th"])
    assert not {"a", "the"} & set(tokenizer.get_vocab())
    kept = tokenizer("the a plot , THE a-good theory a", truncation=True)
    assert kept.tokens() == ["plot", ","]
    # A stop word inside a word is kept.
    assert tokenizer("a-good theory").input_ids == [1, 1]
    assert tokenizer("the a").input_ids == []


def test_letters_only_removes_symbols() -> None:
    texts = ["it is n't good , is it ?", "well-made - n't"]
    tokenizer = word_tokenizer(texts, vocab_size=100, max_length=9, stop_words=["it", "t"], letters_only=True)
    assert tokenizer(texts[0]).tokens() == ["is", "n", "good", "is"]
    assert tokenizer(texts[1]).tokens() == ["well", "made", "n"]


def test_saved_tokenizer_gives_the_same_ids(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(TEXTS, vocab_size=100, max_length=6, stop_words=["a", "the"])
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS, "an unseen word", "the"]
    options = {"truncation": True, "padding": "max_length"}
    assert dict(loaded(texts, **options)) == dict(tokenizer(texts, **options))
    assert loaded.model_max_length == 6


def test_vocabulary_without_room_for_words_raises() -> None:
    with pytest.raises(ValueError, match="leave room for a word, got 2"):
        word_tokenizer(TEXTS, vocab_size=2, max_length=4)


def test_words_missing_in_the_file_get_random_vectors(tmp_path: Path) -> None:
    numbers = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 3
    lines = [f"w{number} {' '.join(map(str, row.tolist()))}" for number, row in enumerate(numbers)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines), encoding="utf-8")
    _, alone = read_word_vectors(tmp_path / "vectors.txt")
    tokenizer, vectors = read_word_vectors(tmp_path / "vectors.txt", ["<@MENTION>", "w3", "i'm", "<@mention>"])
    assert torch.equal(vectors[:52], alone)
    assert vectors.shape == (54, 40)
    assert tokenizer("<@MENTION> w3 I'm who").input_ids == [52, 5, 53, 1]
    assert vectors[52:].std().item() == pytest.approx(3, rel=0.2)
    _, other = read_word_vectors(tmp_path / "vectors.txt", ["more", "i'm"])
    assert torch.equal(other[53], vectors[53])


VECTORS = "the 0.5 1\ncat -1 2e-1\nthe 9 9\n"


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_vector_file_gives_tokenizer_and_vectors(name: str, tmp_path: Path) -> None:
    data = VECTORS.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    tokenizer, vectors = read_word_vectors(tmp_path / name)
    expected = torch.tensor([[0, 0], [-0.25, 0.6], [0.5, 1], [-1, 0.2]])
    torch.testing.assert_close(vectors, expected)
    assert tokenizer("The dog cat").input_ids == [2, 1, 3]
    tokenizer.save_pretrained(tmp_path / "saved")
    assert AutoTokenizer.from_pretrained(tmp_path / "saved")("The dog cat").input_ids == [2, 1, 3]


def test_word2vec_header_line_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("2 2\n" + VECTORS)
    assert read_word_vectors(tmp_path / "vectors.txt")[1].shape == (4, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\ncat 1\n", "line 2: 1 numbers for 'cat', but 2 in the first line"),
        ("the 1 2\ncat 1 x\n", "line 2: expected a word and its numbers"),
        ("the 1 nan\n", "line 1: expected a word and its numbers"),
        ("", "contains no word vectors"),
    ],
)
def test_invalid_vector_files_raise_and_name_the_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_word_vectors(tmp_path / "vectors.txt")


def test_missing_vector_file_raises_and_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no word vector file .*nowhere.txt"):
        read_word_vectors(tmp_path / "nowhere.txt")
