# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The settings of a run: `TrainingArguments`, and what the correction adds."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from transformers import TrainingArguments


@dataclass
class GLCConfig(TrainingArguments):
    r"""
    Configuration of [`GLCTrainer`]: everything `TrainingArguments` has, with the same defaults, and the settings
    below. Usable with `HfArgumentParser` and YAML.

    Args:
        > Parameters that say what is trained on

        method (`str`, *optional*, defaults to `"glc"`):
            Name of the method; `glc_hf.methods.available_methods()` lists them. `module:Class` names one of your own.
        trusted_column (`str`, *optional*, defaults to `"trusted"`):
            Boolean column of the training set: per row, or per token beside token labels.
        label_column (`str`, *optional*):
            Column that holds the labels as given, in every dataset that has it. Found by itself when it is called
            `labels`, `label` or `label_ids`, or is the only column of classes; name it also where a `with_transform`
            pipeline makes the labels from another one.
        trusted_share (`float`, *optional*, defaults to 0.15):
            Share of trusted rows that the last stage sees, reached by repeating them; rows are never dropped, so a
            larger natural share stays. `0` keeps the natural share, as the paper does outside Clothing1M. The default
            keeps pretrained networks from settling in a wrong solution under severe noise.
        trusted_min_updates (`int`, *optional*, defaults to 2000):
            Stages on trusted rows alone take at least this many optimizer steps, so that few rows do not mean few
            steps.
        trusted_eval_fraction (`float`, *optional*, defaults to 0.0):
            Share of the trusted rows that is held out of every training and of the matrix, and evaluated on, in each
            stage: for `load_best_model_at_end` and early stopping by labels that are right. Drawn by `seed`, from each
            class in proportion; each class keeps at least one row. Without an `eval_dataset` these rows are it
            (`eval_loss`, `eval_accuracy`); beside one they are evaluated too, as `eval_trusted_loss` and
            `eval_trusted_accuracy` (`metric_for_best_model="trusted_accuracy"`).
        freeze (`list[str]`, *optional*):
            Parameters whose names start with one of these are not trained, in any stage.

        > Parameters that control the first stage

        stage1 (`str`, *optional*, defaults to `"full"`):
            How the first stage of a method that estimates the matrix learns p(noisy label | x). `"full"`: a whole
            training, as in the paper. `"short"`: a training of `stage1_fraction` of its steps. `"probe"`, for
            pretrained networks: one forward pass over the rows, and a linear head fitted on the features; the pass is
            kept on disk (in the cache of `datasets`) for other runs on the same rows. With `refine_matrix`, `glc` also
            fits a linear model of the true labels on these features, and takes the matrix that both explain best.
        stage1_fraction (`float`, *optional*, defaults to 0.34): Share of the steps that `stage1="short"` takes.
        stage1_num_train_epochs (`float`, *optional*): Epochs of the earlier stages, if other than `num_train_epochs`.
        stage1_max_steps (`int`, *optional*): Steps of the earlier stages, if other than `max_steps`.
        stage1_learning_rate (`float`, *optional*): Learning rate of the earlier stages, if other than `learning_rate`.
        evaluate_stages (`bool`, *optional*, defaults to `True`):
            Evaluate each earlier stage once at its end when there is an `eval_dataset`: the accuracy before
            correction, reported with the prefix `stage1_`.

        > Parameters that control the matrix and the last stage

        stage2_start (`str`, *optional*, defaults to `"restart"`):
            `"restart"` from the initial weights, as the paper does, or `"continue"` from the first stage's (its
            Clothing1M recipe).
        calibrate (`bool`, *optional*, defaults to `False`):
            Calibrate the first stage by one temperature on rows held out of it (5 % of them) before estimating.
        match_base_rates (`bool`, *optional*, defaults to `False`):
            Correct the estimate so that it explains the observed frequencies of the noisy labels.
        base_rate_weight (`float`, *optional*):
            λ of that correction: how much the first estimate is held on to. By default ‖b‖² of the true base rates b,
            which meets the observed frequencies half-way.
        refine_matrix (`bool`, *optional*, defaults to `True`):
            `glc`: after a third and two thirds of the last stage's steps, replace the matrix by the one that explains
            the untrusted labels best, given what the model says about the true ones by then and the first estimate.
            Few trusted rows leave the first estimate far off; this one comes from all labels. It takes a forward pass
            over some thousand rows each time. `False` keeps the first estimate, as the paper does. A given or
            counted matrix is never changed, and on a stream the first estimate stays.
        estimator (`str`, *optional*, defaults to `"gold"`):
            `"gold"` as in the paper, or `"paired"`: where the trusted rows also carry the label that the noisy source
            gave them, the matrix is counted directly and no first stage is needed.
        noisy_label_column (`str`, *optional*): Column of those labels, for `estimator="paired"`.
        missing_classes (`str`, *optional*, defaults to `"average"`):
            Row of a class without trusted rows: `"average"` (the mean diagonal of the other rows, the rest spread
            evenly), `"identity"` or `"uniform"`. One warning lists such classes.

        > Parameters of single methods

        smoothing (`float`, *optional*, defaults to 0.01):
            Weight of the uniform row in matrices that are counted (`confusion_matrix`, and `estimator="paired"`), so
            that no entry is zero.
        anchor_percentile (`float`, *optional*):
            `forward` and `forward_gold`: a class is represented by the example whose probability of it is the highest
            below this percentile; 100 is the plain maximum. By default 97, and 100 from 100 classes on.
        distillation_lambda (`str`, *optional*, defaults to `"auto"`):
            `distillation`: weight λ of the given label against the soft target. A number in [0, 1]; `"auto"`: by the
            precisions of both, the more precise one counting more; `"paper_code"`: the other way round, as in the
            authors' code.
    """

    method: str = field(default="glc", metadata={"help": "Name of the method, e.g. glc or no_correction."})
    trusted_column: str = field(default="trusted", metadata={"help": "Boolean column that marks trusted rows."})
    label_column: str | None = field(
        default=None, metadata={"help": "Column of the labels; found by itself if usual."}
    )
    trusted_share: float = field(
        default=0.15,
        metadata={"help": "Share of trusted rows in the last stage, by repeating them; 0 keeps the natural share."},
    )
    trusted_min_updates: int = field(
        default=2000, metadata={"help": "At least this many updates for stages on trusted rows alone."}
    )
    trusted_eval_fraction: float = field(
        default=0.0,
        metadata={"help": "Share of trusted rows held out of training and matrix, to evaluate each stage by."},
    )
    freeze: list[str] | None = field(
        default=None, metadata={"help": "Parameters whose names start so are not trained in any stage."}
    )
    stage1: str = field(
        default="full",
        metadata={
            "help": "First stage: a full training, a short one, or a linear probe on the pretrained features.",
            "choices": ["full", "short", "probe"],
        },
    )
    stage1_fraction: float = field(default=0.34, metadata={"help": "Share of the steps that stage1=short takes."})
    stage1_num_train_epochs: float | None = field(
        default=None, metadata={"help": "Epochs of the earlier stages, if other than num_train_epochs."}
    )
    stage1_max_steps: int | None = field(
        default=None, metadata={"help": "Steps of the earlier stages, if other than max_steps."}
    )
    stage1_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of the earlier stages, if other than learning_rate."}
    )
    evaluate_stages: bool = field(
        default=True, metadata={"help": "Evaluate each earlier stage once at its end (needs an eval_dataset)."}
    )
    stage2_start: str = field(
        default="restart",
        metadata={
            "help": "Last stage from the initial weights or from stage 1's.",
            "choices": ["restart", "continue"],
        },
    )
    calibrate: bool = field(default=False, metadata={"help": "Calibrate stage 1 by a temperature before estimating."})
    match_base_rates: bool = field(
        default=False, metadata={"help": "Fit the estimate to the observed frequencies of noisy labels."}
    )
    base_rate_weight: float | None = field(
        default=None,
        metadata={"help": "λ of the base-rate correction; by default the squared norm of the base rates."},
    )
    refine_matrix: bool = field(
        default=True,
        metadata={"help": "Let the last stage improve the matrix by the untrusted labels; False is the paper's way."},
    )
    estimator: str = field(
        default="gold",
        metadata={"help": "How glc estimates the matrix; paired counts it.", "choices": ["gold", "paired"]},
    )
    noisy_label_column: str | None = field(
        default=None, metadata={"help": "Column of the noisy source's labels of trusted rows (estimator=paired)."}
    )
    missing_classes: str = field(
        default="average",
        metadata={
            "help": "Row of a class without trusted rows.",
            "choices": ["average", "identity", "uniform"],
        },
    )

    smoothing: float = field(
        default=0.01, metadata={"help": "Weight of the uniform row in matrices that are counted."}
    )
    anchor_percentile: float | None = field(
        default=None, metadata={"help": "Percentile of Forward's rule; by default 97, and 100 from 100 classes on."}
    )
    distillation_lambda: str = field(
        default="auto", metadata={"help": "Weight of the given label: a number in [0, 1], auto or paper_code."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.freeze, str):
            self.freeze = [self.freeze]
        _check_choice("stage2_start", self.stage2_start, ("restart", "continue"))
        _check_choice("stage1", self.stage1, ("full", "short", "probe"))
        if not 0.0 < self.stage1_fraction <= 1.0:
            raise ValueError(f"stage1_fraction must lie in (0, 1], got {self.stage1_fraction!r}.")
        if self.stage1 == "probe" and self.stage2_start == "continue":
            raise ValueError(
                "stage1='probe' leaves the network as it is: there is nothing for stage2_start='continue' to go on "
                "from. Use stage1='short', or 'restart'."
            )
        _check_choice("missing_classes", self.missing_classes, ("average", "identity", "uniform"))
        _check_choice("estimator", self.estimator, ("gold", "paired"))
        if self.trusted_min_updates < 0:
            raise ValueError(f"trusted_min_updates can't be negative, got {self.trusted_min_updates!r}.")
        if not 0.0 <= self.smoothing <= 1.0:
            raise ValueError(f"smoothing must lie in [0, 1], got {self.smoothing!r}.")
        if self.anchor_percentile is not None and not 0.0 < self.anchor_percentile <= 100.0:
            raise ValueError(f"anchor_percentile must lie in (0, 100], got {self.anchor_percentile!r}.")
        self.distillation_lambda = str(self.distillation_lambda)
        if self.distillation_lambda not in ("auto", "paper_code"):
            _check_lambda(self.distillation_lambda)
        if not 0.0 <= self.trusted_share < 1.0:
            raise ValueError(
                f"trusted_share must lie in [0, 1), got {self.trusted_share!r}; 0 keeps the rows as they are."
            )
        if not 0.0 <= self.trusted_eval_fraction < 1.0:
            raise ValueError(
                f"trusted_eval_fraction must lie in [0, 1), got {self.trusted_eval_fraction!r}; 0 holds nothing out."
            )
        for name in ("stage1_num_train_epochs", "stage1_max_steps", "stage1_learning_rate", "base_rate_weight"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, got {value!r}.")

    def changed_arguments(self) -> dict[str, Any]:
        """Return the arguments whose value is not the default, ready for JSON. Paths, tokens and settings of the
        machine are left out."""
        changed = {}
        for argument in dataclasses.fields(self):
            if not argument.init or argument.name in _LOCAL or argument.name.endswith("_token"):
                continue
            default = argument.default
            if argument.default_factory is not dataclasses.MISSING:
                default = argument.default_factory()
            value = _plain(getattr(self, argument.name))
            if value != _plain(default) and not _names_a_place(value):
                changed[argument.name] = value
        return changed


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def _check_lambda(value: str) -> None:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"distillation_lambda must be a number in [0, 1], 'auto' or 'paper_code'; got {value!r}.")


ARGUMENTS_FILE = "training_args.json"
# What belongs to the place and not to the training.
_LOCAL = {
    "output_dir", "run_name", "resume_from_checkpoint", "hub_token", "hub_model_id", "local_rank", "log_level",
    "log_level_replica", "disable_tqdm", "report_to", "project", "trackio_space_id", "trackio_bucket_id",
    "trackio_static_space_id", "logging_dir", "dataloader_pin_memory",
}  # fmt: skip


class NothingToPickle:
    """Arguments to work with that leave nothing of themselves in a pickle."""

    def __init__(self, args: GLCConfig) -> None:
        self._args = args

    def __getattr__(self, name: str) -> Any:
        return getattr(self._args, name)

    def __reduce__(self) -> tuple:
        return dict, ()


def arguments_that_differ(args: GLCConfig) -> dict[str, Any]:
    """Every argument whose value is not the default, in the order of the class, ready for JSON."""
    return args.changed_arguments()


def write_arguments(folder: str | Path, args: GLCConfig) -> None:
    """Writes `training_args.json`, in place of the pickle that `Trainer` leaves with the Hub token in it."""
    folder = Path(folder)
    (folder / "training_args.bin").unlink(missing_ok=True)
    text = json.dumps(arguments_that_differ(args), indent=2, default=str)
    (folder / ARGUMENTS_FILE).write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value] or None
    if hasattr(value, "to_dict"):
        # Settings made up of others, such as accelerate's: those that differ from their class's own defaults.
        defaults = type(value)().to_dict()
        return {key: entry for key, entry in value.to_dict().items() if entry != defaults.get(key)} or None
    return value or None if isinstance(value, (str, dict)) else value


def _names_a_place(value: Any) -> bool:
    return isinstance(value, str) and os.path.isabs(value)
