# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Noisy labels drawn from probabilities by integer thresholds, on numpy arrays.

A random 40-bit word u draws class j of a distribution p if T[j−1] ≤ u < T[j], where T[j] = round(2⁴⁰ · Σ_{k≤j} p[k]).
Everything after the rounding is integer arithmetic, so a class of probability zero is never drawn and the last class
never overflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.randomness import check_seed, uniform_bits


if TYPE_CHECKING:
    from collections.abc import Callable

    from glc_hf.labels.row_batch import RowBatch
    from glc_hf.labels.row_index import Chunk
    from glc_hf.matrix import CorruptionMatrix


_BITS = 40
_TABLE_BITS = 12
_THRESHOLDS_AT_ONCE = 2**22
_MAX_CLASSES_OF_TABLE = 64  # with more, the table outgrows the cache and decides fewer words


class Noise:
    """
    A source of noisy labels. `begin` is called once, then `prepare` and `draw` for each chunk. A source keeps no state
    between chunks: `datasets` reads the shards of a shuffled stream in threads, which share one source.

    Attributes:
        num_labels: K; `None` until it is known (for a model: until its first logits).
        chunk_size: Labels per chunk; `None` for the default.
        rows_only: Whether `chunk_size` counts rows, even if rows are lists.
        source: Name of the source in messages.
    """

    num_labels: int | None = None
    chunk_size: int | None = None
    rows_only = False
    source: str

    def begin(self, num_rows: int, num_values: int, in_lists: bool) -> None:
        """Called once with the number of rows and labels, and whether labels are lists."""

    def prepare(self, chunk: Chunk, batch: RowBatch) -> Any:
        """Return what `draw` needs for a chunk of the batch."""

    def draw(
        self,
        prepared: Any,
        labels: np.ndarray,
        index: np.ndarray,
        position: np.ndarray | None,
        used: np.ndarray,
        name: Callable[[int], str],
    ) -> np.ndarray:
        """
        Draw one noisy label for each label.

        Args:
            prepared: Result of `prepare` for these labels.
            labels (`np.ndarray` of integers): True classes, all in 0…K−1.
            index (`np.ndarray` of int64): Row index of each label.
            position (`np.ndarray` of int64, *optional*): Position of each label in its row.
            used (`np.ndarray` of bool): Where the result is used.
            name (`Callable`): Returns the n-th label's name for messages.
        """
        raise NotImplementedError


def thresholds(weights: np.ndarray) -> np.ndarray:
    """Return T (see the module) for each row of non-negative `weights` (…, K), which need not sum to one; uint64."""
    cumulative = np.cumsum(weights, axis=-1, dtype=np.float64)
    # The last sum divided by itself is exactly one, and so is each sum from the last possible class on, because adding
    # zeros changes nothing. So trailing classes of probability zero get an empty interval.
    cumulative /= cumulative[..., -1:]
    cumulative *= 2.0**_BITS
    np.rint(cumulative, out=cumulative)
    return cumulative.astype(np.uint64)


class MatrixNoise(Noise):
    """
    Noisy labels from the rows of a corruption matrix.

    The thresholds of all rows are in one sorted array, those of row i increased by i · 2⁴⁰, so one binary search over
    K² numbers serves labels of all classes at once. With few classes a table usually replaces the search: the first 12
    bits of a word almost always decide its class.
    """

    source = "the corruption matrix"

    num_labels: int

    def __init__(self, matrix: CorruptionMatrix, seed: int) -> None:
        self.num_labels = matrix.num_labels
        self._seed = check_seed(seed)
        lift = np.arange(self.num_labels, dtype=np.uint64) << np.uint64(_BITS)
        by_class = np.empty(matrix.probs.shape, dtype=np.uint64)
        for part in np.array_split(np.arange(self.num_labels), -(-(self.num_labels**2) // _THRESHOLDS_AT_ONCE)):
            by_class[part] = thresholds(matrix.probs[part]) + lift[part, None]
        self._thresholds = by_class.ravel()
        self._table = self._decided() if self.num_labels <= _MAX_CLASSES_OF_TABLE else None

    def _decided(self) -> np.ndarray:
        """Return the noisy class for each class and first 12 bits of a word; -1 where later bits decide."""
        first = np.arange(self.num_labels << _TABLE_BITS, dtype=np.uint64) << np.uint64(_BITS - _TABLE_BITS)
        last = first + np.uint64((1 << (_BITS - _TABLE_BITS)) - 1)
        at_first = np.searchsorted(self._thresholds, first, side="right")
        at_last = np.searchsorted(self._thresholds, last, side="right")
        base = np.repeat(np.arange(self.num_labels) * self.num_labels, 1 << _TABLE_BITS)
        return np.where(at_first == at_last, at_first - base, -1).astype(np.int32)

    def draw(
        self,
        prepared: Any,
        labels: np.ndarray,
        index: np.ndarray,
        position: np.ndarray | None,
        used: np.ndarray,
        name: Callable[[int], str],
    ) -> np.ndarray:
        keys = labels.astype(np.uint64)
        keys <<= np.uint64(_BITS)
        keys |= uniform_bits("corrupt_labels", self._seed, index, position, bits=_BITS)
        if self._table is None:
            return self._search(keys, labels)
        noisy = self._table[(keys >> np.uint64(_BITS - _TABLE_BITS)).view(np.int64)]
        undecided = np.flatnonzero(noisy < 0)
        noisy[undecided] = self._search(keys[undecided], labels[undecided])
        return noisy

    def _search(self, keys: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._thresholds, keys, side="right") - np.multiply(
            labels, self.num_labels, dtype=np.int64
        )


def sample_from_logits(
    logits: np.ndarray, temperature: float, seed: int, index: np.ndarray, position: np.ndarray | None
) -> np.ndarray:
    """
    Draw one class per row from softmax(logits / temperature).

    Args:
        logits (`np.ndarray` of shape `(N, K)`): No NaN, no +inf; −inf is a class of probability zero.
        temperature (`float`): Above zero; higher is closer to uniform.
        seed, index, position: As in [`~glc_hf.randomness.random_uint64`].
    """
    scores = logits.astype(np.float64)
    scores /= temperature
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    words = uniform_bits("weak_labels", seed, index, position, bits=_BITS)
    return (thresholds(scores) <= words[:, None]).sum(axis=1)
