# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Base class of the presets: a dataset prepared for training, its network, and the settings of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from datasets import ClassLabel, Dataset, DatasetDict, concatenate_datasets, load_dataset

from glc_hf.noise.families import WEAK


@dataclass(frozen=True)
class PreparedData:
    """Training and test set of a preset, as its model takes them. They have no noise and no flag yet, unless the
    preset says otherwise."""

    train: Dataset  # inputs of the model, and the labels in the preset's `prepared_label_column`
    test: Dataset
    label_names: list[str]  # in label order
    processing_class: Any = None  # tokenizer or image processor to save with the model
    data_collator: Callable | None = None  # replaces the Trainer's default
    groups: list[int] | None = None  # superclass of each class, for hierarchical noise
    word_vectors: torch.Tensor | None = None  # fixed vector of each word of the tokenizer
    reduced: str | None = None  # what was left out, if these are not the paper's rows


class Preset:
    """One dataset of the paper, with its network and settings."""

    name: ClassVar[str]  # by default the class name in lower case
    dataset: ClassVar[str]  # id on the Hub
    dataset_config: ClassVar[str | None] = None
    num_labels: ClassVar[int]
    label: ClassVar[str] = "label"  # the stored label column
    inputs: ClassVar[tuple[str, ...]]  # the other stored columns that are read
    train_splits: ClassVar[tuple[str, ...]] = ("train",)
    test_split: ClassVar[str] = "test"
    prepared_label_column: ClassVar[str] = "label"  # the label column in `PreparedData`
    noises: ClassVar[tuple[str, ...]] = ("uniform", "flip")  # of the paper's tables
    trusted: ClassVar[tuple[float, ...]]  # fractions of trusted rows, as run
    weak_trusted: ClassVar[tuple[float, ...] | None] = None  # the same for labels of a weak classifier, if they differ
    reported_options: ClassVar[tuple[str, ...]] = ()  # options that `rows_of` reports itself in `reduced`
    stacks: ClassVar[bool] = False  # whether many networks can be trained at once, as one with stacked weights
    num_train_epochs: ClassVar[float]
    batch_size: ClassVar[int]
    learning_rate: ClassVar[float]
    weight_decay: ClassVar[float] = 0.0
    lr_scheduler_type: ClassVar[str] = "constant"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()

    def prepare(self, data_root: str | None = None, limit: int | None = None) -> PreparedData:
        """
        Load and prepare the dataset.

        Args:
            data_root (`str`, *optional*):
                Folder that holds datasets in folders named as on the Hub, `data_root/ylecun/mnist/*.parquet`. If it
                has no `NAME` but a `NAME-subset`, the subset is used and reported in `reduced`. By default the dataset
                is loaded from the Hub.
            limit (`int`, *optional*):
                Maximum number of stored rows in the training set and in the test set, drawn with a fixed seed.
        """
        train, test, reduced = self.rows_of(data_root, limit)
        return replace(self.make_ready(train, test, data_root), reduced=reduced)

    def rows_of(self, data_root: str | None = None, limit: int | None = None) -> tuple[Dataset, Dataset, str | None]:
        """Return the stored rows of both sets after checking them, and what was left out of them, if anything."""
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit!r}.")
        splits, subset = self.load(data_root)
        self._check(splits)
        whole = concatenate_datasets([splits[name] for name in self.train_splits]), splits[self.test_split]
        train, test = (
            rows if limit is None or len(rows) <= limit else rows.shuffle(seed=0).select(range(limit))
            for rows in whole
        )
        if subset is None and (len(train), len(test)) == (len(whole[0]), len(whole[1])):
            return train, test, None
        return train, test, f"{subset or self.dataset}: {len(train):,} rows to train on and {len(test):,} to test"

    def load(self, data_root: str | None) -> tuple[DatasetDict, str | None]:
        """Return all splits, and the name of the subset if `data_root` has only a subset."""
        if data_root is None:
            try:
                return load_dataset(self.dataset, self.dataset_config), None
            except OSError as error:
                raise OSError(
                    f"preset {self.name!r}: the dataset {self.dataset!r} can't be reached on the Hub "
                    f"({type(error).__name__}). For a local copy name the folder that holds it: data_root='./data' "
                    f"for ./data/{self.dataset}/*.parquet."
                ) from error
        root = Path(data_root).expanduser()
        for name in (self.dataset, f"{self.dataset}-subset"):
            folder = root / name
            if folder.is_dir():
                if self.dataset_config is not None and (folder / self.dataset_config).is_dir():
                    folder = folder / self.dataset_config
                return load_dataset(str(folder)), None if name == self.dataset else name
        raise FileNotFoundError(
            f"preset {self.name!r}: there is no folder {root / self.dataset} for the dataset {self.dataset!r}. "
            f"data_root is the folder that holds it, named as on the Hub ({self.dataset}/*.parquet); without "
            "data_root it is loaded from the Hub."
        )

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None) -> PreparedData:
        """Convert stored rows to what the model takes."""
        raise NotImplementedError

    def make_model(self, data: PreparedData, seed: int) -> torch.nn.Module:
        """Return the network with initial weights that depend on the seed alone; no other random state changes."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.network(data)

    def network(self, data: PreparedData) -> torch.nn.Module:
        """Return a new network for these classes, drawn from torch's current random state."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return keyword arguments of `GLCConfig`."""
        return {
            "num_train_epochs": self.num_train_epochs,
            "per_device_train_batch_size": self.batch_size,
            "per_device_eval_batch_size": 512,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": self.lr_scheduler_type,
            "weight_decay": self.weight_decay,
            "label_column": self.prepared_label_column,
            "trusted_share": 0.0,
            "refine_matrix": False,
            "trusted_min_updates": 2000,
            "missing_classes": "uniform",
            "max_grad_norm": 0.0,
        }

    def trusted_with(self, noise: str) -> tuple[float, ...]:
        """Return the fractions of the tables for a noise."""
        return self.weak_trusted if noise == WEAK and self.weak_trusted is not None else self.trusted

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """Return the optimizer and its keyword arguments: as in the paper, Adam with the L2 penalty inside the
        gradient, unlike AdamW, the Trainer's default."""
        return torch.optim.Adam, {"lr": self.learning_rate}

    def decays(self, parameter_name: str) -> bool:
        """Whether a parameter has the L2 penalty. By default all have it, biases too."""
        return True

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Return a prepared dataset as whole tensors, if `stacks`: inputs of the model by name, and one label per row,
        `(rows,)`."""
        raise NotImplementedError(f"preset {self.name!r} is trained in batches, not as whole tensors.")

    def label_names(self, dataset: Dataset) -> list[str]:
        """Return the classes of the stored labels; numbers if the dataset has no names."""
        feature = dataset.features[self.label]
        feature = getattr(feature, "feature", feature)
        return list(feature.names if isinstance(feature, ClassLabel) else map(str, range(self.num_labels)))

    def _check(self, splits: DatasetDict) -> None:
        needed = [*self.train_splits, self.test_split]
        if any(name not in splits for name in needed):
            raise ValueError(
                f"preset {self.name!r} needs the splits {', '.join(needed)}; {self.dataset} here has "
                f"{', '.join(map(str, splits))}."
            )
        for name in needed:
            columns = splits[name].column_names
            absent = [column for column in (*self.inputs, self.label) if column not in columns]
            if absent:
                raise ValueError(
                    f"preset {self.name!r}: split {name!r} of {self.dataset} has no column {', '.join(absent)} (it "
                    f"has {', '.join(columns)}): rename it with `rename_column`."
                )
            names = self.label_names(splits[name])
            if len(names) != self.num_labels:
                raise ValueError(
                    f"preset {self.name!r} is for {self.num_labels} classes; column {self.label!r} of split {name!r} "
                    f"has {len(names)}: {', '.join(names[:12])}."
                )
