# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Sources of weak labels: given logits, or a model that runs over the rows."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.labels.columns import USUAL_LABEL_COLUMNS
from glc_hf.labels.row_batch import RowBatch
from glc_hf.labels.row_index import CHUNK_SIZE, Chunk
from glc_hf.noise.sampling import Noise, sample_from_logits
from glc_hf.randomness import check_seed


if TYPE_CHECKING:
    import torch


# Logits per chunk: 32 MB in float64.
_MAX_NUMBERS = 2**22


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
