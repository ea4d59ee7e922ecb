# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes of several sources, read from Arrow and checked: one column per source, or one column of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glc_hf.labels.encoding import MISSING_RULE, NO_CLASS, NO_VOTE, VoteEncoder, whole_numbers
from glc_hf.labels.label_batch import Votes
from glc_hf.labels.reading import (
    IGNORED_LABEL,
    Column,
    check_labels,
    check_same_lengths,
    class_names,
    parse_integers,
    require_column,
)
from glc_hf.labels.storage import RowIndex, column_in_order, flat_values, is_list_type, value_type
from glc_hf.randomness import uniform_bits


if TYPE_CHECKING:
    from datasets import Dataset


# Places of lists that are converted at a time.
_PLACES = 2**20


def read_votes(
    dataset: Dataset,
    source_columns: Sequence[str] | None = None,
    votes_column: str | None = None,
    label_names: Sequence[str] | None = None,
    num_labels: int | None = None,
    source_names: Sequence[str] | None = None,
    label_column: str | None = None,
    trusted_column: str | None = None,
    clean_column: str | None = "clean_label",
    require_votes: bool = True,
    by_name: bool | None = None,
    index: RowIndex | None = None,
) -> Votes:
    """
    Read the votes of several sources and check that each is a class. Give either `source_columns` or `votes_column`.

    Votes are class numbers (whole numbers in a float column too, which is how CSV files with gaps are read), classes
    of a `ClassLabel`, or class names. `None`, -1, NaN and empty text are missing votes. Integers next to classes with
    names are read as [`~glc_hf.labels.encoding.encode_labels`] reads them: as names if all votes of all sources are
    names, and otherwise as class numbers.

    Args:
        dataset (`datasets.Dataset`): May be shuffled, selected or formatted.
        source_columns (`Sequence[str]`, *optional*):
            One column per source: one vote per row, or one list of votes per row for token labels. Lists have one
            place per token, and -100 is a missing vote too. `None` instead of a list: no vote on any token of the row.
        votes_column (`str`, *optional*):
            Column of lists with one place per source, the same number in every row. `None` instead of a list: no
            votes on the row.
        label_names (`Sequence[str]`, *optional*): Names of the classes; needed to read votes that are names.
        num_labels (`int`, *optional*): K. By default the number of names; without names, any number is a class.
        source_names (`Sequence[str]`, *optional*): By default the columns, or `"0"`, `"1"`, … for `votes_column`.
        label_column, trusted_column, clean_column (`str`, *optional*):
            Columns that are no source. The items of the votes are those of `label_column`, if it exists.
        require_votes (`bool`, *optional*, defaults to `True`):
            Whether a source without any vote is an error. Part of a dataset may lack the votes of some sources.
        by_name (`bool`, *optional*):
            Whether integers are names of classes; by default as [`integers_are_names`] finds for this dataset.
        index ([`~glc_hf.labels.storage.RowIndex`], *optional*): Names the rows in errors.

    Returns:
        [`~glc_hf.labels.label_batch.Votes`] with one item per row, or per token (those with the label -100 included).
    """
    if (source_columns is None) == (votes_column is None):
        given = "both are given" if votes_column is not None else "neither is given"
        raise ValueError(
            f"votes are read from source_columns (one column per source) or from votes_column (one column of lists), "
            f"but {given}: give one of them."
        )
    if label_names is not None:
        num_labels = len(label_names)
    others = {"label_column": label_column, "trusted_column": trusted_column, "clean_column": clean_column}
    columns = check_source_columns(dataset.column_names, source_columns, votes_column, others)
    by_name = integers_are_names(dataset, columns, label_names) if by_name is None else by_name
    index = index or RowIndex()
    if source_columns is not None:
        names = _source_names(source_names, columns, f"there are {len(columns)} source_columns")
        offsets = item_offsets(dataset, columns, label_column, index)
        votes = _read_columns(dataset, columns, names, label_names, num_labels, offsets, by_name, index)
    else:
        _check_labels_per_row(dataset, columns[0], label_column)
        votes = _read_lists(dataset, columns[0], source_names, label_names, num_labels, by_name, index)
    if require_votes:
        _check_every_source_votes(votes, source_columns is not None)
    return votes


