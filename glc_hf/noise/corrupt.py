# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`corrupt_labels` and `weak_labels`: simulated label noise in datasets and streams."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict

from glc_hf.labels.reading import (
    IGNORED_LABEL,
    check_labels,
    check_same_lengths,
    class_names,
    parse_flags,
    parse_integers,
    require_column,
    require_flags,
)
from glc_hf.labels.row_batch import RowBatch
from glc_hf.labels.storage import chunks, typed_if_empty
from glc_hf.labels.transforms import READ_AHEAD, add_columns, check_type, is_splits, on_splits
from glc_hf.matrix import CorruptionMatrix
from glc_hf.noise.sampling import GivenLogits, MatrixNoise, ModelLogits, Noise
from glc_hf.randomness import check_seed


if TYPE_CHECKING:
    import torch


AnyDataset = TypeVar("AnyDataset", bound=Dataset | DatasetDict | IterableDataset | IterableDatasetDict)


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
    Resample the labels of untrusted rows: label i becomes j with probability matrix[i, j].

    A row's draw depends only on `seed` and the row's index (and, in a list of labels, on the position in the list).
    The order of execution, batches, shards, workers and caches have no effect. The index is the row's position as you
    see it, after `shuffle` and `select`, or the value of `index_column`, with which the noise is the same in every
    order.

    Only the label column is rewritten, in Arrow: nothing else is copied or decoded, memory-mapped files stay mapped,
    and a shuffled dataset is not flattened.

    Args:
        dataset (`Dataset`, `DatasetDict` or `IterableDataset`):
            Labels are integers 0…K−1, or lists of them (token classification), in which -100 is kept. In a
            `DatasetDict` only the splits that have `trusted_column` get noise (with `trusted_column=None`: `train`, or
            the only split). A stream without `index_column` must be read in order by one reader: if you shuffle it
            later, its shards keep their order; one worker of a `DataLoader` gets all of it; and each of several nodes
            reads all of it and keeps its part.
        matrix (`CorruptionMatrix` or array-like): K×K, each row sums to one.
        seed (`int`, *optional*, defaults to 0): Seed of the noise.
        label_column (`str`, *optional*, defaults to `"label"`): Column of the labels.
        trusted_column (`str`, *optional*, defaults to `"trusted"`):
            Column of the flags, one per row (or one per label of a list). `None`: no row is trusted.
        index_column (`str`, *optional*): Column of unique integers to use as the rows' index.
        clean_column (`str`, *optional*, defaults to `"clean_label"`): New column with the original labels.

    Returns:
        A dataset of the same type, with noisy labels in `label_column`.

    Example:

    ```python
    >>> dataset = mark_trusted(dataset, fraction=0.05)
    >>> dataset = corrupt_labels(dataset, CorruptionMatrix.flip(10, 0.4))
    ```
    """
    if not isinstance(matrix, CorruptionMatrix):
        matrix = CorruptionMatrix(matrix)
    names = _ColumnNames(label_column, trusted_column, index_column, clean_column)
    arguments = {"seed": check_seed(seed)}
    return _apply(dataset, lambda: MatrixNoise(matrix, seed), names, "corrupt_labels", arguments, matrix.label_names)


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
    Resample the labels of untrusted rows from a weak classifier: class j with probability
    softmax(logits / temperature)_j of that row.

    Draws, row indices and the handling of other columns are as in [`corrupt_labels`].

    Args:
        dataset (`Dataset`, `DatasetDict` or `IterableDataset`):
            As in [`corrupt_labels`]. A stream needs `model`; with `logits`, only one split of a `DatasetDict` may have
            the flag.
        logits (array-like, *optional*):
            The classifier's logits, `(rows, K)` in the order of the dataset; for lists of labels `(all tokens, K)` or
            one `(tokens, K)` array per row.
        model (`torch.nn.Module`, *optional*):
            The classifier; its output has `logits`. It runs on its own device, in evaluation mode and without
            gradients, with the columns that its `forward` takes. Give either `logits` or `model`.
        temperature (`float`, *optional*, defaults to 5.0): The paper uses 5; higher is noisier.
        seed (`int`, *optional*, defaults to 0): Seed of the noise.
        batch_size (`int`, *optional*, defaults to 32): Rows per batch of the model.
        data_collator (`Callable`, *optional*, defaults to `transformers.default_data_collator`):
            Turns a list of rows into a batch for the model.
        label_column, trusted_column, index_column, clean_column: As in [`corrupt_labels`].

    Returns:
        A dataset of the same type, with noisy labels in `label_column`.
    """
    if (logits is None) == (model is None):
        raise ValueError("give either logits= or model=, one of them.")
    names = _ColumnNames(label_column, trusted_column, index_column, clean_column)
    hidden = [name for name in (label_column, trusted_column, index_column, clean_column) if name is not None]

    def noise() -> Noise:
        if model is None:
            return GivenLogits(logits, temperature, seed)
        return ModelLogits(model, data_collator, batch_size, hidden, temperature, seed)

    if model is None and isinstance(dataset, IterableDataset):
        raise ValueError("a stream has no fixed rows for logits=: give model=, or load the whole dataset.")
    if model is None and is_splits(dataset) and len(_splits_to_relabel(dataset, trusted_column)) > 1:
        chosen = ", ".join(map(str, _splits_to_relabel(dataset, trusted_column)))
        raise ValueError(f"logits= is for one split, but {chosen} have the flag: transform one split at a time.")
    return _apply(dataset, noise, names, "weak_labels", {"temperature": float(temperature), "seed": check_seed(seed)})


