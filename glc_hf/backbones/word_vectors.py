# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files of word vectors, one word a line, in the form that GloVe has."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from glc_hf.backbones.word_tokenizer import PAD, UNKNOWN, fast_tokenizer


def tokenizer_of_vectors(path: str | Path) -> PreTrainedTokenizerFast:
    """The tokenizer of [`read_word_vectors`] alone."""
    return read_word_vectors(path)[0]


def read_word_vectors(
    path: str | Path, more_words: Iterable[str] = ()
) -> tuple[PreTrainedTokenizerFast, torch.Tensor]:
    """
    Reads a text file, plain or gzipped, whose lines hold a word and its numbers, split by spaces.

    A first line that holds two numbers, as word2vec writes it, is passed over. Of a word that comes twice the first
    vector counts.

    Args:
        path (`str` or `Path`): The file.
        more_words (`Iterable[str]`, *optional*):
            Words that get a vector of their own where the file has none: drawn at random, normal with the variance of
            the file's numbers, the same for a word wherever it is asked for.

    Returns:
        A tokenizer that splits texts at white space and puts them into lower case, and the vectors of its words,
        float32 of shape `(words, dimensions)`: word 0 is `[PAD]` with zeros, word 1 `[UNK]` with the mean of the
        file's vectors.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of word vectors {path}.")
    opener = gzip.open if path.suffix == ".gz" else open
    words: dict[str, int] = {PAD: 0, UNKNOWN: 1}
    rows: list[np.ndarray] = []
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            word, _, numbers = line.rstrip("\n").partition(" ")
            if number == 1 and word.isdigit() and numbers.strip().isdigit():
                continue
            vector = _numbers(numbers, path, number)
            if rows and len(vector) != len(rows[0]):
                raise ValueError(
                    f"{path}, line {number}: {len(vector)} numbers for {word!r}, {len(rows[0])} in the first line."
                )
            if word not in words:
                words[word] = len(words)
                rows.append(vector)
    if not rows:
        raise ValueError(f"{path} holds no word vectors.")
    known = np.stack(rows)
    drawn = [known[:0]]
    for word in map(str.lower, more_words):
        if word not in words:
            words[word] = len(words)
            drawn.append(_drawn(word, known.shape[1]) * known.std())
    vectors = np.concatenate([np.zeros_like(known[:1]), known.mean(axis=0, keepdims=True), known, *drawn])
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return fast_tokenizer(tokenizer), torch.from_numpy(vectors)


def _drawn(word: str, dimensions: int) -> np.ndarray:
    seed = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "little")).standard_normal((1, dimensions), dtype=np.float32)


def _numbers(text: str, path: Path, number: int) -> np.ndarray:
    try:
        vector = np.array(text.split(), dtype=np.float32)
    except ValueError:
        vector = np.empty(0, dtype=np.float32)
    if len(vector) == 0 or not np.isfinite(vector).all():
        raise ValueError(f"{path}, line {number}: a word and its numbers are expected, got {text[:60]!r}.")
    return vector
