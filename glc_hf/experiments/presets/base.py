# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What a preset is: a dataset of the paper made ready for training, the network for it, and the settings of the run.

A preset is one file of `presets/` with one class under [`register`].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from datasets import ClassLabel, Dataset, DatasetDict, concatenate_datasets, load_dataset


@dataclass(frozen=True)
class PreparedData:
    """
    Both sets of a preset, as its model takes them. Neither has noise or a flag yet, unless the preset says otherwise.

    Attributes:
        train (`Dataset`): Numbers for the model, and the labels.
        test (`Dataset`): The same.
        label_names (`list[str]`): The classes, in label order.
        label_column (`str`): The labels' column in both.
        processing_class: The tokenizer or image processor to save with the model, if any.
        data_collator (`Callable`, *optional*): What makes batches, where it is not the Trainer's default.
        groups (`list[int]`, *optional*): Superclass of each class, for hierarchical noise.
        word_vectors (`torch.Tensor`, *optional*): A vector for each word of the tokenizer, where they are given.
        reduced (`str`, *optional*): What was left out, where these are not the paper's rows.
    """

    train: Dataset
    test: Dataset
    label_names: list[str]
    label_column: str = "label"
    processing_class: Any = None
    data_collator: Callable | None = None
    groups: list[int] | None = None
    word_vectors: torch.Tensor | None = None
    reduced: str | None = None