@dataclass(frozen=True)
class _ColumnNames:
    """The columns that a transform reads and writes; `trusted` and `index` may be `None`."""

    label: str
    trusted: str | None
    index: str | None
    clean: str

    def check(self, columns: list[str]) -> None:
        require_column(columns, self.label, "label_column")
        if self.trusted is not None:
            require_flags(columns, self.trusted)
        if self.clean in columns:
            raise ValueError(
                f"there is a column {self.clean!r} already, so these labels are noisy already. To add noise to them, "
                "name another column with clean_column=, or drop it with `remove_columns`."
            )


def _apply(
    dataset: Any,
    make_noise: Callable[[], Noise],
    names: _ColumnNames,
    transform: str,
    arguments: dict[str, Any],
    label_names: list[str] | None = None,
) -> Any:
    if is_splits(dataset):
        chosen = _splits_to_relabel(dataset, names.trusted)
        return on_splits(
            dataset, chosen, lambda split: _apply(split, make_noise, names, transform, arguments, label_names)
        )
    check_type(dataset)
    if dataset.column_names is not None:
        names.check(list(dataset.column_names))
    feature = dataset.features.get(names.label) if dataset.features is not None else None
    _compare_names(label_names, class_names(feature), names.label)
    function = _Relabel(make_noise(), names, feature)
    if isinstance(dataset, IterableDataset) and dataset.features is not None:
        function.check_features(dataset.features)
    return add_columns(
        dataset,
        function,
        f"glc_hf.{transform}",
        {**arguments, "columns": [names.label, names.trusted, names.index, names.clean]},
        names.index,
        read_ahead=function.noise.chunk_size if function.noise.rows_only and function.noise.chunk_size else READ_AHEAD,
    )


def _splits_to_relabel(dataset: Any, trusted_column: str | None) -> list[str]:
    """
    Return the splits that get noise: those with the flag; without a flag `train`, or the only one.

    Noise must not get into a test split by accident.
    """
    names = ", ".join(map(str, dataset))
    if trusted_column is None:
        if "train" in dataset or len(dataset) == 1:
            return ["train"] if "train" in dataset else list(dataset)
        raise ValueError(
            f"with trusted_column=None it is not clear which of the splits {names} should have noise: transform that "
            "split alone, `dataset[name] = …(dataset[name])`."
        )
    unknown = [name for name, split in dataset.items() if split.column_names is None]
    if unknown:
        raise ValueError(
            f"the columns of split {unknown[0]!r} are not known (`map` on a stream forgets them without `features=`), "
            "so it is not clear which splits have the flag: transform one split alone, "
            "`dataset[name] = …(dataset[name])`."
        )
    chosen = [name for name, split in dataset.items() if trusted_column in split.column_names]
    if not chosen:
        raise ValueError(
            f"none of the splits {names} has the column {trusted_column!r}. Add it with `mark_trusted(dataset, "
            "fraction=…)`, which marks the train split, or set trusted_column=None: no row is trusted."
        )
    return chosen


