# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The training set of a run: which rows each stage and each estimate uses, for datasets in memory and for streams."""

from __future__ import annotations

import math
from typing import Any

import datasets
import numpy as np
import torch
from transformers.utils import logging

from glc_hf.correction.sources import SourceModel
from glc_hf.labels.columns import USUAL_LABEL_COLUMNS, find_label_column, with_usual_label_column
from glc_hf.labels.label_batch import SoftLabels, Votes
from glc_hf.labels.labeled_rows import Items, LabeledRows
from glc_hf.labels.reading import (
    IGNORED_LABEL,
    flags_of_row,
)
from glc_hf.methods.base import Method, Part, Stage
from glc_hf.randomness import random_uint64
from glc_hf.training.batches import FlaggedRows, MixedSampler
from glc_hf.training.config import GLCConfig
from glc_hf.voted.voted_rows import VotedRows, label_column_of
from glc_hf.voted.voted_streams import VotedStream


logger = logging.get_logger(__name__)


def training_data(
    dataset: Any,
    args: GLCConfig,
    num_labels: int | None,
    method: type[Method],
    held_out: np.ndarray | None = None,
    voted: VotedRows | VotedStream | None = None,
    soft: np.ndarray | None = None,
    label_column: str | None = None,
) -> TrainingData:
    """The rows of a `train_dataset`, checked. Rows in `held_out` are not used by any stage. `voted` are the rows with
    their votes, and `soft` the soft labels of all rows. `label_column` is that of `args` or the one that was found."""
    if isinstance(voted, VotedStream):
        rows = voted.read
        column = label_column_of(rows.dataset, args)
        read = MapData(rows.dataset, args, num_labels, method, rows.unused, rows.votes, label_column=column)
        return StreamData(dataset, args, method, read, voted.model)
    if isinstance(dataset, datasets.IterableDataset):
        return StreamData(dataset, args, method)
    if isinstance(dataset, dict):
        raise TypeError(
            f"train_dataset contains the splits {', '.join(dataset)}: pass one of them, as in data['train']."
        )
    votes = None
    if voted is not None:
        votes, held_out = voted.votes, np.union1d(voted.unused, [] if held_out is None else held_out).astype(np.int64)
    return MapData(dataset, args, num_labels, method, held_out, votes, soft, label_column)


