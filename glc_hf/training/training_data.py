# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The training set of a run: which rows each stage and each estimation sees, for datasets in memory and streams."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from transformers.utils import logging

from glc_hf.labels.columns import USUAL_LABEL_COLUMNS, find_label_column, with_usual_label_column
from glc_hf.labels.reading import IGNORED_LABEL, Column, flags_of_row, read_flags, read_integers, read_labels
from glc_hf.methods.base import Items, Method, Part, Stage
from glc_hf.randomness import random_uint64
from glc_hf.training.batches import FlaggedRows
from glc_hf.training.checks import check_items
from glc_hf.training.inference import share_of_process


if TYPE_CHECKING:
    from glc_hf.training.config import GLCConfig
    from glc_hf.training.item_trainer import CorrectedTrainer
    from glc_hf.training.stages import StageTrainer


logger = logging.get_logger(__name__)


class TrainingData(Protocol):
    """What the stages ask of the training set."""

    label_column: str | None
    # Whether rows and items can be asked for by number.
    numbered: bool

    def check(self, method: Method) -> None:
        """Raises if the method can't work with these rows."""
        ...

    def for_training(self, trainer: CorrectedTrainer, stage: Stage, trusted_share: float) -> Any:
        """The dataset that a stage trains on."""
        ...

    def for_inference(
        self, trainer: StageTrainer, items: Items, part: Part, only: torch.Tensor | None, by_length: bool = False
    ) -> Any:
        """This process's share of the rows that hold such items (those numbered in `only`); `None` for no row. In
        their order, or texts of one length together, which leaves little to pad."""
        ...

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Each label's number among all that are not -100, for a batch of rows."""
        ...

    def numbers_of(self, items: Items, stage: Stage | None = None, part: Part = "all") -> np.ndarray:
        """The numbers of such items, ascending; of those alone that a stage was trained on, or held out."""
        ...

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """Labels as given, or another column's values, of such items."""
        ...

    def fingerprint(self) -> str | None:
        """Identifies labels, flags and number of rows; `None` where they can't be known."""
        ...

    def describe(self) -> dict[str, Any] | None:
        """Number of rows, and of given and trusted labels in total and per class; `None` for a stream."""
        ...


