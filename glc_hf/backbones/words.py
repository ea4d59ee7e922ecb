# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Vocabularies of whole words, as fast tokenizers that are saved with the model."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast


PAD, UNKNOWN = "[PAD]", "[UNK]"
# A word holds its apostrophes and hyphens ("n't", "film-making"); any other sign stands for itself.
_WORD_SIGN = r"[\w'’\-]"
_WORD_OR_SIGN = rf"{_WORD_SIGN}+|[^\w\s]"
_LETTERS = r"\w"
_LINE_BREAK = r"<br\s*/?>"


def word_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    max_length: int,
    stop_words: Iterable[str] = (),
    letters_only: bool = False,
) -> PreTrainedTokenizerFast:
    """
    A tokenizer of the most frequent words of some texts, in lower case.

    Word 0 is `[PAD]` and word 1 `[UNK]`; the others follow by frequency, those of equal frequency by the alphabet.

    Args:
        texts (`Iterable[str]`): What the vocabulary is taken from: the training texts.
        vocab_size (`int`): Words at most, `[PAD]` and `[UNK]` included.
        max_length (`int`): Words that `truncation=True` keeps of a text and `padding="max_length"` fills up to.
        stop_words (`Iterable[str]`, *optional*): Words that are left out of every text, before it is cut.
        letters_only (`bool`, *optional*, defaults to `False`):
            Whether words are runs of letters and digits alone, and other signs are left out. By default a word holds
            its apostrophes and hyphens, and any other sign is a word of its own.

    Example:

    ```python
    >>> tokenizer = word_tokenizer(["a good film", "a good plot"], vocab_size=10, max_length=4, stop_words=["a"])
    >>> tokenizer("A good end", padding="max_length")["input_ids"]
    [2, 1, 0, 0]
    ```
    """
    if vocab_size < 3:
        raise ValueError(f"vocab_size counts {PAD} and {UNKNOWN} and must leave room for a word, got {vocab_size}.")
    steps = [normalizers.Lowercase(), normalizers.Replace(Regex(_LINE_BREAK), " ")]
    # The longer of two stop words first, or the shorter would match its beginning.
    words = sorted({word.lower() for word in stop_words}, key=lambda word: (-len(word), word))
    left_out = "|".join(map(re.escape, words))
    sign = _LETTERS if letters_only else _WORD_SIGN
    if left_out:
        steps.append(normalizers.Replace(Regex(f"(?<!{sign})(?:{left_out})(?!{sign})"), " "))
    word = f"{_LETTERS}+" if letters_only else _WORD_OR_SIGN
    splits = pre_tokenizers.Split(Regex(word), behavior="removed", invert=True)
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = splits
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=[PAD, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return fast_tokenizer(tokenizer, max_length)


def fast_tokenizer(tokenizer: Tokenizer, max_length: int | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer of transformers around one of `tokenizers` whose first words are `[PAD]` and `[UNK]`."""
    length = {} if max_length is None else {"model_max_length": max_length}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        model_input_names=["input_ids", "attention_mask"],
        **length,
    )


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