class TrainingData:
    """What the stages ask of the training set. An item is one label: a row, or a token of a row."""

    label_column: str | None
    # Whether rows and items have numbers.
    numbered: bool
    # The votes of several sources on each item, by its number; in a stream, on the items that were read.
    votes: Votes | None = None
    # What the votes on a stream say.
    stream_sources: SourceModel | None = None
    # Their soft labels.
    soft_labels: SoftLabels | None = None

    def check(self, method: Method) -> None:
        """Raise if the method can't work with these rows."""
        raise NotImplementedError

    def for_training(self, trainer: Any, stage: Stage, trusted_share: float) -> Any:
        """The dataset that a stage trains on."""
        raise NotImplementedError

    def for_inference(
        self, trainer: Any, items: Items, part: Part, only: torch.Tensor | None = None, by_length: bool = False
    ) -> Any:
        """This process's share of the rows that have such items (or those numbered in `only`); `None` if there are
        none. With `by_length`, texts of similar length come together, which saves padding."""
        raise NotImplementedError

    def sampler(self, trainer: Any, rows: FlaggedRows, stage: Stage) -> MixedSampler:
        """The sampler of a stage with a `trusted_share`."""
        raise ValueError("the rows of a stream can't be sampled.")

    def trusted_rows(self, trainer: Any, size: int) -> FlaggedRows:
        """A random batch of rows with trusted labels, which depends only on seed, step and process."""
        raise ValueError("the rows of a stream can't be sampled.")

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The number of each label of a batch among all labels that are not -100."""
        raise ValueError("the items of a stream have no numbers.")

    def numbers_of(self, items: Items, stage: Stage | None = None, part: Part = "all") -> np.ndarray:
        """The numbers of these items, ascending; only those that a stage was trained on, or held out, by `part`."""
        raise ValueError("the items of a stream have no numbers.")

    def row_of(self, numbers: np.ndarray) -> np.ndarray:
        """The rows of items by their numbers."""
        raise ValueError("the items of a stream have no numbers.")

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """The given labels of these items, or their values in another column."""
        raise NotImplementedError

    def fingerprint(self) -> str | None:
        """A hash of labels, flags and number of rows; `None` for a stream."""
        return None

    def describe(self) -> dict[str, Any] | None:
        """Number of rows, and of given and trusted labels in total and per class; `None` for a stream."""
        return None


class MapData(TrainingData):
    """A `datasets.Dataset`. A stage is a list of row numbers over the user's own dataset."""

    numbered = True

    def __init__(
        self,
        dataset: datasets.Dataset,
        args: GLCConfig,
        num_labels: int | None,
        method: type[Method],
        held_out: np.ndarray | None = None,
        votes: Votes | None = None,
        soft: np.ndarray | None = None,
        label_column: str | None = None,
    ) -> None:
        self.args = args
        self.num_labels = num_labels
        self.rows = LabeledRows(
            dataset,
            label_column or args.label_column,
            args.trusted_column,
            num_labels,
            method.name,
            needs_flags=method.needs_trusted and votes is None,
            held_out=held_out,
        )
        self.label_column = self.rows.label_column
        self.votes = None if votes is None else votes.select(np.flatnonzero(self.rows.counted))
        if soft is not None:
            counted = self.rows.counted
            parts = (soft[counted], self.rows.item_labels("all"), self.rows.trusted[counted])
            self.soft_labels = SoftLabels(*(torch.from_numpy(part) for part in parts))

    def check(self, method: Method) -> None:
        column = self.args.trusted_column
        if method.needs_trusted and self.rows.count("trusted") == 0 and not method.counts_votes:
            raise ValueError(
                f"method {method.name!r} needs trusted rows, but column {column!r} marks none. Mark the carefully "
                "labeled rows with `mark_trusted(dataset, indices=…)`, or use method 'no_correction'."
            )
        if method.needs_untrusted and self.rows.count("untrusted") == 0:
            if self.votes is not None:
                raise ValueError(
                    "no untrusted row has a vote, so there is nothing to learn from: check the columns of the votes "
                    "(-1 and None are missing votes), or train on the trusted rows alone with method 'trusted_only'."
                )
            raise ValueError(
                f"method {method.name!r} needs untrusted rows, but column {column!r} marks every row as trusted. With "
                "only trusted labels there is nothing to correct: use method 'trusted_only', or mark fewer rows with "
                "`mark_trusted`."
            )

    def _split(self, stage: Stage) -> tuple[np.ndarray, np.ndarray]:
        return self.rows.split(self.rows.rows_with(stage.items), stage.held_out, self.args.seed)

    def _part(self, stage: Stage, part: Part) -> np.ndarray:
        return self._split(stage)[0 if part == "trained" else 1]

    def _view(self, trainer: Any, rows: np.ndarray) -> FlaggedRows:
        dataset = trainer.without_unused_columns(trainer.train_dataset)
        return FlaggedRows(dataset, rows, self.rows.flags, self.args.trusted_column)

    def sampler(self, trainer: Any, rows: FlaggedRows, stage: Stage) -> MixedSampler:
        assert stage.trusted_share is not None
        trusted = np.isin(rows.rows, self.rows.rows_with("trusted"))
        size = self.rows.num_rows - len(self.rows.held_out)
        args, mixed = trainer.args, None
        if stage.mixed_part < 1.0:
            mixed = round(stage.mixed_part * args.epochs_with(size) * size)
        return MixedSampler(trusted, stage.trusted_share, size, self.args.seed, mixed)

    def for_training(self, trainer: Any, stage: Stage, trusted_share: float) -> FlaggedRows:
        rows = self._part(stage, "trained")
        if stage.items == "all" and stage.trusted_share is None and trusted_share > 0.0:
            rows = self.rows.upsampled(trusted_share, self.args.seed)
            natural = self.rows.num_rows - len(self.rows.held_out)
            if len(rows) > natural:
                logger.info(
                    f"Trusted rows are repeated to {trusted_share:.0%} of the last stage: {len(rows):,} rows per "
                    f"epoch instead of {natural:,} (trusted_share=0 turns this off)."
                )
        if stage.untrusted_items is not None:
            chosen = self.rows.row_of(stage.untrusted_items.numpy())
            rows = np.intersect1d(rows, np.union1d(self.rows.rows_with("trusted"), chosen))
        return self._view(trainer, rows)

    def for_inference(
        self, trainer: Any, items: Items, part: Part, only: torch.Tensor | None = None, by_length: bool = False
    ) -> FlaggedRows | None:
        rows = self.rows.rows_with(items) if only is None else np.unique(self.rows.row_of(only.numpy()))
        if part != "all":
            rows = np.intersect1d(rows, self._part(trainer.stage, part))
        if len(rows) == 0:
            return None
        rows = share_of_process(rows, trainer.accelerator.process_index, trainer.accelerator.num_processes)
        return self._view(trainer, self.rows.sorted_by_length(rows) if by_length else rows)

    def trusted_rows(self, trainer: Any, size: int) -> FlaggedRows:
        rows = self.rows.rows_with("trusted")
        step = np.full(len(rows), trainer.state.global_step)
        purpose = f"reweight {trainer.accelerator.process_index}"
        order = np.argsort(random_uint64(purpose, self.args.seed, rows, step), kind="stable")
        return self._view(trainer, rows[order[:size]])

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.rows.item_numbers(rows, labels)

    def numbers_of(self, items: Items, stage: Stage | None = None, part: Part = "all") -> np.ndarray:
        numbers = self.rows.numbers_of(items)
        if part == "all":
            return numbers
        assert stage is not None
        return numbers[np.isin(self.rows.row_of(numbers), self._part(stage, part))]

    def row_of(self, numbers: np.ndarray) -> np.ndarray:
        return self.rows.row_of(numbers)

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        return self.rows.item_labels(items, column)

    def fingerprint(self) -> str:
        more = [part.fingerprint for part in (self.votes, self.soft_labels) if part is not None]
        return " ".join([self.rows.fingerprint, *more])

    def describe(self) -> dict[str, Any]:
        given = np.bincount(self.item_labels("all"), minlength=self.num_labels or 0)
        trusted = np.bincount(self.item_labels("trusted"), minlength=self.num_labels or 0)
        return {
            "train_rows": self.rows.num_rows - len(self.rows.held_out),
            "labels": int(given.sum()),
            "trusted": int(trusted.sum()),
            "given_by_class": given.tolist(),
            "trusted_by_class": trusted.tolist(),
        }