class Preset:
    """
    One dataset of the paper. Subclasses say what is special about it.

    Class attributes:
        dataset (`str`): Its id on the Hub.
        num_labels (`int`): K.
        label (`str`): The labels' column there.
        inputs (`tuple[str, ...]`): Its other columns that are read.
        train_splits, test_split: The splits that make the training set, and the one that is tested on.
        noises (`tuple[str, ...]`): Kinds of noise in the paper's tables.
        trusted (`tuple[float, ...]`): Trusted fractions, as they were run.
        paper_percent (`dict[float, float]`): From each of them to the percentage that the tables print.
        tells (`tuple[str, ...]`): Options that `rows_of` tells of itself; results name the others beside what was
            reduced.
        stacks (`bool`): Whether many networks can be trained at once, as one with stacked weights.
        num_train_epochs, batch_size, learning_rate, weight_decay, lr_scheduler_type: As in the paper.
    """

    name: ClassVar[str]  # by default that of the class
    dataset: ClassVar[str]
    dataset_config: ClassVar[str | None] = None
    num_labels: ClassVar[int]
    label: ClassVar[str] = "label"
    inputs: ClassVar[tuple[str, ...]]
    train_splits: ClassVar[tuple[str, ...]] = ("train",)
    test_split: ClassVar[str] = "test"
    noises: ClassVar[tuple[str, ...]] = ("uniform", "flip")
    trusted: ClassVar[tuple[float, ...]]
    paper_percent: ClassVar[dict[float, float]]
    tells: ClassVar[tuple[str, ...]] = ()
    stacks: ClassVar[bool] = False
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
        Loads the dataset and makes it ready.

        Args:
            data_root (`str`, *optional*):
                A folder that holds datasets in folders named as on the Hub, `data_root/ylecun/mnist/*.parquet`. Where
                it has no `NAME` but a `NAME-subset`, that is taken, and the result's `reduced` says so. By default the
                dataset is loaded from the Hub.
            limit (`int`, *optional*):
                At most so many stored rows of the training set and of the test set, drawn with a fixed seed: for
                trying out.
        """
        train, test, reduced = self.rows_of(data_root, limit)
        return self.make_ready(train, test, data_root, reduced)

    def rows_of(self, data_root: str | None = None, limit: int | None = None) -> tuple[Dataset, Dataset, str | None]:
        """The rows of both sets as they are stored, checked, and what was left out of them, if anything."""
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit!r}.")
        splits, reduced = self.load(data_root)
        self._check(splits)
        train = concatenate_datasets([splits[name] for name in self.train_splits])
        test = splits[self.test_split]
        whole = (len(train), len(test))
        if limit is not None:
            train, test = _some(train, limit), _some(test, limit)
        if reduced is not None or (len(train), len(test)) != whole:
            reduced = f"{reduced or self.dataset}: {len(train):,} rows to train on and {len(test):,} to test"
        return train, test, reduced

    def load(self, data_root: str | None) -> tuple[DatasetDict, str | None]:
        """The splits, and the name of the subset where it is one."""
        return load_source(self.dataset, data_root, self.dataset_config, self.name)

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """Turns rows as they are stored into what the model takes."""
        raise NotImplementedError

    def make_model(self, data: PreparedData, seed: int) -> torch.nn.Module:
        """The network with its first weights. The same seed gives the same ones, and no other random state changes."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.network(data)

    def network(self, data: PreparedData) -> torch.nn.Module:
        """A new network for these classes, drawn from torch's current random state."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `GLCConfig`."""
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
        """The fractions of the tables for a kind of noise: labels of a weak classifier may have their own."""
        return getattr(self, "weak_trusted", self.trusted) if noise == "weak" else self.trusted

    @property
    def prepared_label_column(self) -> str:
        """The name that [`PreparedData`] has for the labels."""
        return "label"

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """
        The optimizer and its keyword arguments. Adam with the L2 penalty inside the gradient, as in the paper; AdamW,
        the Trainer's default, would keep it outside. The penalty's strength goes with the parameters it is for: see
        [`~Preset.parameter_groups`].
        """
        return torch.optim.Adam, {"lr": self.learning_rate}

    def decays(self, parameter_name: str) -> bool:
        """Whether a parameter has the L2 penalty; biases have it like weights."""
        return True

    def parameter_groups(self, model: torch.nn.Module) -> list[dict[str, Any]]:
        """The trained parameters for the optimizer: those with the penalty, and the others."""
        groups: dict[float, list[torch.nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                strength = self.weight_decay if self.decays(name) else 0.0
                groups.setdefault(strength, []).append(parameter)
        return [{"params": parameters, "weight_decay": strength} for strength, parameters in groups.items()]

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """
        A prepared dataset as whole tensors, where `stacks`.

        Returns:
            Inputs of the model by name, and one label for each row, `(rows,)`.
        """
        raise NotImplementedError(f"preset {self.name!r} is trained in batches, not as whole tensors.")

    def item_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Of the model's logits those that belong to the labels of [`~Preset.tensors`], `(…, rows, K)`."""
        return logits

    def _check(self, splits: DatasetDict) -> None:
        wanted = [*self.train_splits, self.test_split]
        missing = [name for name in wanted if name not in splits]
        if missing:
            raise ValueError(
                f"preset {self.name!r} needs the splits {', '.join(wanted)}; {self.dataset} here has "
                f"{', '.join(map(str, splits))}."
            )
        for name in wanted:
            absent = [column for column in (*self.inputs, self.label) if column not in splits[name].column_names]
            if absent:
                raise ValueError(
                    f"preset {self.name!r}: split {name!r} of {self.dataset} has no column {', '.join(absent)} (it "
                    f"has {', '.join(splits[name].column_names)}): rename it with `rename_column`."
                )
            found = label_names(splits[name], self.label, self.num_labels)
            if len(found) != self.num_labels:
                raise ValueError(
                    f"preset {self.name!r} is for {self.num_labels} classes; column {self.label!r} of split {name!r} "
                    f"has {len(found)}: {', '.join(found[:12])}."
                )


def label_names(dataset: Dataset, column: str, num_labels: int) -> list[str]:
    """The classes of a column of labels or of lists of them; numbers where the dataset has no names."""
    feature = dataset.features[column]
    feature = getattr(feature, "feature", feature)
    return list(feature.names) if isinstance(feature, ClassLabel) else [str(label) for label in range(num_labels)]


def _some(dataset: Dataset, limit: int) -> Dataset:
    if len(dataset) <= limit:
        return dataset
    return dataset.shuffle(seed=0).select(range(limit))


_PRESETS: dict[str, type[Preset]] = {}


def register(name: str) -> Callable[[type[Preset]], type[Preset]]:
    """Makes a preset known under the name that `get_preset` takes."""

    def add(cls: type[Preset]) -> type[Preset]:
        if name in _PRESETS and _PRESETS[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"two presets are called {name!r}: {_PRESETS[name]} and {cls}.")
        cls.name = name
        _PRESETS[name] = cls
        return cls

    return add


def registered() -> dict[str, type[Preset]]:
    """The presets registered so far, by name."""
    return _PRESETS


def load_source(
    dataset: str, data_root: str | None, config: str | None, preset: str
) -> tuple[DatasetDict, str | None]:
    """
    Every split of a dataset.

    Args:
        dataset (`str`): Its id on the Hub.
        data_root (`str`, *optional*): The folder that holds `data_root/ID`, or else `data_root/ID-subset`.
        config (`str`, *optional*): The configuration, where the dataset has several.
        preset (`str`): For messages.

    Returns:
        The splits, and the name of the subset where that was taken.
    """
    if data_root is None:
        try:
            return load_dataset(dataset, config), None
        except OSError as error:
            raise OSError(
                f"preset {preset!r}: the dataset {dataset!r} can't be reached on the Hub ({type(error).__name__}). "
                f"For a local copy name the folder that holds it: data_root='./data' for ./data/{dataset}/*.parquet."
            ) from error
    root = Path(data_root).expanduser()
    for name in (dataset, f"{dataset}-subset"):
        folder = root / name
        if folder.is_dir():
            if config is not None and (folder / config).is_dir():
                folder = folder / config
            return load_dataset(str(folder)), None if name == dataset else name
    raise FileNotFoundError(
        f"preset {preset!r}: there is no folder {root / dataset} for the dataset {dataset!r}. data_root is the folder "
        f"that holds it, named as on the Hub ({dataset}/*.parquet); without data_root it is loaded from the Hub."
    )
