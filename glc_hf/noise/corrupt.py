# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Label noise of a known kind, put into a dataset: `corrupt_labels` and `weak_labels`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, IterableDataset

from glc_hf.labels.reading import (
    IGNORED_LABEL,
    check_labels,
    check_num_labels,
    check_same_lengths,
    class_names,
    parse_flags,
    parse_integers,
    read_index,
    refuse_missing,
    require_column,
    require_flags,
    stored_flags,
    stored_integers,
    typed_if_empty,
)
from glc_hf.labels.row_index import Chunk, RowIndex, chunks, places_of
from glc_hf.labels.splits import check_type, is_splits, on_splits, splits_to_relabel
from glc_hf.labels.storage import StoredColumn, block_boundaries, with_columns, with_distinct_rows
from glc_hf.labels.streams import Batch, add_to_stream
from glc_hf.matrix import CorruptionMatrix
from glc_hf.noise.sampling import MatrixNoise, Noise
from glc_hf.noise.weak_logits import GivenLogits, ModelLogits


if TYPE_CHECKING:
    import torch


AnyDataset = TypeVar("AnyDataset")
_TABLE_FORMATS = ("arrow", "pandas", "polars")


def corrupt_labels(
    dataset: AnyDataset,
    matrix: CorruptionMatrix | Any,
    seed: int = 0,
    label_column: str = "label",
    trusted_column: str | None = "trusted",
    index_column: str | None = None,
    clean_column: str = "clean_label",
) -> AnyDataset:
    """
    Resamples the labels of untrusted rows: a label i becomes j with probability matrix[i, j].

    A row's draw depends on `seed` and the row's index alone (and, in a list of labels, on the place in the list): not
    on the order of execution, on batches, shards, workers or caches. The index is the row's position as you see it,
    after `shuffle` and `select`, or the value of `index_column`, with which noise is the same in every order.

    Only the label column is rewritten, in Arrow: nothing else is copied or decoded, memory-mapped files stay mapped,
    and a shuffled dataset stays as it is.

    Args:
        dataset (`Dataset`, `DatasetDict` or `IterableDataset`):
            Labels are integers 0…K−1, or lists of them (token classification), where -100 is kept. Of a `DatasetDict`
            only the splits that have `trusted_column` get noise (with `trusted_column=None`: `train`, or the only
            split); the others are left as they are. A stream without `index_column` is read in order by one reader:
            shuffled later it keeps the order of its shards, one worker of a `DataLoader` gets all of it, and each of
            several nodes reads it whole to keep its part.
        matrix (`CorruptionMatrix` or array-like): K×K, rows that sum to one.
        seed (`int`, defaults to 0): Another seed, other noise.
        label_column (`str`, defaults to `"label"`): The labels.
        trusted_column (`str`, *optional*, defaults to `"trusted"`):
            The flags, a boolean for each row (or for each label of a list). `None`: no row is trusted.
        index_column (`str`, *optional*): A column of unique integers to use as the rows' index.
        clean_column (`str`, defaults to `"clean_label"`): The new column that keeps the labels as they were.

    Returns:
        The same kind of dataset, with noisy labels in `label_column`.

    Example:

    ```python
    >>> dataset = mark_trusted(dataset, fraction=0.05)
    >>> dataset = corrupt_labels(dataset, CorruptionMatrix.flip(10, 0.4))
    ```
    """
    if not isinstance(matrix, CorruptionMatrix):
        matrix = CorruptionMatrix(matrix)
    names = ColumnNames(label_column, trusted_column, index_column, clean_column)
    return _apply(dataset, lambda: MatrixNoise(matrix, seed), names, "corrupt_labels", seed, matrix.label_names)


