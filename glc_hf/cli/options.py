# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The options of `glc-hf train` beside those of `GLCConfig`, in the groups that its help shows.

This module imports nothing heavy: the help is made from it. `GLCConfig` has `label_column` and `trusted_column`.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


# Where the command's default is not the one of `GLCConfig`.
CONFIG_DEFAULTS = {"output_dir": "glc-hf-output"}
NOISE_FAMILIES = ("none", "uniform", "flip", "hierarchical", "weak")
TASKS = ("auto", "text", "image", "token")
DEFAULT_TRUSTED_FRACTION = 0.05


def _option(default: Any, text: str, **metadata: Any) -> Any:
    return field(default=default, metadata={"help": text, **metadata})


@dataclass
class DataArguments:
    """Which rows are trained on and judged by."""

    _argument_group_name: ClassVar[str] = "data"

    dataset: str | None = _option(
        None,
        "Hub id, local folder laid out as on the Hub (train.csv beside test.csv will do), or one CSV, TSV, JSON, "
        "JSONL or Parquet file. Without it: the digits of scikit-learn, with simulated noise.",
    )
    dataset_config: str | None = _option(None, "Configuration of the dataset, where it has several.")
    train_split: str = _option("train", "Split to train on.")
    eval_split: str | None = _option(
        None,
        "Split to evaluate on. Left out: test, else validation, else rows held out of the training split: 10 percent "
        "of all before noise is simulated, 20 percent of the trusted ones where the noise is real.",
    )
    trusted_dataset: str | None = _option(
        None, "A second dataset or file, with the same columns, whose labels are all trusted."
    )
    text_column: str | None = _option(None, "Column of the text; found by itself if usual.")
    text_pair_column: str | None = _option(None, "Column of the second text, for pairs of texts.")
    image_column: str | None = _option(None, "Column of the images; found by itself if usual.")
    tokens_column: str | None = _option(None, "Column of the lists of words; found by itself if usual.")
    index_column: str | None = _option(
        None, "Column of unique integers that simulated noise goes by, instead of a row's position."
    )
    max_train_samples: int | None = _option(None, "Train on this many rows at most, drawn at random.")
    max_eval_samples: int | None = _option(None, "Evaluate on this many rows at most, drawn at random.")
    max_length: int | None = _option(None, "Cut texts to this many tokens; left out: what the model can take.")

    def __post_init__(self) -> None:
        for name in ("max_train_samples", "max_eval_samples", "max_length"):
            _check_at_least_one(name, getattr(self, name))
        if self.text_pair_column is not None and self.text_column is None:
            raise ValueError("--text-pair-column needs --text-column, the first text of the pair.")


@dataclass
class NoiseArguments:
    """Noise to simulate, and which rows to leave alone."""

    _argument_group_name: ClassVar[str] = "simulated noise"

    noise: str = _option(
        "none",
        "Noise to put on the untrusted labels: none (the labels are noisy as they are), uniform, flip, hierarchical, "
        "weak (the labels of a weak classifier, trained on the clean ones first), or the path of a "
        "corruption_matrix.json.",
    )
    noise_strength: float = _option(0.6, "Strength of uniform, flip or hierarchical noise, from 0 to 1.")
    noise_seed: int | None = _option(None, "Seed of everything drawn about the rows; left out: that of --seed.")
    noise_groups: str | None = _option(
        None,
        "Groups for hierarchical noise: a column that gives each class its group (such as coarse_label), or a JSON "
        "list (of each class's group, or of each group's classes).",
    )
    weak_epochs: float = _option(10.0, "Epochs that the weak classifier of --noise weak is trained for.")
    weak_temperature: float = _option(5.0, "Temperature that its labels are drawn at; higher is noisier.")
    trusted_fraction: float | None = _option(
        None,
        "Share of the rows to mark as trusted where noise is simulated; left out: "
        f"{DEFAULT_TRUSTED_FRACTION}, unless the dataset marks them.",
    )
    trusted_count: int | None = _option(None, "Number of rows to mark, instead of a share.")
    trusted_level: str = _option(
        "row", "What is drawn as trusted for token labels: whole rows or single tokens.", choices=["row", "token"]
    )
    stratify: bool = _option(False, "Draw the trusted rows class by class, in proportion.")
    corruption_matrix: str | None = _option(
        None, "A known matrix (file, folder or Hub id), used as it is instead of estimating one."
    )

    def __post_init__(self) -> None:
        self.noise = self.noise or "none"  # YAML reads a bare `no` or `~` as False or None
        if self.noise not in NOISE_FAMILIES and not Path(self.noise).expanduser().exists():
            raise ValueError(
                f"--noise is one of {', '.join(NOISE_FAMILIES)}, or the path of a corruption_matrix.json; "
                f"{self.noise!r} is neither."
            )
        if not 0.0 <= self.noise_strength <= 1.0:
            raise ValueError(f"--noise-strength lies between 0 and 1, got {self.noise_strength}.")
        if (self.noise == "hierarchical") != (self.noise_groups is not None):
            raise ValueError(
                "--noise hierarchical and --noise-groups go together: the groups say which classes are confused."
            )
        for name in ("weak_epochs", "weak_temperature"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"--{name.replace('_', '-')} is greater than 0, got {getattr(self, name)}.")
        if self.trusted_fraction is not None and not 0.0 < self.trusted_fraction < 1.0:
            raise ValueError(f"--trusted-fraction lies between 0 and 1, got {self.trusted_fraction}.")
        _check_at_least_one("trusted_count", self.trusted_count)
        if self.trusted_fraction is not None and self.trusted_count is not None:
            raise ValueError("--trusted-fraction and --trusted-count both say how many rows to mark: give one.")
        _check_choice("trusted_level", self.trusted_level, ("row", "token"))

    @property
    def simulated(self) -> bool:
        """Whether noise is put on the labels."""
        return self.noise != "none"


