# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Word-level tokenizers that are saved with the model, and files of word vectors."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast


PAD, UNKNOWN = "[PAD]", "[UNK]"
# Apostrophes and hyphens belong to a word ("n't", "film-making"); any other symbol is a token.
_WORD_CHARACTER = r"[\w'’\-]"
_WORD_OR_SYMBOL = rf"{_WORD_CHARACTER}+|[^\w\s]"
_LETTER = r"\w"
_LINE_BREAK = r"<br\s*/?>"


def word_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    max_length: int,
    stop_words: Iterable[str] = (),
    letters_only: bool = False,
) -> PreTrainedTokenizerFast:
    """
    Build a lower-case tokenizer from the most frequent words of some texts.

    Word 0 is `[PAD]` and word 1 `[UNK]`; the others are sorted by frequency, then alphabetically.

    Args:
        texts (`Iterable[str]`): The texts that define the vocabulary: the training texts.
        vocab_size (`int`): Maximum number of words, including `[PAD]` and `[UNK]`.
        max_length (`int`): Words per text after `truncation=True` and `padding="max_length"`.
        stop_words (`Iterable[str]`, *optional*): Words to remove from every text before truncation.
        letters_only (`bool`, *optional*, defaults to `False`):
            Whether words consist only of letters and digits, and all other symbols are removed. By default apostrophes
            and hyphens belong to their word, and any other symbol is a token.

    Example:

    ```python
    >>> tokenizer = word_tokenizer(["a good film", "a good plot"], vocab_size=10, max_length=4, stop_words=["a"])
    >>> tokenizer("A good end", padding="max_length")["input_ids"]
    [2, 1, 0, 0]
    ```
    """
    if vocab_size < 3:
        raise ValueError(f"vocab_size includes {PAD} and {UNKNOWN} and must leave room for a word, got {vocab_size}.")
    steps = [normalizers.Lowercase(), normalizers.Replace(Regex(_LINE_BREAK), " ")]
    # Longer stop words first: a shorter one could match their beginning.
    removed = "|".join(
        map(re.escape, sorted({word.lower() for word in stop_words}, key=lambda word: (-len(word), word)))
    )
    character, token = (_LETTER, f"{_LETTER}+") if letters_only else (_WORD_CHARACTER, _WORD_OR_SYMBOL)
    if removed:
        steps.append(normalizers.Replace(Regex(f"(?<!{character})(?:{removed})(?!{character})"), " "))
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(token), behavior="removed", invert=True)
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=[PAD, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return _fast_tokenizer(tokenizer, model_max_length=max_length)


def _fast_tokenizer(tokenizer: Tokenizer, **options: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        model_input_names=["input_ids", "attention_mask"],
        **options,
    )


def read_word_vectors(
    path: str | Path, more_words: Iterable[str] = ()
) -> tuple[PreTrainedTokenizerFast, torch.Tensor]:
    """
    Read a text file, plain or gzipped, with a word and its numbers per line, separated by spaces.

    A first line with two numbers, as in word2vec files, is skipped. If a word is repeated, its first vector is used.

    Args:
        path (`str` or `Path`): The file.
        more_words (`Iterable[str]`, *optional*):
            Words that get a random vector if the file has none: normal with the variance of the file's numbers, and
            determined by the word.

    Returns:
        A lower-case tokenizer that splits texts at white space, and the vectors of its words, float32 of shape
        `(words, dimensions)`: word 0 is `[PAD]` with zeros, word 1 is `[UNK]` with the mean of the file's vectors.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no word vector file {path}.")
    opener = gzip.open if path.suffix == ".gz" else open
    words: dict[str, int] = {PAD: 0, UNKNOWN: 1}
    rows: list[np.ndarray] = []
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            word, _, numbers = line.rstrip("\n").partition(" ")
            if number == 1 and word.isdigit() and numbers.strip().isdigit():
                continue
            vector = _parse_numbers(numbers, path, number)
            if rows and len(vector) != len(rows[0]):
                raise ValueError(
                    f"{path}, line {number}: {len(vector)} numbers for {word!r}, but {len(rows[0])} in the first line."
                )
            if word not in words:
                words[word] = len(words)
                rows.append(vector)
    if not rows:
        raise ValueError(f"{path} contains no word vectors.")
    known = np.stack(rows)
    drawn = []
    for word in map(str.lower, more_words):
        if word not in words:
            words[word] = len(words)
            drawn.append(_random_vector(word, known.shape[1]) * known.std())
    vectors = np.concatenate([np.zeros_like(known[:1]), known.mean(axis=0, keepdims=True), known, *drawn])
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _fast_tokenizer(tokenizer), torch.from_numpy(vectors)


def _random_vector(word: str, dimensions: int) -> np.ndarray:
    seed = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "little")).standard_normal((1, dimensions), dtype=np.float32)


def _parse_numbers(text: str, path: Path, number: int) -> np.ndarray:
    try:
        vector = np.array(text.split(), dtype=np.float32)
    except ValueError:
        vector = np.empty(0, dtype=np.float32)
    if len(vector) == 0 or not np.isfinite(vector).all():
        raise ValueError(f"{path}, line {number}: expected a word and its numbers, got {text[:60]!r}.")
    return vector