class StreamData(TrainingData):
    """An `IterableDataset`, filtered while it is read by the flag in each example. With votes of several sources,
    `read` are the rows on which they were counted, and `sources` is what they say."""

    numbered = False

    def __init__(
        self,
        dataset: Any,
        args: GLCConfig,
        method: type[Method],
        read: MapData | None = None,
        sources: SourceModel | None = None,
    ) -> None:
        self.dataset = dataset
        self.args = args
        columns = dataset.column_names
        if columns is not None and args.trusted_column not in columns and method.needs_trusted:
            raise ValueError(
                f"the stream has no column {args.trusted_column!r} (its columns: {', '.join(columns)}): the flag must "
                "be in the stream. `mark_trusted` adds it, and `GLCConfig(trusted_column=…)` names another column."
            )
        self.read, self.stream_sources = read, sources
        # If the columns are not known, as after `map`, the label may have any usual name.
        self.label_column = label_column_of(dataset, args)
        if read is not None:
            self.votes, self.label_column = read.votes, read.label_column
        elif columns is not None:
            self.label_column = find_label_column(dataset, self.label_column, args.trusted_column)

    def check(self, method: Method) -> None:
        read = self.read if method.needs_trusted and not method.counts_votes else None
        if read is not None and read.rows.count("trusted") == 0:
            raise ValueError(
                f"method {method.name!r} needs trusted rows, but column {self.args.trusted_column!r} marks none of "
                f"the first {read.rows.num_rows:,} rows of the stream. Put the trusted rows first, or use method "
                "'glc' or 'no_correction'."
            )
        if method.needs_item_numbers:
            raise ValueError(
                f"method {method.name!r} needs row numbers, which a stream does not have: use a `Dataset`."
            )
        if any(stage.held_out for stage in [*method.first_stages(), method.last_stage()]):
            raise ValueError(
                f"method {method.name!r} with these options holds rows out of a stage, which is not possible with a "
                "stream: use a `Dataset`, or set calibrate=False."
            )
        if any(stage.mode == "probe" for stage in method.first_stages()):
            raise ValueError(
                "stage1='probe' stores the features of each row by its number, which a stream does not have: use a "
                "`Dataset`, or stage1='short'."
            )
        if method.upsamples_trusted and self.args.trusted_share > 0.0:
            logger.warning(
                "trusted_share has no effect on a stream, whose rows can't be repeated. Repeat the trusted examples "
                "in the stream if they are rare, or set trusted_share=0 to silence this warning."
            )

    def _filtered(self, items: Items) -> Any:
        if items == "all":
            return self.dataset
        trusted, column = items == "trusted", self.args.trusted_column
        return self.dataset.filter(lambda flag: np.any(flags_of_row(flag, column) == trusted), input_columns=[column])

    def for_training(self, trainer: Any, stage: Stage, trusted_share: float) -> Any:
        return with_usual_label_column(self._filtered(stage.items), self.label_column, trainer.label_name)

    def for_inference(
        self, trainer: Any, items: Items, part: Part, only: torch.Tensor | None = None, by_length: bool = False
    ) -> Any:
        # `check` has refused methods that ask for parts or numbers.
        return with_usual_label_column(self._filtered(items), self.label_column, trainer.label_name)

    def numbers_of(self, items: Items, stage: Stage | None = None, part: Part = "all") -> np.ndarray:
        return super().numbers_of(items, stage, part) if self.read is None else self.read.numbers_of(items)

    def fingerprint(self) -> str | None:
        return None if self.read is None else self.read.fingerprint()

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        if self.read is not None and column is None:
            return self.read.item_labels(items)
        flag = self.args.trusted_column if items != "all" else None
        dataset = self._filtered(items)
        if dataset.column_names is not None:  # so that other columns are not decoded
            dataset = dataset.select_columns([name for name in (self.label_column, flag, column) if name is not None])
        parts = [np.empty(0, dtype=np.int64)]
        for row in dataset:
            usual = (*(self.args.label_names or ()), *USUAL_LABEL_COLUMNS)
            label_column = self.label_column or next((name for name in usual if name in row), None)
            if label_column is None:
                raise ValueError(
                    f"a row of the stream has no labels (its keys: {', '.join(row)}): name their column with "
                    "label_column=."
                )
            labels = np.atleast_1d(row[label_column])
            values = labels if column is None else np.atleast_1d(-1 if row[column] is None else row[column])
            if len(values) != len(labels):
                raise ValueError(f"column {column!r} does not have one value per label of {label_column!r}.")
            chosen = labels != IGNORED_LABEL
            if flag is not None:
                chosen &= flags_of_row(row[flag], flag) == (items == "trusted")
            parts.append(values[chosen].astype(np.int64))
        return np.concatenate(parts)


def share_of_process(rows: np.ndarray, process: int, processes: int) -> np.ndarray:
    """This process's rows. Every process gets the same number, so that none waits for another; padding rows are
    −1−row, and are dropped after inference."""
    share = math.ceil(len(rows) / processes)
    positions = np.arange(process * share, (process + 1) * share)
    chosen = rows[positions % len(rows)]
    return np.where(positions < len(rows), chosen, -1 - chosen)
