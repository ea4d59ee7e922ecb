# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`gather_votes`: one list of votes per item, from a table with one line per answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, DatasetInfo, Features, List

from glc_hf.intervals import format_count
from glc_hf.labels.encoding import NO_CLASS, whole_numbers
from glc_hf.labels.label_batch import Votes
from glc_hf.labels.reading import class_names, require_column
from glc_hf.labels.storage import block_boundaries, column_in_order, stored_rows, with_columns


logger = logging.getLogger(__name__)
VOTES_COLUMN = "votes"
# Places of lists that are made at a time.
_PLACES = 2**22


def gather_votes(
    rows: Any,
    row: str = "item",
    source: str = "worker",
    label: str = "answer",
    label_names: Sequence[str] | None = None,
    return_names: bool = False,
    dataset: Dataset | None = None,
) -> Dataset | tuple[Dataset, list[str]]:
    """
    Gather the answers on each item into one list, with one place per source: for `GLCConfig(votes_column="votes")`.

    Args:
        rows (`datasets.Dataset`, `pandas.DataFrame` or `list[dict]`): One line per answer.
        row, source, label (`str`, *optional*, default to `"item"`, `"worker"` and `"answer"`):
            Columns of the item, of the one who answers, and of the answer: a class number, a class name or a class of
            a `ClassLabel`. A source may give an answer on an item several times, but always the same.
        label_names (`Sequence[str]`, *optional*):
            Names of the classes. Answers (names or class numbers) then become classes of a `ClassLabel`; by default
            they keep their type.
        return_names (`bool`, *optional*, defaults to `False`):
            Whether to return the names of the sources too, for `GLCConfig(source_names=…)`.
        dataset (`datasets.Dataset`, *optional*):
            The dataset of the items, which has the column `row` too. It gets the column `votes`. Answers on other
            items are not used.

    Returns:
        A `Dataset` with one row per item, in the order of their first answers, and the columns `row` and `votes`; or
        `dataset` with the column `votes`. A list has one place per source, in the sorted order of the sources, and
        `None` where a source has no answer. With `return_names`, also the list of names.

    Example:

    ```python
    answers = load_dataset("csv", data_files="answers.csv", split="train")  # columns: item, worker, answer
    data = gather_votes(answers, dataset=data)  # data has a column item; adds the column votes
    args = GLCConfig(output_dir="robust-model", votes_column="votes")
    ```
    """
    columns = (row, source, label)
    if len(set(columns)) < 3:
        raise ValueError(f"row={row!r}, source={source!r} and label={label!r} must be three different columns.")
    if dataset is None and row == VOTES_COLUMN:
        raise ValueError(f"column {row!r} can't be the item: {VOTES_COLUMN!r} is the column of the result. Rename it.")
    items, sources = (_read_ids(*_read(rows, name), name) for name in (row, source))
    labels = _read_labels(*_read(rows, label), label, label_names)
    lines = _distinct_lines(items, sources, labels, columns)
    feature = List(labels.feature)
    if dataset is None:
        votes = _sparse_votes(lines, items, sources, labels)
        lists = _lists(votes, np.arange(len(items.distinct)), labels, [0])
        features = Features({row: items.feature, VOTES_COLUMN: feature})
        table = pa.table({row: items.distinct, VOTES_COLUMN: lists}).cast(features.arrow_schema)
        result = Dataset(table, info=DatasetInfo(features=features))
    else:
        stored, visible = _items_of_rows(dataset, row, items)
        lines = lines[np.isin(items.codes[lines], visible)]
        votes = _sparse_votes(lines, items, sources, labels)
        lists = _lists(votes, stored, labels, block_boundaries(dataset))
        features = Features({**dataset.features, VOTES_COLUMN: feature})
        result = with_columns(dataset, {VOTES_COLUMN: lists}, features, {}, "glc_hf.gather_votes", {})
    return (result, list(votes.names)) if return_names else result


# ---------------------------------------------------------------------- reading
class _Values(NamedTuple):
    """A column as numbers (`codes`) of its distinct values, in the order of their first appearance."""

    codes: np.ndarray
    distinct: pa.Array
    feature: Any


def _read(rows: Any, name: str) -> tuple[pa.Array, Any]:
    """Return a column of the answers, and its feature if it has one."""
    feature = None
    try:
        if isinstance(rows, Dataset):
            require_column(rows.column_names, name, "column")
            values, feature = column_in_order(rows, name), rows.features[name]
        elif hasattr(rows, "iloc") and hasattr(rows, "columns"):
            require_column(list(rows.columns), name, "column")
            values = pa.array(rows[name], from_pandas=True)
        elif isinstance(rows, Sequence) and all(isinstance(line, Mapping) for line in rows):
            for number, line in enumerate(rows):
                if name not in line:
                    where = f" in line {number}" if number else ""
                    raise ValueError(
                        f"there is no column {name!r}{where}; the columns are {', '.join(map(str, line))}."
                    )
            values = pa.array([line[name] for line in rows], from_pandas=True)
        else:
            hint = (
                f" with the splits {', '.join(map(str, rows))}: pass one of them" if isinstance(rows, Mapping) else ""
            )
            raise TypeError(
                f"the answers are a {type(rows).__name__}{hint}. `gather_votes` takes a `datasets.Dataset`, a pandas "
                "DataFrame or a list of dicts."
            )
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"column {name!r} of the answers has values of different types ({error}). Convert all of them to text or "
            "to integers."
        ) from error
    if len(values) == 0:
        raise ValueError("there are no answers: the table has no lines.")
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string(values.type):  # its 32-bit offsets can't hold all texts of a large table
        values = values.cast(pa.large_string())
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values, feature


