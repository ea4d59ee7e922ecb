# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Noisy labels from probabilities, on numpy arrays: draws by integer thresholds.

Class j of a distribution p is drawn by the 40-bit word u with T[j−1] ≤ u < T[j], where
T[j] = round(2⁴⁰ · Σ_{k≤j} p[k]). Everything after the rounding is integer arithmetic, so a class of probability zero
is never drawn and the last class never overflows.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from glc_hf.randomness import uniform_bits


if TYPE_CHECKING:
    from collections.abc import Callable

    from glc_hf.labels.row_index import Chunk
    from glc_hf.matrix import CorruptionMatrix


_BITS = 40
_TABLE_BITS = 12
_MAX_CLASSES_OF_TABLE = 64  # beyond them the table outgrows the cache, and fewer words are settled by it


class Noise(Protocol):
    """
    A source of noisy labels, asked once to `begin`, then chunk after chunk to `prepare` and `draw`. It keeps nothing
    of a chunk: `datasets` reads the shards of a shuffled stream in threads, and they share one source.

    `num_labels` is K, `None` as long as it is not known (a model tells with its first logits). `chunk_size` is how
    many labels it wants at once, `None` where it does not care; with `rows_only` it counts rows, even of lists.
    `source` is what messages call it.
    """

    num_labels: int | None
    chunk_size: int | None
    rows_only: bool
    source: str

    def begin(self, num_rows: int, num_values: int, in_lists: bool) -> None:
        """Hears how many rows and labels there will be, and whether labels are lists."""
        ...

    def prepare(self, chunk: Chunk, examples: Callable[[slice], list[dict[str, Any]]]) -> Any:
        """What `draw` will need to know of a chunk; `examples` gives its rows, decoded."""
        ...

    def draw(
        self,
        prepared: Any,
        labels: np.ndarray,
        index: np.ndarray,
        position: np.ndarray | None,
        wanted: np.ndarray,
        name: Callable[[int], str],
    ) -> np.ndarray:
        """
        One noisy label for each label, as integers.

        Args:
            prepared: What `prepare` gave for these labels.
            labels (`np.ndarray` of integers): The true classes, all in 0…K−1.
            index (`np.ndarray` of int64): Each label's row index.
            position (`np.ndarray` of int64, *optional*): Each label's place within its row.
            wanted (`np.ndarray` of bool): Where the result will be used.
            name (`Callable`): The n-th label's name for messages.
        """
        ...


def check_seed(seed: int) -> int:
    """An integer, or an error: a float would be cut without a word."""
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be an integer, got {seed!r}.") from None


def thresholds(weights: np.ndarray) -> np.ndarray:
    """T as above for each row of non-negative `weights` (…, K) that need not sum to one; uint64, the last one 2⁴⁰."""
    cumulative = np.cumsum(weights, axis=-1, dtype=np.float64)
    # Divided by itself the last sum is exactly one, and so is each sum from the last possible class on: adding zeros
    # changes nothing, so trailing classes of probability zero get an empty interval.
    cumulative /= cumulative[..., -1:]
    cumulative *= 2.0**_BITS
    np.rint(cumulative, out=cumulative)
    return cumulative.astype(np.uint64)


class MatrixNoise:
    """
    Noisy labels from the rows of a corruption matrix.

    The rows' thresholds stand one after the other in a single sorted array, row i lifted by i · 2⁴⁰, so one binary
    search over K² numbers serves labels of every class at once. With few classes even that is spared nearly always:
    the first 12 bits of a word mostly settle its class, and a table tells which.
    """

    chunk_size = None
    rows_only = False
    source = "the corruption matrix"

    def __init__(self, matrix: CorruptionMatrix, seed: int) -> None:
        self.num_labels = matrix.num_labels
        self._seed = check_seed(seed)
        lift = np.arange(self.num_labels, dtype=np.uint64) << np.uint64(_BITS)
        self._thresholds = (thresholds(matrix.probs) + lift[:, None]).ravel()
        self._table = self._settled() if self.num_labels <= _MAX_CLASSES_OF_TABLE else None

    def _settled(self) -> np.ndarray:
        """For each class and each first 12 bits of a word: the noisy class, or -1 where later bits decide."""
        first = np.arange(self.num_labels << _TABLE_BITS, dtype=np.uint64) << np.uint64(_BITS - _TABLE_BITS)
        last = first + np.uint64((1 << (_BITS - _TABLE_BITS)) - 1)
        at_first = np.searchsorted(self._thresholds, first, side="right")
        at_last = np.searchsorted(self._thresholds, last, side="right")
        base = np.repeat(np.arange(self.num_labels) * self.num_labels, 1 << _TABLE_BITS)
        return np.where(at_first == at_last, at_first - base, -1).astype(np.int32)

    def begin(self, num_rows: int, num_values: int, in_lists: bool) -> None:
        """See [`Noise`]."""

    def prepare(self, chunk: Chunk, examples: Callable[[slice], list[dict[str, Any]]]) -> None:
        """See [`Noise`]."""

    def draw(
        self,
        prepared: Any,
        labels: np.ndarray,
        index: np.ndarray,
        position: np.ndarray | None,
        wanted: np.ndarray,
        name: Callable[[int], str],
    ) -> np.ndarray:
        """See [`Noise`]."""
        keys = labels.astype(np.uint64)
        keys <<= np.uint64(_BITS)
        keys |= uniform_bits("corrupt_labels", self._seed, index, position, bits=_BITS)
        if self._table is None:
            return self._search(keys, labels)
        noisy = self._table[(keys >> np.uint64(_BITS - _TABLE_BITS)).view(np.int64)]
        unsettled = np.flatnonzero(noisy < 0)
        noisy[unsettled] = self._search(keys[unsettled], labels[unsettled])
        return noisy

    def _search(self, keys: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._thresholds, keys, side="right") - np.multiply(
            labels, self.num_labels, dtype=np.int64
        )


def sample_from_logits(
    logits: np.ndarray,
    temperature: float,
    seed: int,
    index: np.ndarray,
    position: np.ndarray | None,
) -> np.ndarray:
    """
    One class for each row, drawn from softmax(logits / temperature).

    Args:
        logits (`np.ndarray` of shape `(N, K)`): No NaN, no +inf; −inf is a class of probability zero.
        temperature (`float`): Above zero; the higher, the closer to uniform.
        seed, index, position: As in [`~glc_hf.randomness.random_uint64`].
    """
    scores = logits.astype(np.float64)
    scores /= temperature
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    words = uniform_bits("weak_labels", seed, index, position, bits=_BITS)
    return (thresholds(scores) <= words[:, None]).sum(axis=1)