def weak_labels(
    dataset: AnyDataset,
    logits: Any = None,
    model: torch.nn.Module | None = None,
    temperature: float = 5.0,
    seed: int = 0,
    batch_size: int = 32,
    data_collator: Callable[[list[dict[str, Any]]], dict[str, Any]] | None = None,
    label_column: str = "label",
    trusted_column: str | None = "trusted",
    index_column: str | None = None,
    clean_column: str = "clean_label",
) -> AnyDataset:
    """
    Resamples the labels of untrusted rows from a weak classifier: class j with probability
    softmax(logits / temperature)_j of that row.

    Draws, row indices and what is left alone are as in [`corrupt_labels`].

    Args:
        dataset (`Dataset`, `DatasetDict` or `IterableDataset`):
            As [`corrupt_labels`] takes it. A stream needs `model`; of a `DatasetDict` with `logits` one split alone
            may have the flag.
        logits (array-like, *optional*):
            The classifier's logits, `(rows, K)` in the order of the dataset; for lists of labels `(all tokens, K)` or
            a `(tokens, K)` array for each row.
        model (`torch.nn.Module`, *optional*):
            The classifier itself, whose output has `logits`. It is run on its own device, in evaluation mode and
            without gradients, with the columns that its `forward` takes. Either `logits` or `model` is given.
        temperature (`float`, defaults to 5.0): The paper's 5; higher is noisier.
        seed (`int`, defaults to 0): Another seed, other noise.
        batch_size (`int`, defaults to 32): Rows that the model sees at once.
        data_collator (`Callable`, *optional*, defaults to `transformers.default_data_collator`):
            Makes the model's batch of a list of rows.
        label_column, trusted_column, index_column, clean_column: As in [`corrupt_labels`].

    Returns:
        The same kind of dataset, with noisy labels in `label_column`.
    """
    if (logits is None) == (model is None):
        raise ValueError("give either logits= or model=, one of them.")
    names = ColumnNames(label_column, trusted_column, index_column, clean_column)
    hidden = [name for name in (label_column, trusted_column, index_column, clean_column) if name is not None]

    def noise() -> Noise:
        if model is None:
            return GivenLogits(logits, temperature, seed)
        return ModelLogits(model, data_collator, batch_size, hidden, temperature, seed)

    if model is None and isinstance(dataset, IterableDataset):
        raise ValueError("a stream has no fixed rows to give logits= for: give model=, or load the dataset whole.")
    if model is None and is_splits(dataset) and len(splits_to_relabel(dataset, trusted_column)) > 1:
        chosen = ", ".join(map(str, splits_to_relabel(dataset, trusted_column)))
        raise ValueError(f"logits= is for one split, but {chosen} have the flag: transform one split at a time.")
    return _apply(dataset, noise, names, "weak_labels", seed, None, temperature=float(temperature))


def _apply(
    dataset: Any,
    make_noise: Callable[[], Noise],
    names: ColumnNames,
    transform: str,
    seed: int,
    label_names: list[str] | None,
    **arguments: Any,
) -> Any:
    if is_splits(dataset):
        chosen = splits_to_relabel(dataset, names.trusted)
        return on_splits(
            dataset,
            chosen,
            lambda split: _apply(split, make_noise, names, transform, seed, label_names, **arguments),
        )
    check_type(dataset)
    if dataset.column_names is not None:
        _check_columns(list(dataset.column_names), names)
    feature = dataset.features.get(names.label) if dataset.features is not None else None
    _compare_names(label_names, class_names(feature), names.label)
    noise = make_noise()
    if isinstance(dataset, IterableDataset):
        if dataset.features is not None:
            _check_features(dataset.features, names, noise)
        function = _RelabelStream(noise, names, feature)
        read_ahead = {"read_ahead": noise.chunk_size} if noise.rows_only else {}
        return add_to_stream(dataset, function, names.index, **read_ahead)
    return _relabel_dataset(dataset, noise, names, transform, {**arguments, "seed": int(seed)})


def _relabel_dataset(
    dataset: Dataset, noise: Noise, names: ColumnNames, transform: str, arguments: dict[str, Any]
) -> Dataset:
    index = read_index(dataset, names.index)
    dataset = with_distinct_rows(dataset)
    labels, rows = stored_integers(dataset, names.label)
    flags = stored_flags(dataset, names.trusted)[0] if names.trusted is not None else None
    feature = dataset.features[names.label]
    examples = _examples_of(dataset, noise)
    relabel(labels, flags, rows, len(dataset), index, noise, names, feature, examples)
    column = labels.to_arrow(block_boundaries(dataset))
    if not len(labels.values):
        column = dataset._data.column(names.label)  # nothing was drawn, and nothing but empty lists may have no type
    return with_columns(
        dataset,
        {names.label: (column, feature)},
        {names.clean: names.label},
        f"glc_hf.{transform}",
        {**arguments, "columns": [names.label, names.trusted, names.index, names.clean]},
    )