def _read_ids(values: pa.Array, feature: Any, name: str) -> _Values:
    """Check the column of items or of sources."""
    _check_given(values, name)
    values = _as_integers(values, name)
    if not (pa.types.is_integer(values.type) or pa.types.is_large_string(values.type)):
        raise ValueError(
            f"column {name!r} of the answers holds {values.type}; items and sources are text or integers."
        )
    return _encode(values, feature)


def _read_labels(values: pa.Array, feature: Any, name: str, label_names: Sequence[str] | None) -> _Values:
    """Check the column of answers."""
    _check_given(values, name)
    values, types = _as_integers(values, name), pa.types
    if not (types.is_integer(values.type) or types.is_large_string(values.type) or types.is_boolean(values.type)):
        raise ValueError(
            f"column {name!r} of the answers holds {values.type}; answers are class numbers or class names."
        )
    if types.is_integer(values.type) and pc.any(pc.equal(values, -1)).as_py():
        line = pc.index(values, pa.scalar(-1, values.type)).as_py()
        raise ValueError(
            f"column {name!r} has -1 in line {line}, which stands for a missing vote. Leave lines without an answer "
            "out; if -1 is an answer, write the answers as text."
        )
    labels = _encode(values, feature)
    return labels if label_names is None else _as_classes(labels, name, list(map(str, label_names)))


def _as_classes(labels: _Values, name: str, label_names: list[str]) -> _Values:
    """Convert answers to class numbers. Integers are names if all of them are, and otherwise class numbers."""
    own = class_names(labels.feature)
    class_of = {label: number for number, label in enumerate(label_names)}
    given = labels.distinct.to_pylist()
    names = [own[value] if own else str(value) for value in given]
    if own is None and pa.types.is_integer(labels.distinct.type) and not all(label in class_of for label in names):
        class_of = {str(number): number for number in range(len(label_names))}
    for code, label in enumerate(names):
        if label not in class_of:
            line = int(np.argmax(labels.codes == code))
            raise ValueError(
                f"column {name!r} has {label if own is None and not isinstance(given[code], str) else repr(label)} in "
                f"line {line}, which is none of the classes {', '.join(label_names[:10])}"
                f"{', …' if len(label_names) > 10 else ''}. Correct it, or add it to label_names."
            )
    distinct = pa.array([class_of[label] for label in names], pa.int64())
    return _Values(labels.codes, distinct, ClassLabel(names=label_names))


def _check_given(values: pa.Array, name: str) -> None:
    missing = pc.fill_null(pc.is_null(values, nan_is_null=True), True)
    if pa.types.is_large_string(values.type):
        missing = pc.or_(missing, pc.fill_null(pc.equal(values, ""), True))
    if pc.any(missing).as_py():
        line = pc.index(missing, True).as_py()
        raise ValueError(
            f"column {name!r} of the answers has no value in line {line} (counted from 0). Leave such lines out: an "
            "item that a source did not answer needs no line."
        )