def check_source_columns(
    names: Sequence[str],
    source_columns: Sequence[str] | None,
    votes_column: str | None,
    others: dict[str, str | None],
) -> list[str]:
    """
    Return the columns of the votes; raise if one does not exist, is named twice or has another role.

    Args:
        names (`Sequence[str]`): The columns of the dataset.
        source_columns, votes_column: As in [`read_votes`].
        others (`dict[str, str | None]`): Columns with another role, by the argument that names them.
    """
    argument = "votes_column" if source_columns is None else "source_columns"
    if isinstance(source_columns, str):
        raise ValueError(f"source_columns is the text {source_columns!r}; it must be a list of columns.")
    columns: list[Any] = [votes_column] if source_columns is None else list(source_columns)
    if not columns:
        raise ValueError("source_columns is empty: name at least one column of votes.")
    for column in columns:
        if columns.count(column) > 1:
            raise ValueError(f"source_columns names {column!r} twice: each source has a column of its own.")
        for role, other in others.items():
            if column == other:
                raise ValueError(
                    f"column {column!r} is the {role} and can't be a source of votes too: leave it out of {argument}, "
                    f"or name another {role}."
                )
        require_column(names, column, f"column of {argument}")
    return columns


def item_offsets(
    dataset: Dataset, source_columns: Sequence[str], label_column: str | None, index: RowIndex
) -> np.ndarray | None:
    """
    Return the offsets of the items of each row (as in [`~glc_hf.labels.reading.Column`]) if votes and labels are lists
    with one place per token; `None` if each row is one item.

    A row without a list of labels has as many items as a source has votes on it. Raises if columns disagree; `index`
    names the row.
    """
    columns = list(source_columns)
    if label_column is not None and label_column in dataset.column_names:
        columns = [label_column, *columns]
    kinds = {name: dataset.data.column(name).type for name in columns}
    lists = [name for name, kind in kinds.items() if is_list_type(kind)]
    if not lists:
        return None
    single = [name for name, kind in kinds.items() if not is_list_type(kind) and not pa.types.is_null(kind)]
    if single:
        raise ValueError(
            f"column {lists[0]!r} holds lists, one value per token, but {single[0]!r} has one value per row: labels "
            "and votes must be of the same kind. A list with one place per source is a votes_column."
        )
    lengths = np.full(len(dataset), -1, dtype=np.int64)
    first_of = np.zeros(len(dataset), dtype=np.int64)  # the column that the length is from
    for number, name in enumerate(lists):
        own = pc.fill_null(pc.list_value_length(column_in_order(dataset, name)), -1).to_numpy().astype(np.int64)
        different = (own >= 0) & (lengths >= 0) & (own != lengths)
        if different.any():
            row = int(np.argmax(different))
            raise ValueError(
                f"{index.name(row)} has {own[row]} values in column {name!r} and {lengths[row]} in "
                f"{lists[first_of[row]]!r}; lists have one place per token. Write None where a source has no vote."
            )
        first_of[(lengths < 0) & (own >= 0)] = number
        lengths = np.maximum(lengths, own)
    return np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))]).astype(np.int64)


# ---------------------------------------------------------------------- one column per source
def _read_columns(
    dataset: Dataset,
    columns: list[str],
    names: tuple[str, ...],
    label_names: Sequence[str] | None,
    num_labels: int | None,
    offsets: np.ndarray | None,
    by_name: bool,
    index: RowIndex,
) -> Votes:
    features, data = dataset.features, {name: column_in_order(dataset, name) for name in columns}
    num_items = len(dataset) if offsets is None else int(offsets[-1])
    found: list[tuple[np.ndarray, np.ndarray]] = []
    own_names: list[str] | None = None
    for column, source in zip(columns, names, strict=True):
        encode = VoteEncoder(
            data[column], column, class_names(features[column]), label_names, num_labels, by_name, own_names
        )
        own_names = own_names or encode.own_names
        values, places = _values_of_items(data[column], offsets)
        codes = encode(values, missing=(NO_VOTE,) if offsets is None else (NO_VOTE, IGNORED_LABEL))
        bad = np.flatnonzero(codes == NO_CLASS)[:1]
        if len(bad):
            item = int(bad[0] if places is None else places[bad[0]])
            raise encode.error(values[int(bad[0])].as_py(), source, index.name_value(item, offsets))
        given = np.flatnonzero(codes >= 0)
        found.append((given if places is None else places[given], codes[given]))
        del data[column]
    counts = np.zeros(num_items, dtype=np.int64)
    for items, _ in found:
        counts[items] += 1
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    sources, labels = np.empty(first[-1], dtype=np.int64), np.empty(first[-1], dtype=np.int64)
    following = first[:-1].copy()  # where the next vote on each item goes
    for number, (items, own) in enumerate(found):
        places = following[items]
        sources[places], labels[places] = number, own
        following[items] += 1
    return Votes(names, first, sources, labels)


def _values_of_items(column: pa.ChunkedArray, offsets: np.ndarray | None) -> tuple[pa.ChunkedArray, np.ndarray | None]:
    """Return the values of a column and, if some rows have no list, the item of each value."""
    if offsets is None:
        return column, None
    if not is_list_type(column.type):  # a column of None
        return column.slice(0, 0), np.empty(0, dtype=np.int64)
    values, _ = flat_values(column)
    if not column.null_count:
        return values, None
    given = np.repeat(column.is_valid().to_numpy(), np.diff(offsets))
    return values, np.flatnonzero(given)