class _RelabelStream:
    """The row function of a stream that gets noisy labels."""

    def __init__(self, noise: Noise, names: ColumnNames, feature: Any) -> None:
        self._noise = noise
        self._names = names
        self._feature = feature

    def __call__(self, batch: Batch) -> dict[str, pa.ChunkedArray]:
        names = self._names
        _check_columns(batch.names, names)
        clean = typed_if_empty(batch.column(names.label), pa.int64())
        labels = parse_integers(clean, names.label, batch.index)
        flags = None
        if names.trusted is not None:
            flags = parse_flags(batch.column(names.trusted), names.trusted, batch.index)
        relabel(
            labels,
            flags,
            None,
            batch.num_rows,
            batch.index,
            self._noise,
            names,
            self._feature,
            self._examples_of(batch),
        )
        return {names.label: labels.to_arrow([0]), names.clean: clean}

    def _examples_of(self, batch: Batch) -> Callable[[slice], list[dict[str, Any]]]:
        read: list[dict[str, Any]] = []

        def examples(rows: slice) -> list[dict[str, Any]]:
            if not read:
                read.extend(batch.examples(self._noise.columns(batch.names)))
            return read[rows]

        return examples

    def update_features(self, features: Features) -> Features:
        """See [`~glc_hf.labels.streams.RowFunction`]."""
        return Features({**features, self._names.clean: features[self._names.label]})


def _examples_of(dataset: Dataset, noise: Noise) -> Callable[[slice], list[dict[str, Any]]]:
    """Rows as the user's format or transform makes them, of the columns that the model takes."""
    if not isinstance(noise, ModelLogits):
        return lambda rows: []
    if dataset._format_type != "custom":
        dataset = dataset.select_columns(noise.columns(dataset.column_names))
    if dataset._format_type in _TABLE_FORMATS:
        dataset = dataset.with_format(None)

    def examples(rows: slice) -> list[dict[str, Any]]:
        columns = dataset[rows]
        return [{name: column[row] for name, column in columns.items()} for row in range(rows.stop - rows.start)]

    return examples


def _check_columns(columns: list[str], names: ColumnNames) -> None:
    require_column(columns, names.label, "label_column")
    if names.trusted is not None:
        require_flags(columns, names.trusted)
    if names.index is not None:
        require_column(columns, names.index, "index_column")
    if names.clean in columns:
        raise ValueError(
            f"there is a column {names.clean!r} already: these labels are noisy by now. For noise upon noise name "
            "another column with clean_column=, or drop it with `remove_columns`."
        )


def _check_features(features: Features, names: ColumnNames, noise: Noise) -> None:
    """What can be known of a stream before its first row."""

    def nothing(name: str) -> pa.ChunkedArray:
        return pa.chunked_array([], type=features.arrow_schema.field(name).type)

    parse_integers(nothing(names.label), names.label, RowIndex())
    if names.trusted is not None:
        parse_flags(nothing(names.trusted), names.trusted, RowIndex())
    if noise.num_labels is not None:
        check_num_labels(features[names.label], noise.num_labels, names.label, noise.source)


def _compare_names(of_matrix: list[str] | None, of_column: list[str] | None, column: str) -> None:
    if of_matrix is not None and of_column is not None and of_matrix != of_column and len(of_matrix) == len(of_column):
        differs = next(i for i, (one, other) in enumerate(zip(of_matrix, of_column, strict=True)) if one != other)
        warnings.warn(
            f"the corruption matrix calls class {differs} {of_matrix[differs]!r}, column {column!r} calls it "
            f"{of_column[differs]!r}: if the order of classes differs, so must the matrix's.",
            stacklevel=4,
        )


@dataclass(frozen=True)
class ColumnNames:
    """The columns that a transform reads and writes; `trusted` and `index` may be `None`."""

    label: str
    trusted: str | None
    index: str | None
    clean: str