def training_data(
    dataset: Any, args: GLCConfig, num_labels: int | None, method: type[Method], held_out: np.ndarray | None = None
) -> TrainingData:
    """The rows of a `train_dataset`, checked; those numbered in `held_out` are no stage's."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return StreamData(dataset, args, method)
    if isinstance(dataset, dict):
        raise TypeError(f"train_dataset holds the splits {', '.join(dataset)}: give one of them, as in data['train'].")
    if not isinstance(dataset, datasets.Dataset):
        raise TypeError(
            f"train_dataset is a {type(dataset).__name__}; GLCTrainer reads labels and flags from a "
            "`datasets.Dataset` (or a `datasets.IterableDataset`). `Dataset.from_list(rows)` and "
            "`Dataset.from_generator(…)` make one."
        )
    return MapData(dataset, args, num_labels, method, held_out)


class MapData:
    """A `datasets.Dataset`: row numbers over the user's own dataset."""

    numbered = True

    def __init__(
        self,
        dataset: datasets.Dataset,
        args: GLCConfig,
        num_labels: int | None,
        method: type[Method],
        held_out: np.ndarray | None = None,
    ) -> None:
        self.args = args
        self.num_labels = num_labels
        self.rows = LabelledRows(
            dataset,
            args.label_column,
            args.trusted_column,
            num_labels,
            method.name,
            needs_flags=method.needs_trusted,
            held_out=held_out,
        )
        self.label_column = self.rows.label_column

    def check(self, method: Method) -> None:
        """See [`TrainingData`]."""
        check_items(method, self.rows.count("trusted"), self.rows.count("untrusted"), self.args.trusted_column)

    def _parts(self, stage: Stage) -> tuple[np.ndarray, np.ndarray]:
        return self.rows.split(self.rows.rows_with(stage.items), stage.held_out, self.args.seed)

    def _part(self, stage: Stage, part: Part) -> np.ndarray:
        return self._parts(stage)[0 if part == "trained" else 1]

    def for_training(self, trainer: CorrectedTrainer, stage: Stage, trusted_share: float) -> FlaggedRows:
        """See [`TrainingData`]."""
        rows = self._parts(stage)[0]
        if stage.items == "all" and trusted_share > 0.0:
            rows = self.rows.upsampled(trusted_share, self.args.seed)
            natural = self.rows.num_rows - len(self.rows.held_out)
            if len(rows) > natural:
                logger.info(
                    f"Trusted rows are repeated to {trusted_share:.0%} of the last stage: {len(rows):,} rows an epoch "
                    f"instead of {natural:,} (trusted_share=0 turns this off)."
                )
        dataset = trainer._without_unused_columns(trainer.train_dataset)
        return self.rows.view(rows, dataset, self.args.trusted_column)

    def for_inference(
        self,
        trainer: StageTrainer,
        items: Items,
        part: Part,
        only: torch.Tensor | None = None,
        by_length: bool = False,
    ) -> FlaggedRows | None:
        """See [`TrainingData`]."""
        rows = self.rows.rows_with(items) if only is None else self.rows.rows_of_items(only.numpy())
        if part != "all":
            rows = np.intersect1d(rows, self._part(trainer.stage, part))
        if len(rows) == 0:
            return None
        rows = share_of_process(rows, trainer.accelerator.process_index, trainer.accelerator.num_processes)
        if by_length:
            rows = self.rows.by_length(rows)
        dataset = trainer._without_unused_columns(trainer.train_dataset)
        return self.rows.view(rows, dataset, self.args.trusted_column)

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See [`TrainingData`]."""
        return self.rows.item_numbers(rows, labels)

    def numbers_of(self, items: Items, stage: Stage | None = None, part: Part = "all") -> np.ndarray:
        """See [`TrainingData`]."""
        numbers = self.rows.numbers_of(items)
        return numbers if part == "all" else numbers[np.isin(self.rows.row_of(numbers), self._part(stage, part))]

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """See [`TrainingData`]."""
        return self.rows.item_labels(items, column)

    def fingerprint(self) -> str:
        """See [`TrainingData`]."""
        return self.rows.fingerprint

    def describe(self) -> dict[str, Any]:
        given = np.bincount(self.item_labels("all"), minlength=self.num_labels)
        trusted = np.bincount(self.item_labels("trusted"), minlength=self.num_labels)
        return {
            "train_rows": self.rows.num_rows,
            "labels": int(given.sum()),
            "trusted": int(trusted.sum()),
            "given_by_class": given.tolist(),
            "trusted_by_class": trusted.tolist(),
        }


class StreamData:
    """An `IterableDataset`: filtered on the fly by the flag that each example carries."""

    numbered = False

    def __init__(self, dataset: Any, args: GLCConfig, method: type[Method]) -> None:
        if not isinstance(dataset, datasets.IterableDataset):
            raise TypeError(
                f"train_dataset is a {type(dataset).__name__}; a stream is filtered by its flags, which a "
                "`datasets.IterableDataset` can: `IterableDataset.from_generator(…)` makes one."
            )
        self.dataset = dataset
        self.args = args
        columns = dataset.column_names
        if columns is not None and args.trusted_column not in columns and method.needs_trusted:
            raise ValueError(
                f"the stream has no column {args.trusted_column!r} (it has {', '.join(columns)}): the flag must be in "
                "the stream. `mark_trusted` adds it, and `GLCConfig(trusted_column=…)` names another."
            )
        # Where the columns are not known, as after `map`, the label may have any usual name.
        self.label_column = find_label_column(dataset, args.label_column) if columns is not None else args.label_column

    def check(self, method: Method) -> None:
        """See [`TrainingData`]."""
        if method.needs_item_numbers:
            raise ValueError(f"method {method.name!r} needs row numbers, which a stream has not: use a `Dataset`.")
        if any(stage.held_out for stage in [*method.first_stages(), method.last_stage()]):
            raise ValueError(
                f"method {method.name!r} with these settings holds rows out of a stage, which a stream can't: use a "
                "`Dataset`, or leave out `calibrate`."
            )
        if any(stage.mode == "probe" for stage in method.first_stages()):
            raise ValueError(
                "stage1='probe' keeps the features of each row by its number, which a stream has not: use a "
                "`Dataset`, or stage1='short'."
            )
        if method.upsamples_trusted and self.args.trusted_share > 0.0:
            logger.warning(
                "a stream is read as it comes: trusted_share is not reached by repeating rows. Repeat the trusted "
                "examples in the stream itself if they are rare, or set trusted_share=0 to silence this."
            )

    def _filtered(self, items: Items) -> Any:
        if items == "all":
            return self.dataset
        wanted = items == "trusted"
        column = self.args.trusted_column
        return self.dataset.filter(lambda flag: np.any(flags_of_row(flag, column) == wanted), input_columns=[column])

    def _named(self, items: Items, label_name: str) -> Any:
        return with_usual_label_column(self._filtered(items), self.label_column, label_name)

    def for_training(self, trainer: CorrectedTrainer, stage: Stage, trusted_share: float) -> Any:
        """See [`TrainingData`]."""
        return self._named(stage.items, trainer._label_name)

    def for_inference(
        self,
        trainer: StageTrainer,
        items: Items,
        part: Part,
        only: torch.Tensor | None = None,
        by_length: bool = False,
    ) -> Any:
        """See [`TrainingData`]; `check` has seen to it that neither parts nor numbers are asked for."""
        return self._named(items, trainer._label_name)

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See [`TrainingData`]."""
        raise ValueError("the items of a stream have no numbers.")

    def numbers_of(self, items: Items, stage: Stage | None = None, part: Part = "all") -> np.ndarray:
        """See [`TrainingData`]."""
        raise ValueError("the items of a stream have no numbers.")

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """See [`TrainingData`]."""
        flag = self.args.trusted_column if items != "all" else None
        dataset = self._filtered(items)
        if dataset.column_names is not None:  # nothing else is decoded
            dataset = dataset.select_columns([name for name in (self.label_column, flag, column) if name is not None])
        found = [np.empty(0, dtype=np.int64)]
        for row in dataset:
            label_column = self.label_column or next((name for name in USUAL_LABEL_COLUMNS if name in row), None)
            if label_column is None:
                raise ValueError(f"a row of the stream has no labels (its keys: {', '.join(row)}): say label_column=.")
            labels = np.atleast_1d(row[label_column])
            values = labels if column is None else np.atleast_1d(row[column])
            if len(values) != len(labels):
                raise ValueError(f"column {column!r} has not one value for each label of {label_column!r}.")
            chosen = labels != IGNORED_LABEL
            if flag is not None:
                chosen &= flags_of_row(row[flag], flag) == (items == "trusted")
            found.append(values[chosen].astype(np.int64))
        return np.concatenate(found)

    def fingerprint(self) -> None:
        """See [`TrainingData`]."""
        return

    def describe(self) -> None:
        return


