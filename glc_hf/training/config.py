# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`GLCConfig`: the arguments of a run, and their JSON form without secrets and paths."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import HubStrategy

from glc_hf._compat import save_whole_fsdp_models, unused_arguments
from glc_hf.methods.auto import AutoOptions
from glc_hf.methods.base import SharedOptions
from glc_hf.methods.baselines import ConfusionMatrixOptions, ForwardOptions
from glc_hf.methods.distillation import DistillationOptions
from glc_hf.methods.glc import GLCOptions


ARGUMENTS_FILE = "training_args.json"
# Environment variables of launchers with the number of processes.
_NUM_PROCESSES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
# Arguments that belong to the machine and not to the training.
_LOCAL_ARGUMENTS = {
    "output_dir", "run_name", "resume_from_checkpoint", "hub_token", "hub_model_id", "local_rank", "log_level",
    "log_level_replica", "disable_tqdm", "report_to", "project", "trackio_space_id", "trackio_bucket_id",
    "trackio_static_space_id", "logging_dir", "dataloader_pin_memory",
}  # fmt: skip


@dataclass
class GLCConfig(
    AutoOptions,
    GLCOptions,
    ConfusionMatrixOptions,
    ForwardOptions,
    DistillationOptions,
    SharedOptions,
    TrainingArguments,
):
    r"""
    Configuration of [`GLCTrainer`]: all of `TrainingArguments`, with the same defaults except for `hub_strategy`,
    and the parameters below. It can be used with `HfArgumentParser` and YAML. Parameters of methods are declared
    beside the methods, in `glc_hf.methods`.

    Args:
        > Parameters that control the data

        method (`str`, *optional*, defaults to `"auto"`):
            Name of the method; `glc_hf.methods.available_methods()` lists them. `module:Class` names your own.
            `"auto"` decides from the trusted rows how far to use the noisy labels, and gives a verdict. With a stream,
            with a given matrix, and with a network that is not pretrained, it does what `"glc"` does, the method of
            the paper.

            With a pretrained network `auto` has stages of its own: linear models on the features of the network, and
            one training of the length of the run. It does not use `stage1`, `stage1_fraction`,
            `stage1_num_train_epochs`, `stage1_max_steps`, `stage1_learning_rate`, `stage2_start`, `trusted_share` and
            `calibrate`, nor `match_base_rates`, `base_rate_weight` and `missing_classes` unless `estimator="paired"`:
            with a value that is not the default, it does what `"glc"` does, with a warning.
        trusted_column (`str`, *optional*, defaults to `"trusted"`):
            Column of the training set that marks trusted rows: one flag per row, or one per token for token labels.
        label_column (`str`, *optional*):
            Column of the given labels, in every dataset that has it. By default the first of `label_names`, else
            `labels`, `label` or `label_ids`, else the only column with another usual name (such as `category`,
            `target` or `ner_tags`), else the only column of classes. Name it also if a `with_transform`
            pipeline makes labels from another column.
        source_columns (`list[str]`, *optional*):
            Columns of the training set with the labels of several sources (rules, people, language models), one
            column per source: class numbers, class names, or lists of them for token labels. `None`, -1, NaN and
            empty text are missing votes. The label column then matters on trusted rows only.
        votes_column (`str`, *optional*):
            Column of lists with one place per source, instead of `source_columns`; see [`gather_votes`].
        source_names (`list[str]`, *optional*):
            Names of the sources. By default `source_columns`, or `"0"`, `"1"`, … for `votes_column`.
        soft_label_column (`str`, *optional*):
            Column of the training set with soft labels: K probabilities per row, for example those of a language model
            or averaged votes. The label column then matters on trusted rows only, and on rows whose soft label is
            `None`. With `source_columns` or `votes_column` it is one more source, which votes for the most probable
            class.
        trusted_share (`float`, *optional*, defaults to 0.15):
            Share of trusted rows in the last stage, reached by repeating them. Rows are never dropped, so a larger
            natural share stays. `0` keeps the natural share, as the paper does except on Clothing1M. The default keeps
            pretrained networks from converging to a wrong solution under severe noise.
        trusted_min_updates (`int`, *optional*, defaults to 2000):
            `trusted_only` and `distillation`: minimum number of optimizer steps of the stage on trusted rows.
        trusted_eval_fraction (`float`, *optional*, defaults to 0.0):
            Share of the trusted rows that is held out of every stage and of the matrix, and evaluated on in every
            stage: for `load_best_model_at_end` and early stopping with labels that are right. Drawn with `seed` from
            each class in proportion; each class keeps at least one row. Without an `eval_dataset`, these rows are
            the evaluation set (`eval_loss`, `eval_accuracy`). With one, they are evaluated as well, as
            `eval_trusted_loss` and `eval_trusted_accuracy` (`metric_for_best_model="trusted_accuracy"`).
        freeze (`list[str]`, *optional*):
            Parameters whose names start with one of these prefixes are not trained in any stage.

        > Parameters that control the first stage

        stage1 (`str`, *optional*, defaults to `"full"`):
            How the first stage learns p(noisy label | x). `"full"`: a whole training, as in the paper. `"short"`: a
            training with `stage1_fraction` of the steps. `"probe"`, for pretrained networks: one forward pass over the
            rows and a linear head fitted on the features (of texts: the means of the hidden states of the middle layer
            and of the last one). The features are cached on disk (in the cache of `datasets`)
            for other runs on the same rows. With `refine_matrix`, `glc` also fits a linear model of the true labels on
            these features and takes the matrix that explains both best.
        stage1_fraction (`float`, *optional*, defaults to 0.34): Share of the steps with `stage1="short"`.
        stage1_num_train_epochs (`float`, *optional*):
            Epochs of the first stages, if not `num_train_epochs`.
        stage1_max_steps (`int`, *optional*): Steps of the first stages, if not `max_steps`.
        stage1_learning_rate (`float`, *optional*): Learning rate of the first stages, if not `learning_rate`.
        evaluate_stages (`bool`, *optional*, defaults to `True`):
            Evaluate each first stage once at its end if there is an `eval_dataset`. The metrics have the prefix
            `stage1_`: the accuracy before correction.

        > Parameters that control the matrix and the last stage

        stage2_start (`str`, *optional*, defaults to `"restart"`):
            `"restart"` from the initial weights, as in the paper, or `"continue"` from the weights of the first stage
            (the paper's Clothing1M recipe).
        calibrate (`bool`, *optional*, defaults to `False`):
            Calibrate the first stage with a temperature before the estimate, on 5 % of its rows, which it does not
            train on.
        match_base_rates (`bool`, *optional*, defaults to `False`):
            Correct the estimate so that it explains the observed frequencies of the noisy labels.
        base_rate_weight (`float`, *optional*):
            λ of that correction: the weight of the first estimate. By default ‖b‖² of the true base rates b, which
            goes half of the way to the observed frequencies.
        refine_matrix (`bool`, *optional*, defaults to `True`):
            `glc`: after one third and two thirds of the steps of the last stage, replace the matrix by the one that
            best explains the untrusted labels, given the model's predictions and the first estimate. With few trusted
            rows the first estimate is imprecise; this one uses all labels. Each time takes a forward pass over 200
            rows per class, at least 2,000 (`auto`: at most 15 % of the rows that the stage trains on). `False` keeps
            the first estimate; with `method="glc"` this is the paper's method. `auto` takes the first estimate from
            linear models, and refines it once. A given or counted matrix never changes, and on a stream the first
            estimate stays.
        estimator (`str`, *optional*, defaults to `"gold"`):
            `"gold"` as in the paper, or `"paired"`: if the trusted rows also have the label of the noisy source, the
            matrix is counted, and `glc` needs no first stage. With a pretrained network, `auto` uses its first
            stage for its decision.
        noisy_label_column (`str`, *optional*):
            Column of those labels, for `estimator="paired"`. Trusted rows in which it is empty (`None` or -1) are not
            counted.
        missing_classes (`str`, *optional*, defaults to `"average"`):
            Matrix row of a class without trusted rows: `"average"` (the mean diagonal of the other rows, the rest
            spread evenly), `"identity"` or `"uniform"`. A warning lists these classes.

        > Parameters of single methods

        pretrained (`bool`, *optional*):
            `auto`: whether the network is pretrained. By default if its configuration names a model, as after
            `from_pretrained`. Set it to `False` for a network with random weights and the configuration of a named
            model (`from_config(AutoConfig.from_pretrained(…))`).
        smoothing (`float`, *optional*, defaults to 0.01):
            `confusion_matrix`, and `estimator="paired"`: weight of the uniform row in the counted matrix, so that no
            entry is zero.
        anchor_percentile (`float`, *optional*):
            `forward` and `forward_gold`: a class is represented by the example whose probability of the class is the
            highest below this percentile; 100 is the maximum. By default 97, or 100 with 100 classes or more.
        distillation_lambda (`str`, *optional*, defaults to `"auto"`):
            `distillation`: weight λ of the given label against the soft target. A number in [0, 1]; `"auto"`: from the
            precisions of both, with more weight for the more precise one; `"paper_code"`: the opposite, as in the
            authors' code.

        > Parameters that differ from `TrainingArguments`

        hub_strategy (`str`, *optional*, defaults to `"end"`):
            When to push with `push_to_hub=True`. `"end"`: one commit with the final model. `"every_save"`, the default
            of `TrainingArguments`: also one per checkpoint of the last stage; `"checkpoint"` and `"all_checkpoints"`
            push the state of the training too. The checkpoints of first stages are not pushed.
    """

    method: str = field(default="auto", metadata={"help": "Name of the method, for example glc or no_correction."})
    trusted_column: str = field(default="trusted", metadata={"help": "Column that marks trusted rows."})
    label_column: str | None = field(
        default=None, metadata={"help": "Column of the labels (default: found by its usual name)."}
    )
    source_columns: list[str] | None = field(
        default=None, metadata={"help": "Columns with the votes of several sources, one column per source."}
    )
    votes_column: str | None = field(
        default=None, metadata={"help": "Column of lists with one vote per source, instead of source_columns."}
    )
    source_names: list[str] | None = field(
        default=None, metadata={"help": "Names of the sources (default: the columns, or 0, 1, …)."}
    )
    soft_label_column: str | None = field(
        default=None, metadata={"help": "Column with the probabilities of all classes in each row: soft labels."}
    )
    trusted_eval_fraction: float = field(
        default=0.0,
        metadata={"help": "Share of trusted rows held out of training and matrix, for evaluation in each stage."},
    )
    freeze: list[str] | None = field(
        default=None, metadata={"help": "Prefixes of names of parameters that are not trained in any stage."}
    )
    stage1_fraction: float = field(default=0.34, metadata={"help": "Share of the steps with stage1=short."})
    stage1_num_train_epochs: float | None = field(
        default=None, metadata={"help": "Epochs of the first stages (default: num_train_epochs)."}
    )
    stage1_max_steps: int | None = field(
        default=None, metadata={"help": "Steps of the first stages (default: max_steps)."}
    )
    stage1_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of the first stages (default: learning_rate)."}
    )
    evaluate_stages: bool = field(
        default=True, metadata={"help": "Evaluate each first stage at its end (needs an eval_dataset)."}
    )
    hub_strategy: HubStrategy | str = field(
        default="end", metadata={"help": "When to push: end, every_save, checkpoint or all_checkpoints."}
    )

    def __post_init__(self) -> None:
        if num_launched_processes() > 1 and not torch.accelerator.is_available():
            # Without this, accelerate would not connect the processes, and each would train on its own.
            self.use_cpu = True
        super().__post_init__()
        save_whole_fsdp_models(self)
        for name in ("freeze", "source_columns", "source_names"):
            if isinstance(getattr(self, name), str):
                setattr(self, name, [getattr(self, name)])
        self._check_sources()
        if not 0.0 < self.stage1_fraction <= 1.0:
            raise ValueError(f"stage1_fraction must be in (0, 1], got {self.stage1_fraction!r}.")
        if not 0.0 <= self.trusted_eval_fraction < 1.0:
            raise ValueError(
                f"trusted_eval_fraction must be in [0, 1), got {self.trusted_eval_fraction!r}; 0 holds nothing out."
            )
        for name in ("stage1_num_train_epochs", "stage1_max_steps", "stage1_learning_rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, got {value!r}.")

    def _check_sources(self) -> None:
        """Raise if the options of the sources contradict each other."""
        kinds = [name for name in ("source_columns", "votes_column") if getattr(self, name)]
        if len(kinds) > 1:
            raise ValueError(f"{kinds[0]} and {kinds[1]} exclude each other: give one of them.")
        if self.source_columns is not None and not self.source_columns:
            raise ValueError("source_columns is empty: name at least one column of votes.")
        if self.source_names is not None and not (self.source_columns or self.votes_column):
            raise ValueError("source_names names the sources of source_columns or votes_column: give one of them.")
        for name in ("source_columns", "source_names"):
            values = getattr(self, name) or []
            twice = [value for value in values if values.count(value) > 1]
            if twice:
                raise ValueError(f"{name} has {twice[0]!r} twice: each source has its own.")
        if self.source_columns and self.source_names and len(self.source_columns) != len(self.source_names):
            raise ValueError(
                f"source_names has {len(self.source_names)} names, but there are {len(self.source_columns)} "
                "source_columns: give one name per source."
            )
        for column in [*(self.source_columns or ()), self.votes_column]:
            for role in ("label_column", "trusted_column", "soft_label_column"):
                if column is not None and column == getattr(self, role):
                    raise ValueError(f"{column!r} is the {role} and can't be a column of votes too.")
        for role in ("label_column", "trusted_column"):
            if self.soft_label_column is not None and self.soft_label_column == getattr(self, role):
                raise ValueError(f"{self.soft_label_column!r} is the {role} and can't be the soft_label_column too.")

    def changed_arguments(self) -> dict[str, Any]:
        """Every argument that differs from its default, in the order of the class and ready for JSON. Arguments that
        describe the machine, and values that are tokens or absolute paths, are left out."""
        changed = {}
        left_out = _LOCAL_ARGUMENTS | unused_arguments(self)
        for argument in dataclasses.fields(self):
            if not argument.init or argument.name in left_out or argument.name.endswith("_token"):
                continue
            default = argument.default
            if argument.default_factory is not dataclasses.MISSING:
                default = argument.default_factory()
            value = _plain_value(getattr(self, argument.name))
            is_path = isinstance(value, str) and os.path.isabs(value)
            if value != _plain_value(default) and not is_path:
                changed[argument.name] = value
        return changed

    def write_json(self, folder: str | Path) -> None:
        """Write `training_args.json` in place of the pickle of `Trainer`, which contains the Hub token."""
        folder = Path(folder)
        (folder / "training_args.bin").unlink(missing_ok=True)
        text = json.dumps(self.changed_arguments(), indent=2, default=str)
        (folder / ARGUMENTS_FILE).write_text(text, encoding="utf-8")

    def updates_per_epoch(self, rows: int) -> int:
        """Number of optimizer steps of an epoch with this many rows, on all processes together."""
        batch = self._rows_per_update
        return max(rows // batch if self.dataloader_drop_last else -(-rows // batch), 1)

    def epochs_with(self, rows: int) -> float:
        """Number of epochs of a stage with this many rows per epoch: `num_train_epochs`, unless `max_steps` is set."""
        if self.max_steps <= 0:
            return self.num_train_epochs
        whole, rest = divmod(self.max_steps, self.updates_per_epoch(rows))
        return whole + min(rest * self._rows_per_update / rows, 1.0)

    @property
    def _rows_per_update(self) -> int:
        return self.train_batch_size * self.gradient_accumulation_steps * self.world_size


class UnpicklableArguments:
    """Stands in for a [`GLCConfig`] while `Trainer` saves: its pickle is an empty dictionary."""

    def __init__(self, args: GLCConfig) -> None:
        self._args = args

    def __getattr__(self, name: str) -> Any:
        return getattr(self._args, name)

    def __reduce__(self) -> tuple:
        return dict, ()


def num_launched_processes() -> int:
    """How many processes `torchrun`, `accelerate launch` or MPI has started."""
    return max(int(os.environ.get(name) or 1) for name in _NUM_PROCESSES)


def _plain_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain_value(entry) for entry in value] or None
    if hasattr(value, "to_dict"):
        # Nested settings, such as accelerate's: those that differ from the defaults of their class.
        defaults = type(value)().to_dict()
        return {key: entry for key, entry in value.to_dict().items() if entry != defaults.get(key)} or None
    return value or None if isinstance(value, (str, dict)) else value
