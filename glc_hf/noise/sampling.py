# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Sources of noisy labels: a corruption matrix, given logits, or a model that runs over the rows.

All draw classes from probabilities by integer thresholds, on numpy arrays.

A random 40-bit word u draws class j of a distribution p if T[j−1] ≤ u < T[j], where T[j] = round(2⁴⁰ · Σ_{k≤j} p[k]).
Everything after the rounding is integer arithmetic, so a class of probability zero is never drawn and the last class
never overflows.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.labels.columns import USUAL_LABEL_COLUMNS
from glc_hf.labels.row_batch import RowBatch
from glc_hf.labels.storage import CHUNK_SIZE, Chunk
from glc_hf.randomness import check_seed, uniform_bits


if TYPE_CHECKING:
    import torch

    from glc_hf.matrix import CorruptionMatrix


_BITS = 40
_TABLE_BITS = 12
_THRESHOLDS_AT_ONCE = 2**22
_MAX_CLASSES_OF_TABLE = 64  # with more, the table outgrows the cache and decides fewer words
# Logits per chunk: 32 MB in float64.
_MAX_NUMBERS = 2**22


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


# ---------------------------------------------------------------------- weak classifiers
class _LogitsNoise(Noise):
    """Draws from softmax(logits / temperature); subclasses provide the logits in `prepare`."""

    source = "the weak classifier"

    def __init__(self, temperature: float, seed: int) -> None:
        if not (0.0 < temperature < np.inf):
            raise ValueError(f"temperature must be a number above 0, got {temperature!r}.")
        self._temperature = float(temperature)
        self._seed = check_seed(seed)

    def draw(
        self,
        logits: np.ndarray,
        labels: np.ndarray,
        index: np.ndarray,
        position: np.ndarray | None,
        used: np.ndarray,
        name: Callable[[int], str],
    ) -> np.ndarray:
        bad = used & ~((logits < np.inf).all(axis=1) & (logits > -np.inf).any(axis=1))
        if bad.any():
            first = int(np.argmax(bad))
            values = np.array2string(logits[first], threshold=8, edgeitems=3, precision=4)
            raise ValueError(f"the logits of {name(first)} are not usable: {values} (NaN, infinite, or all -inf).")
        usable = np.where(used[:, None], logits, 0.0)
        return sample_from_logits(usable, self._temperature, self._seed, index, position)