class LabelledRows:
    """
    Labels and flags of a training set, one entry an item (a row, or a token of a row).

    Args:
        dataset (`datasets.Dataset`): The training set with its flag column.
        label_column (`str`, *optional*): The labels' column; found by itself when it has a usual name.
        trusted_column (`str`): The flags' column.
        num_labels (`int`, *optional*): K, to check the labels against.
        needs_flags (`bool`): Whether a missing flag column is an error.
        held_out (`np.ndarray`, *optional*): Numbers of rows that no stage and no estimate sees.
    """

    def __init__(
        self,
        dataset: Any,
        label_column: str | None,
        trusted_column: str,
        num_labels: int | None,
        method: str,
        needs_flags: bool = True,
        held_out: np.ndarray | None = None,
    ) -> None:
        self.dataset = dataset
        self.num_rows = len(dataset)
        self.label_column = find_label_column(dataset, label_column)
        self.labels = read_labels(dataset, self.label_column, num_labels)
        if not needs_flags and trusted_column not in dataset.column_names:
            self.flags = Column(np.zeros(self.num_rows, dtype=bool), None)
        else:
            self.flags = read_flags(dataset, trusted_column, method=method)
        if self.flags.offsets is not None and not _same_lengths(self.flags, self.labels):
            raise ValueError(
                f"the flags in {trusted_column!r} are lists, but not of the lengths of the labels in "
                f"{self.label_column!r}: one flag belongs to each label (special tokens, labelled -100, take False)."
            )
        offsets = self.labels.offsets
        lengths = np.diff(offsets) if offsets is not None else np.ones(self.num_rows, dtype=np.int64)
        self._row_of_item = np.repeat(np.arange(self.num_rows), lengths)
        self._trusted_item = (
            self.flags.values if self.flags.offsets is not None else np.repeat(self.flags.values, lengths)
        )
        self._counted = self.labels.values != IGNORED_LABEL
        self.held_out = np.empty(0, dtype=np.int64) if held_out is None else held_out
        self._counted[np.isin(self._row_of_item, self.held_out)] = False
        # The number of each row's first item, -100 not counted.
        self._first_item = np.concatenate(
            [[0], np.cumsum(np.bincount(self._row_of_item[self._counted], minlength=self.num_rows))]
        )

    def _chosen(self, items: Items) -> np.ndarray:
        if items == "all":
            return self._counted
        return self._counted & (self._trusted_item if items == "trusted" else ~self._trusted_item)

    def counted_items(self) -> tuple[np.ndarray, np.ndarray]:
        """For every label, -100 too: whether it counts, and whether it is trusted."""
        return self._counted, self._trusted_item

    def count(self, items: Items) -> int:
        """How many labels are of that kind; -100 does not count."""
        return int(self._chosen(items).sum())

    def rows_with(self, items: Items) -> np.ndarray:
        """The numbers of the rows that hold at least one such label, ascending."""
        return np.unique(self._row_of_item[self._chosen(items)])

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Each label's number among all that are not -100, for a batch of whole rows; meaningless at -100."""
        first = torch.from_numpy(self._first_item)[torch.where(rows < 0, -1 - rows, rows).cpu()]
        if labels.dim() == 1:
            return first
        return first.unsqueeze(1) + ((labels != IGNORED_LABEL).cumsum(dim=1) - 1).clamp(min=0).cpu()

    def numbers_of(self, items: Items) -> np.ndarray:
        """The numbers of those items, ascending."""
        return np.flatnonzero(self._chosen(items)[self._counted])

    def rows_of_items(self, numbers: np.ndarray) -> np.ndarray:
        """The rows that hold the items of these numbers, ascending, each once."""
        return np.unique(self.row_of(numbers))

    def row_of(self, numbers: np.ndarray) -> np.ndarray:
        """The row that holds each of the items."""
        return np.searchsorted(self._first_item, numbers, side="right") - 1

    def by_length(self, rows: np.ndarray) -> np.ndarray:
        """The same row numbers (−1−i standing for i), texts of one length together; as they are without texts."""
        lengths = self._lengths
        if lengths is None:
            return rows
        return rows[np.argsort(lengths[np.where(rows < 0, -1 - rows, rows)], kind="stable")]

    @cached_property
    def _lengths(self) -> np.ndarray | None:
        """How many tokens each row has, read off Arrow; `None` where rows are no lists of tokens."""
        if "input_ids" not in self.dataset.column_names:
            return None
        column = self.dataset.data.column("input_ids")
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            return None
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        indices = self.dataset._indices
        return lengths if indices is None else lengths[indices.column(0).to_numpy()]

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """The labels of those items as given, or the values of another column for them."""
        chosen = self._chosen(items)
        if column is None:
            return self.labels.values[chosen].astype(np.int64, copy=False)
        # Of the rows asked for alone: elsewhere the column may well be empty.
        rows = self.rows_with(items)
        values = read_integers(self.dataset.select(rows), column).values
        among_them = np.isin(self._row_of_item, rows)
        if len(values) != among_them.sum():
            raise ValueError(f"column {column!r} has not one value for each label of {self.label_column!r}.")
        return values[chosen[among_them]].astype(np.int64, copy=False)

    def upsampled(self, share: float, seed: int) -> np.ndarray:
        """All row numbers, those with trusted labels repeated until they make up `share` of the list. The repetitions
        beyond whole rounds are the rows with the smallest random words: they depend on `seed` and the rows alone."""
        rows = np.setdiff1d(np.arange(self.num_rows), self.held_out)
        trusted = self.rows_with("trusted")
        others = len(rows) - len(trusted)
        wanted = round(share * others / (1.0 - share))
        if len(trusted) == 0 or wanted <= len(trusted):
            return rows
        rounds, rest = divmod(wanted - len(trusted), len(trusted))
        order = np.argsort(random_uint64("upsample", seed, trusted), kind="stable")
        return np.concatenate([rows, np.tile(trusted, rounds), trusted[np.sort(order[:rest])]])

    def split(self, rows: np.ndarray, held_out: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Parts row numbers into (kept, held out), at least one each where there are two."""
        if held_out <= 0.0 or len(rows) < 2:
            return rows, rows[:0]
        number = min(max(1, round(held_out * len(rows))), len(rows) - 1)
        order = np.argsort(random_uint64("hold out", seed, rows), kind="stable")
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[order[:number]] = True
        return rows[~chosen], rows[chosen]

    @cached_property
    def fingerprint(self) -> str:
        """Changes when a label, a flag, the number of rows or what is held out does."""
        digest = hashlib.blake2b(digest_size=16)
        for column in (self.labels, self.flags):
            digest.update(np.ascontiguousarray(column.values).astype(np.int64).tobytes())
            digest.update(b"rows" if column.offsets is None else np.ascontiguousarray(column.offsets).tobytes())
        digest.update(self.held_out.tobytes())
        return digest.hexdigest()

    def view(self, rows: np.ndarray, dataset: Any, trusted_column: str) -> FlaggedRows:
        """The chosen rows as a map-style dataset; `dataset` may have lost columns that the model does not take."""
        return FlaggedRows(dataset, rows, self.flags, trusted_column)


def _same_lengths(first: Column, second: Column) -> bool:
    if first.offsets is None or second.offsets is None:
        return first.offsets is None and second.offsets is None and len(first.values) == len(second.values)
    return np.array_equal(np.diff(first.offsets), np.diff(second.offsets))
