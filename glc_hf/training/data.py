# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The training set of a run: which rows each stage and each estimation sees, for datasets in memory and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import datasets
import numpy as np
import torch
from transformers.utils import logging

from glc_hf.corruption.columns import USUAL_LABEL_COLUMNS, find_label_column, with_usual_label_column
from glc_hf.methods.base import IGNORED, Items, Method, Stage
from glc_hf.methods.between import Part
from glc_hf.training.checks import check_items
from glc_hf.training.collator import as_flags
from glc_hf.training.inference import share_of_process
from glc_hf.training.rows import FlaggedRows, LabelledRows


if TYPE_CHECKING:
    from glc_hf.training.config import GLCConfig
    from glc_hf.training.corrected import CorrectedTrainer
    from glc_hf.training.stage import StageTrainer

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
        if any(stage.held_out for stage in [*method.earlier_stages(), method.last_stage()]):
            raise ValueError(
                f"method {method.name!r} with these settings holds rows out of a stage, which a stream can't: use a "
                "`Dataset`, or leave out `calibrate`."
            )
        if any(stage.way == "probe" for stage in method.earlier_stages()):
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
        return self.dataset.filter(lambda flag: np.any(as_flags(flag, column) == wanted), input_columns=[column])

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
            chosen = labels != IGNORED
            if flag is not None:
                chosen &= as_flags(row[flag], flag) == (items == "trusted")
            found.append(values[chosen].astype(np.int64))
        return np.concatenate(found)

    def fingerprint(self) -> None:
        """See [`TrainingData`]."""
        return