def _as_integers(values: pa.Array, name: str) -> pa.Array:
    """Convert whole numbers in a float column, which pandas makes of integers with gaps."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = whole_numbers(pa.chunked_array([values]))
    fractions = np.flatnonzero((numbers == NO_CLASS) & (values.to_numpy(zero_copy_only=False) != NO_CLASS))
    if len(fractions):
        line = int(fractions[0])
        raise ValueError(f"column {name!r} has {values[line].as_py()} in line {line}; it must hold integers or text.")
    return pa.array(numbers)


def _encode(values: pa.Array, feature: Any) -> _Values:
    encoded = values.dictionary_encode()
    if feature is None or pa.types.is_floating(feature.pa_type):
        kind = pa.string() if pa.types.is_large_string(values.type) else values.type
        feature = Features.from_arrow_schema(pa.schema([("value", kind)]))["value"]
    return _Values(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary, feature)


# ---------------------------------------------------------------------- gathering
def _distinct_lines(items: _Values, sources: _Values, labels: _Values, columns: tuple[str, str, str]) -> np.ndarray:
    """Return the lines to keep, by item; raise if a source gives two different answers on an item."""
    keys = items.codes * len(sources.distinct) + sources.codes
    order = np.argsort(keys, kind="stable")
    again = keys[order[1:]] == keys[order[:-1]]
    conflicts = np.flatnonzero(again & (labels.codes[order[1:]] != labels.codes[order[:-1]]))
    if len(conflicts):
        place = conflicts[np.argmin(order[conflicts + 1])]
        first, second = int(order[place]), int(order[place + 1])
        answers = [_show(labels, labels.codes[line]) for line in (first, second)]
        more = f" ({len(conflicts) - 1:,} more such pairs)" if len(conflicts) > 1 else ""
        raise ValueError(
            f"{columns[1]} {_show(sources, sources.codes[first])} gives two answers on {columns[0]} "
            f"{_show(items, items.codes[first])}: {answers[0]} in line {first} and {answers[1]} in line {second}, "
            f"counted from 0{more}. Keep one of them, for example the last."
        )
    return order[np.concatenate([[True], ~again])]


def _show(values: _Values, code: int) -> str:
    value, names = values.distinct[int(code)].as_py(), class_names(values.feature)
    return repr(names[value] if names and isinstance(value, int) else value)


def _sparse_votes(lines: np.ndarray, items: _Values, sources: _Values, labels: _Values) -> Votes:
    """Return the answers in these lines, ordered by item, as votes on all items, and on one more that has none. The
    sources are those of the lines, sorted; the labels are codes."""
    order = pc.array_sort_indices(sources.distinct).to_numpy().astype(np.int64)
    order = order[np.bincount(sources.codes[lines], minlength=len(order))[order] > 0]
    place_of = np.zeros(len(sources.distinct), dtype=np.int64)
    place_of[order] = np.arange(len(order))
    of_item, places = items.codes[lines], place_of[sources.codes[lines]]
    by_place = np.lexsort((places, of_item))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(of_item, minlength=len(items.distinct) + 1))])
    names = tuple(map(str, sources.distinct.take(pa.array(order)).to_pylist()))
    return Votes(names, offsets, places[by_place], labels.codes[lines[by_place]])


def _lists(votes: Votes, item_of_row: np.ndarray, labels: _Values, boundaries: Sequence[int]) -> pa.ChunkedArray:
    """Return the list of each row, with a new chunk at each row of `boundaries`; item -1 has no votes."""
    num_sources, num_rows = len(votes.names), len(item_of_row)
    distinct = labels.distinct.cast(labels.feature.pa_type)
    step = max(1, _PLACES // num_sources)
    chunks = []
    for start, stop in pairwise(sorted({0, num_rows, *boundaries, *range(0, num_rows, step)})):
        part = votes.select(item_of_row[start:stop] % len(votes))  # the last item has no votes
        codes = np.full((stop - start) * num_sources, -1, dtype=np.int64)
        codes[part.items * num_sources + part.sources] = part.labels
        offsets = np.arange(0, len(codes) + 1, num_sources, dtype=np.int32)
        chunks.append(pa.ListArray.from_arrays(pa.array(offsets), distinct.take(pa.array(codes, mask=codes < 0))))
    return pa.chunked_array(chunks, type=pa.list_(distinct.type))


def _items_of_rows(dataset: Any, row: str, items: _Values) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the item of each stored row (-1: no answers), and those of the rows that the user sees."""
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset= is a {type(dataset).__name__}; it must be a `datasets.Dataset`, for example a split."
        )
    if row not in dataset.column_names:
        raise ValueError(
            f"the dataset has no column {row!r} with the items of the answers; its columns are "
            f"{', '.join(dataset.column_names)}. Rename the column of the items with `rename_column`."
        )
    if VOTES_COLUMN in dataset.column_names:
        raise ValueError(f"the dataset has a column {VOTES_COLUMN!r} already: drop it with `remove_columns`.")
    kind = dataset.data.column(row).type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (pa.types.is_integer(kind) or texts) or texts != pa.types.is_large_string(items.distinct.type):
        raise ValueError(
            f"column {row!r} holds {kind} in the dataset and {items.feature.dtype} in the answers: make the types "
            f'equal, for example with `cast_column({row!r}, Value("string"))`.'
        )
    if column_in_order(dataset, row).null_count:
        number = pc.index(column_in_order(dataset, row).is_null(), True).as_py()
        raise ValueError(f"column {row!r} of the dataset has no value (None) in row {number}.")
    keys = pa.large_string() if texts else pa.int64()
    found = pc.index_in(dataset.data.column(row).cast(keys), value_set=items.distinct.cast(keys))
    stored = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    order = stored_rows(dataset)
    visible = stored if order is None else stored[order]
    answered = np.unique(visible[visible >= 0])
    if len(answered) == 0:
        ours, theirs = column_in_order(dataset, row)[:1].to_pylist(), items.distinct[:1].to_pylist()
        raise ValueError(
            f"no row of the dataset has answers: column {row!r} holds {', '.join(map(repr, ours)) or 'nothing'}, … in "
            f"the dataset and {theirs[0]!r}, … in the answers."
        )
    if len(answered) < len(items.distinct):
        missing = len(items.distinct) - len(answered)
        verb = "is" if missing == 1 else "are"
        logger.info(f"{format_count(missing, 'items')} with answers {verb} not in the dataset.")
    if (visible < 0).any():
        logger.info(f"{np.count_nonzero(visible < 0):,} of {len(visible):,} rows of the dataset have no answers.")
    return stored, answered