def relabel(
    labels: StoredColumn,
    flags: StoredColumn | None,
    rows: np.ndarray | None,
    num_rows: int,
    index: RowIndex,
    noise: Noise,
    names: ColumnNames,
    feature: Any,
    examples: Callable[[slice], list[dict[str, Any]]],
) -> None:
    """
    Overwrites `labels.values` of the rows that the user sees, where they are untrusted and no -100.

    Args:
        labels (`StoredColumn`): Read, checked and written in place.
        flags (`StoredColumn`, *optional*): One flag a row or a label; without it no row is trusted.
        rows (`np.ndarray`, *optional*), num_rows (`int`): As in [`~glc_hf.labels.row_index.chunks`].
        index (`RowIndex`): What each row's draw depends on.
        noise (`Noise`): Where noisy labels come from.
        names (`ColumnNames`): For messages.
        feature: The label column's feature, if it is known.
        examples (`Callable`): The rows of a slice, decoded, for noise that looks at them.
    """
    if noise.num_labels is not None:
        _check_classes(labels, noise, feature, names.label)
    noise.begin(num_rows, _num_values(labels, rows, num_rows), labels.offsets is not None)
    for chunk in chunks(num_rows, rows, labels.offsets, noise.chunk_size, noise.rows_only):
        known = noise.num_labels is not None
        prepared = noise.prepare(chunk, examples)
        if not known:
            _check_classes(labels, noise, feature, names.label)
        stored = slice(chunk.start, chunk.stop) if rows is None else rows[chunk.start : chunk.stop]
        name = partial(chunk.name, index=index)
        _refuse_missing_rows(labels, stored, chunk, names.label, index)
        values = labels.values[chunk.places]
        missing = labels.missing[chunk.places] if labels.missing is not None else None
        check_labels(values, missing, noise.num_labels, chunk.lengths is not None, names.label, name)
        wanted = _untrusted(flags, stored, chunk, names.trusted, index)
        true = values
        if chunk.lengths is not None:
            ignored = values == IGNORED_LABEL
            wanted = wanted & ~ignored
            true = np.where(ignored, 0, values)
        row_index = chunk.spread(index.of(chunk.start, chunk.stop))
        noisy = noise.draw(prepared, true, row_index, chunk.position, wanted, name)
        labels.values[chunk.places] = np.where(wanted, noisy, values)


def _untrusted(
    flags: StoredColumn | None, stored: slice | np.ndarray, chunk: Chunk, column: str | None, index: RowIndex
) -> np.ndarray:
    """Which labels of the chunk belong to untrusted rows or tokens."""
    if flags is None:
        return np.ones(chunk.span.stop - chunk.span.start, dtype=bool)
    _refuse_missing_rows(flags, stored, chunk, column, index)
    if flags.offsets is None:
        missing = flags.missing[stored] if flags.missing is not None else None
        refuse_missing(missing, column, lambda row: index.name(chunk.start + row))
        return chunk.spread(~flags.values[stored])
    numbers = np.arange(stored.start, stored.stop) if isinstance(stored, slice) else stored
    places, lengths = places_of(flags.offsets, numbers)
    check_same_lengths(chunk.lengths, lengths, lambda row: index.name(chunk.start + row))
    missing = flags.missing[places] if flags.missing is not None else None
    refuse_missing(missing, column, partial(chunk.name, index=index))
    return ~flags.values[places]


def _refuse_missing_rows(
    column: StoredColumn, stored: slice | np.ndarray, chunk: Chunk, name: str | None, index: RowIndex
) -> None:
    if column.missing_rows is not None and column.missing_rows[stored].any():
        row = chunk.start + int(np.argmax(column.missing_rows[stored]))
        raise ValueError(f"column {name!r} has no list (None) in {index.name(row)}.")


def _check_classes(labels: StoredColumn, noise: Noise, feature: Any, column: str) -> None:
    check_num_labels(feature, noise.num_labels, column, noise.source)
    largest = np.iinfo(labels.values.dtype).max
    if noise.num_labels - 1 > largest:
        raise ValueError(
            f"column {column!r} holds {labels.values.dtype}, which ends at {largest}, but {noise.source} has "
            f'{noise.num_labels} classes: `dataset.cast_column({column!r}, Value("int64"))` first.'
        )


def _num_values(labels: StoredColumn, rows: np.ndarray | None, num_rows: int) -> int:
    if labels.offsets is None:
        return num_rows
    if rows is None:
        return len(labels.values)
    return int((labels.offsets[rows + 1] - labels.offsets[rows]).sum())