# ---------------------------------------------------------------------- one column of lists
def _read_lists(
    dataset: Dataset,
    column: str,
    source_names: Sequence[str] | None,
    label_names: Sequence[str] | None,
    num_labels: int | None,
    by_name: bool,
    index: RowIndex,
) -> Votes:
    lists = column_in_order(dataset, column)
    if not is_list_type(lists.type):
        raise ValueError(
            f"votes_column {column!r} holds {lists.type}; it must hold lists with one place per source. Columns with "
            "one vote per row are source_columns."
        )
    num_sources = _check_lengths(lists, column, index)
    names = _source_names(source_names, num_sources, f"the lists in column {column!r} have {num_sources} places")
    own = class_names(dataset.features[column])
    encode = VoteEncoder(lists, column, own, label_names, num_labels, by_name)
    counts, parts = [np.zeros(1, dtype=np.int64)], [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
    step = max(1, _PLACES // max(1, num_sources))
    for start in range(0, len(lists), step):
        rows = lists.slice(start, step)
        values, _ = flat_values(rows)
        codes = encode(values)
        given = np.flatnonzero(codes >= 0)
        row_of_list = np.flatnonzero(rows.is_valid().to_numpy())
        bad = np.flatnonzero(codes == NO_CLASS)[:1]
        if len(bad):
            row, source = divmod(int(bad[0]), num_sources)
            name = index.name(start + int(row_of_list[row]))
            raise encode.error(values[int(bad[0])].as_py(), names[source], name)
        counts.append(np.bincount(row_of_list[given // max(1, num_sources)], minlength=len(rows)))
        parts.append((given % max(1, num_sources), codes[given]))
    sources, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Votes(names, np.cumsum(np.concatenate(counts)), sources, labels)


def _check_lengths(lists: pa.ChunkedArray, column: str, index: RowIndex) -> int:
    """Return the length of all lists."""
    lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy()
    rows = np.flatnonzero(lengths >= 0)
    if len(rows) == 0:
        raise ValueError(f"votes_column {column!r} has no lists: there are no votes to read.")
    different = rows[lengths[rows] != lengths[rows[0]]]
    if len(different):
        raise ValueError(
            f"{index.name(int(different[0]))} has {lengths[different[0]]} votes in column {column!r} and "
            f"{index.name(int(rows[0]))} has {lengths[rows[0]]}; lists have one place per source in every row. "
            "Write None where a source has no vote, or make the lists with `gather_votes`."
        )
    if lengths[rows[0]] == 0:
        raise ValueError(f"the lists in votes_column {column!r} are empty; they must have one place per source.")
    return int(lengths[rows[0]])


# ---------------------------------------------------------------------- checks
def _source_names(given: Sequence[str] | None, sources: int | list[str], number: str) -> tuple[str, ...]:
    default = [str(source) for source in range(sources)] if isinstance(sources, int) else sources
    names = tuple(default if given is None else map(str, given))
    if len(names) != len(default):
        raise ValueError(f"source_names has {len(names)} names, but {number}: give one name per source.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"source_names has {twice!r} twice: each source needs a name of its own.")
    return names


def _check_labels_per_row(dataset: Dataset, votes_column: str, label_column: str | None) -> None:
    if label_column in dataset.column_names and is_list_type(dataset.data.column(label_column).type):
        raise ValueError(
            f"votes_column {votes_column!r} has one vote of each source per row, but column {label_column!r} has "
            "lists of labels. For token labels use source_columns, one column of lists per source."
        )


def _check_every_source_votes(votes: Votes, in_columns: bool) -> None:
    silent = np.flatnonzero(np.bincount(votes.sources, minlength=len(votes.names)) == 0)
    if len(silent) == 0:
        return
    names = ", ".join(repr(votes.names[source]) for source in silent[:5]) + (", …" if len(silent) > 5 else "")
    who = f"source {names} never votes" if len(silent) == 1 else f"{len(silent)} sources never vote: {names}"
    where = "it from source_columns" if in_columns else "its place from the lists, for example with `gather_votes`"
    it = "it" if len(silent) == 1 else "them"
    raise ValueError(f"{who} ({MISSING_RULE}). Nothing can be learned about {it}: remove {where}.")


def integers_are_names(dataset: Dataset, columns: Sequence[str], label_names: Sequence[str] | None) -> bool:
    """Whether the integers in these columns are names of classes, such as 1 to 5 stars, and not class numbers."""
    if label_names is None or not any(str(name).isdigit() for name in label_names):
        return False
    known, types = set(map(str, label_names)), pa.types
    votes = [column_in_order(dataset, name) for name in columns if class_names(dataset.features[name]) is None]
    distinct = [
        whole_numbers(pa.chunked_array([flat_values(column)[0].unique()]))
        for column in votes
        if types.is_integer(value_type(column)) or types.is_floating(value_type(column))
    ]
    return bool(distinct) and all(
        str(number) in known for number in np.unique(np.concatenate(distinct)).tolist() if number >= 0
    )


# ---------------------------------------------------------------------- labels of items with votes
class FilledLabels(NamedTuple):
    """
    Labels of all items of a dataset with votes.

    Attributes:
        labels: The item's own label, else the majority vote, else -100. Its items are those of the votes.
        given: Whether each item has a label of its own.
        unlabeled: Numbers of the items with neither a label nor a vote.
    """

    labels: Column
    given: np.ndarray
    unlabeled: np.ndarray


def fill_labels(
    dataset: Dataset,
    votes: Votes,
    label_column: str | None,
    flags: Column,
    num_labels: int | None = None,
    source_columns: Sequence[str] = (),
    trusted_column: str = "trusted",
    index: RowIndex | None = None,
) -> FilledLabels:
    """
    Return a label for every item: where an untrusted item has none (`None` or -1), the majority of its votes.

    Args:
        dataset (`datasets.Dataset`): The dataset that the votes were read from.
        votes (`Votes`): Read by [`read_votes`] with the same `label_column` and `source_columns`.
        label_column (`str`, *optional*): Column of class numbers. `None`, or no such column: no item has a label.
        flags (`Column`): The trusted flags. A trusted item without a label is an error.
        num_labels (`int`, *optional*): K.
        source_columns (`Sequence[str]`, *optional*): Columns of the votes, if they have one per source.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): Column of the flags, for messages.
        index ([`~glc_hf.labels.storage.RowIndex`], *optional*): Names the rows in errors.
    """
    index = index or RowIndex()
    exists = label_column in dataset.column_names
    offsets = item_offsets(dataset, source_columns, label_column, index)
    numbers = np.full(len(votes), NO_VOTE, dtype=np.int64)
    if label_column is not None and exists:
        values, items = _values_of_items(column_in_order(dataset, label_column), offsets)
        if not (pa.types.is_floating(values.type) or pa.types.is_null(values.type)):
            parse_integers(values.slice(0, 0), label_column)  # raises for other types
        numbers[slice(None) if items is None else items] = whole_numbers(values)
        fractions = np.flatnonzero(numbers == NO_CLASS)[:1]
        if pa.types.is_floating(values.type) and len(fractions):
            row = index.name_value(int(fractions[0]), offsets)
            raise ValueError(f"a label in column {label_column!r}, {row}, is not a class: classes are whole numbers.")
    trusted = flags.values
    if offsets is not None:
        check_same_lengths(Column(numbers, offsets), flags, index)
        trusted = np.repeat(trusted, np.diff(offsets)) if flags.offsets is None else trusted
    missing = numbers == NO_VOTE
    if (missing & trusted).any():
        row = index.name_value(int(np.argmax(missing & trusted)), offsets)
        where = f"has no label in column {label_column!r}" if exists else "there is no column of labels"
        raise ValueError(
            f"{row} is trusted, but {where}. Trusted rows need the correct label: write it, or set "
            f"{trusted_column!r} to false in this row. Only untrusted rows can have votes without a label."
        )
    # A missing label is not an error here, so it is checked as a class that exists.
    check_labels(Column(np.where(missing, 0, numbers), offsets), num_labels, label_column or "label", index)
    majority = majority_vote(votes, num_labels)
    filled = np.where(missing, np.where(majority < 0, IGNORED_LABEL, majority), numbers)
    return FilledLabels(Column(filled, offsets), numbers >= 0, np.flatnonzero(missing & (majority < 0)))


def majority_vote(votes: Votes, num_labels: int | None = None) -> np.ndarray:
    """
    Return the class with most votes of each item; -1 for an item without votes. Of classes with equally many, one at
    random, the same one each time: a fixed choice would favor a class in every tie.
    """
    num_labels = num_labels or int(votes.labels.max(initial=0)) + 1
    result = np.full(len(votes), NO_VOTE, dtype=np.int64)
    step = max(1, _PLACES // num_labels)
    for start in range(0, len(votes), step):
        items = np.arange(start, min(start + step, len(votes)))
        counts = votes.select(items).counts(num_labels)
        voted, classes = np.nonzero(counts)
        draws = uniform_bits("majority vote", 0, items[voted], classes) / 2.0**40
        scores = np.zeros(counts.shape)
        scores[voted, classes] = counts[voted, classes] + draws
        result[items] = np.where(counts.any(axis=1), scores.argmax(axis=1), NO_VOTE)
    return result