class GivenLogits(_LogitsNoise):
    """Weak labels from given logits (numpy, torch or lists); arguments as in `weak_labels`."""

    num_labels: int

    def __init__(self, logits: Any, temperature: float, seed: int) -> None:
        super().__init__(temperature, seed)
        self._given: np.ndarray | list[np.ndarray] = _arrays(logits)
        first = self._given if isinstance(self._given, np.ndarray) else self._given[0]
        self.num_labels = _check_head(first.shape[-1], "the given logits")
        self.source = "logits=" + ("…" if isinstance(self._given, np.ndarray) else "[…]")
        self.chunk_size = max(1, min(CHUNK_SIZE, _MAX_NUMBERS // self.num_labels))

    def begin(self, num_rows: int, num_values: int, in_lists: bool) -> None:
        if isinstance(self._given, np.ndarray):
            expected, what = num_values, "tokens" if in_lists else "rows"
        else:
            expected, what = num_rows, "rows"
            if not in_lists:
                raise ValueError("logits= has one array per row, but each row has one label: give (rows, K) logits.")
        if len(self._given) != expected:
            raise ValueError(f"logits= is for {len(self._given)} {what}, the dataset has {expected} {what}.")

    def prepare(self, chunk: Chunk, batch: RowBatch) -> np.ndarray:
        if isinstance(self._given, np.ndarray):
            return self._given[chunk.span]
        rows = self._given[chunk.start : chunk.stop]
        assert chunk.lengths is not None  # see `begin`
        for row, (logits, length) in enumerate(zip(rows, chunk.lengths, strict=True)):
            if logits.shape != (length, self.num_labels):
                raise ValueError(
                    f"logits= has shape {logits.shape} for row {chunk.start + row}, which has {length} labels of "
                    f"{self.num_labels} classes: ({length}, {self.num_labels}) is needed."
                )
        return np.concatenate(rows) if rows else np.empty((0, self.num_labels))


class ModelLogits(_LogitsNoise):
    """
    Weak labels from a model, run batch by batch on its own device, in evaluation mode and without gradients.

    Args:
        hidden (`Sequence[str]`): Columns that are never inputs: labels, flags, indices.
        model, data_collator, batch_size, temperature, seed: As in `weak_labels`.
    """

    rows_only = True

    def __init__(
        self,
        model: torch.nn.Module,
        data_collator: Callable[[list[dict[str, Any]]], dict[str, Any]] | None,
        batch_size: int,
        hidden: Sequence[str],
        temperature: float,
        seed: int,
    ) -> None:
        super().__init__(temperature, seed)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size!r}.")
        if not callable(getattr(model, "forward", None)):
            raise TypeError(f"model must be a torch module, got {type(model).__name__}.")
        self.chunk_size = batch_size
        self._model = model
        self._collator = data_collator
        # Given labels, the model would compute a loss.
        self._hidden = {*hidden, *USUAL_LABEL_COLUMNS}
        parameters = inspect.signature(model.forward).parameters.values()
        self._accepted = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self._accepts_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelLogits:
        return self  # `concatenate_datasets` deep-copies streams; the model's weights need no copy

    def prepare(self, chunk: Chunk, batch: RowBatch) -> np.ndarray:
        possible = [name for name in batch.names if name not in self._hidden]
        # Columns that `forward` takes, or all if the collator creates the inputs.
        names = [name for name in possible if name in self._accepted] or possible
        logits, mask = self._forward(batch.examples(slice(chunk.start, chunk.stop), names))
        expected = 2 if chunk.lengths is None else 3
        if logits.ndim != expected or len(logits) != chunk.stop - chunk.start:
            shape = "(rows, classes)" if expected == 2 else "(rows, tokens, classes)"
            raise ValueError(f"the model's logits have shape {logits.shape}; these labels need {shape}.")
        self.num_labels = _check_head(logits.shape[-1], "the model")
        return logits if chunk.lengths is None else _unpadded(logits, mask, chunk)

    def _forward(self, examples: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        import torch
        from transformers import default_data_collator

        collate = self._collator or default_data_collator
        batch = collate([{k: v for k, v in row.items() if k not in self._hidden} for row in examples])
        device = next((parameter.device for parameter in self._model.parameters()), torch.device("cpu"))
        inputs = {
            name: value.to(device) if hasattr(value, "to") else value
            for name, value in batch.items()
            if name not in self._hidden and (name in self._accepted or self._accepts_any)
        }
        # One thread at a time: another would set the model back to training mode meanwhile.
        with self._lock, _evaluating(self._model), torch.no_grad():
            output = self._model(**inputs)
        logits = getattr(output, "logits", None)
        if logits is None and isinstance(output, dict):
            logits = output.get("logits")
        if logits is None:
            raise ValueError(f"{type(self._model).__name__} returns {type(output).__name__}, which has no `logits`.")
        mask = batch.get("attention_mask")
        return logits.float().cpu().numpy(), None if mask is None else np.asarray(mask).astype(bool)


def _unpadded(logits: np.ndarray, mask: np.ndarray | None, chunk: Chunk) -> np.ndarray:
    """Return the logits of each row's tokens without padding on either side."""
    parts = []
    assert chunk.lengths is not None  # called for lists of labels
    for row, length in enumerate(chunk.lengths):
        tokens = np.arange(logits.shape[1])
        if mask is not None and mask[row].sum() == length:
            tokens = np.flatnonzero(mask[row])
        if len(tokens) < length:
            raise ValueError(
                f"row {chunk.start + row} has {length} labels, but the model returns logits for {len(tokens)} tokens."
            )
        parts.append(logits[row, tokens[:length]])
    return np.concatenate(parts) if parts else np.empty((0, logits.shape[-1]))


def _check_head(num_labels: int, source: str) -> int:
    if num_labels < 2:
        raise ValueError(f"{source} has {num_labels} logit per label; weak labels need one for each of K ≥ 2 classes.")
    return int(num_labels)


def _arrays(logits: Any) -> np.ndarray | list[np.ndarray]:
    if hasattr(logits, "detach"):
        logits = logits.detach().float().cpu().numpy()
    if isinstance(logits, (list, tuple)) and logits and np.ndim(_array(logits[0])) == 2:
        return [_array(row) for row in logits]
    array = np.asarray([_array(row) for row in logits]) if isinstance(logits, (list, tuple)) else np.asarray(logits)
    if array.ndim == 3:
        return list(array)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"logits= must be numbers of shape (rows, K), got shape {array.shape} of {array.dtype}.")
    return array


def _array(row: Any) -> np.ndarray:
    return row.detach().float().cpu().numpy() if hasattr(row, "detach") else np.asarray(row)


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Switch to evaluation mode and then restore each module's mode: the user may have frozen some modules."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