@dataclass
class ModelArguments:
    """What is trained."""

    _argument_group_name: ClassVar[str] = "model"

    model: str | None = _option(
        None,
        "Hub id or local folder; timm/NAME for any network of timm, such as timm/resnet18. Without it and without "
        "--dataset: a small network for digits.",
    )
    compare: list[str] | None = _option(  # noqa: RUF009  (it is a field)
        None,
        "Train several methods on the same rows, noise and initial weights, and print one table; stages that they "
        "have in common are trained once. Each model is saved in a folder of its name.",
    )
    task: str = _option("auto", "Kind of input; auto: found from the columns.", choices=list(TASKS))
    from_scratch: bool = _option(False, "Start from random weights: only the configuration is taken.")
    image_size: int | None = _option(
        None, "Side of the images that a timm network started from scratch sees; left out: its usual one."
    )
    trust_remote_code: bool = _option(False, "Allow a model repository to run code of its own on this machine.")
    model_revision: str | None = _option(None, "Branch, tag or commit of the model.")

    def __post_init__(self) -> None:
        _check_choice("task", self.task, TASKS)
        _check_at_least_one("image_size", self.image_size)
        if self.image_size is not None and not (self.from_scratch and (self.model or "").startswith("timm/")):
            raise ValueError(
                "--image-size is for a timm network started from scratch (--model timm/… --from-scratch)."
            )


def _check_at_least_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"--{name.replace('_', '-')} is at least 1, got {value}.")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"--{name.replace('_', '-')} is one of {', '.join(choices)}; got {value!r}.")


class Option(NamedTuple):
    """One option as the help shows it."""

    name: str
    default: Any
    help: str
    choices: list[str] | None


def train_help() -> str:
    """The text of `glc-hf train --help`."""
    parser = argparse.ArgumentParser(
        prog="glc-hf train",
        usage="glc-hf train [CONFIG.yaml] [--option value …]",
        description="Train a model on noisy labels with a few trusted ones, and save it with the corruption matrix. "
        "Options may stand in a YAML or JSON file named first; those on the command line win. With no option: an "
        "embedded example, noisy digits.",
        epilog="Every option of transformers.TrainingArguments is accepted too, such as --learning-rate, "
        "--num-train-epochs, --per-device-train-batch-size, --seed, --push-to-hub or --resume-from-checkpoint True. "
        f"--output-dir (default: {CONFIG_DEFAULTS['output_dir']}) says where to save. --help-all lists them all. "
        "Names may be written with dashes or underscores.",
        add_help=False,
    )
    for arguments in (DataArguments, NoiseArguments, ModelArguments):
        _add(parser, arguments._argument_group_name, _options_of(arguments))
    _add(parser, "correction", config_options())
    other = parser.add_argument_group("help")
    other.add_argument("--help", action="store_true", help="Show this.")
    other.add_argument("--help-all", action="store_true", help="Show every option, those of TrainingArguments too.")
    other.add_argument("--debug", action="store_true", help="Show the traceback of an error.")
    return parser.format_help()


def config_options() -> list[Option]:
    """The options that `GLCConfig` adds to `TrainingArguments`, in the order of its source."""
    tree = ast.parse(files("glc_hf.training").joinpath("config.py").read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "GLCConfig")
    options = []
    for node in body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Call):
            continue
        given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.value.keywords}
        metadata = given.get("metadata", {})
        name = node.target.id
        choices = method_names() if name == "method" else metadata.get("choices")
        options.append(Option(name, given.get("default"), metadata.get("help", ""), choices))
    return options


def method_names() -> list[str]:
    """The registered methods, as their sources name them; see `glc_hf.methods.available_methods`."""
    sources = [entry.read_text(encoding="utf-8") for entry in files("glc_hf.methods").iterdir() if _is_source(entry)]
    return sorted(name for source in sources for name in re.findall(r'^@register\("(\w+)"\)', source, re.MULTILINE))


def _is_source(entry: Any) -> bool:
    return entry.is_file() and entry.name.endswith(".py")


def _options_of(arguments: type) -> list[Option]:
    return [
        Option(field.name, field.default, field.metadata["help"], field.metadata.get("choices"))
        for field in dataclasses.fields(arguments)
    ]


def _add(parser: argparse.ArgumentParser, title: str, options: list[Option]) -> None:
    group = parser.add_argument_group(title)
    for option in options:
        flag = f"--{option.name.replace('_', '-')}"
        text = option.help.replace("%", "%%")
        if isinstance(option.default, bool):
            if option.default:
                flag, text = f"--no-{flag[2:]}", f"Turns off: {text}"
            group.add_argument(flag, action="store_true", help=text)
            continue
        if option.choices:
            text = f"{text} One of: {', '.join(option.choices)}."
        if option.default is not None:
            text = f"{text} (default: {option.default})"
        group.add_argument(flag, metavar="VALUE", help=text)