def _compare_names(of_matrix: list[str] | None, of_column: list[str] | None, column: str) -> None:
    if of_matrix is not None and of_column is not None and of_matrix != of_column and len(of_matrix) == len(of_column):
        first = next(i for i, (one, other) in enumerate(zip(of_matrix, of_column, strict=True)) if one != other)
        warnings.warn(
            f"the corruption matrix calls class {first} {of_matrix[first]!r}, column {column!r} calls it "
            f"{of_column[first]!r}: if the order of the classes differs, reorder the matrix.",
            stacklevel=4,
        )


class _Relabel:
    """Row function that replaces the labels of untrusted rows and tokens, except -100, by noisy ones."""

    def __init__(self, noise: Noise, names: _ColumnNames, feature: Any) -> None:
        self.noise = noise
        self.names = names
        self.feature = feature
        self.copies = {names.clean: names.label}

    def __call__(self, batch: RowBatch) -> dict[str, pa.ChunkedArray]:
        names, noise, index = self.names, self.noise, batch.index
        names.check(batch.names)
        clean = typed_if_empty(batch.column(names.label), pa.int64())
        labels = parse_integers(clean, names.label, index)
        trusted = None
        if names.trusted is not None:
            trusted = parse_flags(batch.column(names.trusted), names.trusted, index)
            check_same_lengths(labels, trusted, index)
        self._check_num_labels(labels.values.dtype)
        noise.begin(batch.num_rows, len(labels.values), labels.offsets is not None)
        for chunk in chunks(batch.num_rows, labels.offsets, noise.chunk_size, noise.rows_only):
            prepared = noise.prepare(chunk, batch)
            self._check_num_labels(labels.values.dtype)  # a model's K is known now
            check_labels(labels, noise.num_labels, names.label, index, chunk.span)
            values = labels.values[chunk.span]
            replaced = np.ones(len(values), dtype=bool)
            if trusted is not None and trusted.offsets is not None:
                replaced = ~trusted.values[chunk.span]
            elif trusted is not None:
                replaced = chunk.spread(~trusted.values[chunk.start : chunk.stop])
            if labels.offsets is not None:
                replaced = replaced & (values != IGNORED_LABEL)

            def name(value: int, start: int = chunk.span.start) -> str:
                return index.name_value(start + value, labels.offsets)

            noisy = noise.draw(
                prepared,
                np.where(values == IGNORED_LABEL, 0, values) if labels.offsets is not None else values,
                chunk.spread(index.of(chunk.start, chunk.stop)),
                chunk.position,
                replaced,
                name,
            )
            labels.values[chunk.span] = np.where(replaced, noisy, values)
        return {names.label: batch.new_column(labels.values, labels.offsets, clean.type), names.clean: clean}

    def update_features(self, features: Features) -> Features:
        return Features({**features, self.names.clean: features[self.names.label]})

    def check_features(self, features: Features) -> None:
        """Check what is known of a stream before its first row."""

        def empty(name: str) -> pa.ChunkedArray:
            return pa.chunked_array([], type=features.arrow_schema.field(name).type)

        parse_integers(empty(self.names.label), self.names.label)
        if self.names.trusted is not None:
            parse_flags(empty(self.names.trusted), self.names.trusted)
        self._check_num_labels()

    def _check_num_labels(self, dtype: np.dtype | None = None) -> None:
        """Compare the number of classes, once it is known, with the label column's feature and its integer type."""
        num_labels, source, column = self.noise.num_labels, self.noise.source, self.names.label
        if num_labels is None:
            return
        feature_names = class_names(self.feature)
        if feature_names is not None and len(feature_names) != num_labels:
            raise ValueError(f"{source} has {num_labels} classes, column {column!r} has {len(feature_names)}.")
        if dtype is not None and num_labels - 1 > np.iinfo(dtype).max:
            raise ValueError(
                f"column {column!r} holds {dtype}, which ends at {np.iinfo(dtype).max}, but {source} has {num_labels} "
                f'classes: `dataset.cast_column({column!r}, Value("int64"))` first.'
            )
