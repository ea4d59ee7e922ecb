# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The options of `glc-hf train` and its help text; `parsing` reads their values.

`import torch` takes seconds, so this module imports nothing heavy and reads the options of `GLCConfig` from source.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


CONFIG_DEFAULTS = {"output_dir": "glc-hf-output"}  # defaults that differ from those of `GLCConfig`
TASKS = ("auto", "text", "image", "token")
DEFAULT_TRUSTED_FRACTION = 0.05
ANSWER_COLUMNS = ("item", "worker", "answer")
# Options `--NAME-column` of the inputs, and what the columns hold.
INPUT_COLUMNS = {
    "text": "texts", "text-pair": "second texts, for pairs", "image": "images", "tokens": "lists of words",
}  # fmt: skip
ON_MISSING = ("error", "skip")


def _option(default: Any, text: str, **metadata: Any) -> Any:
    return field(default=default, metadata={"help": text, **metadata})


@dataclass
class DataArguments:
    """Options that select the training and evaluation rows. The label and trusted columns are in `GLCConfig`."""

    _argument_group_name: ClassVar[str] = "data"

    dataset: str | None = _option(
        None,
        "Hub id, local folder in the layout of the Hub (for example train.csv and test.csv), or one CSV, TSV, JSON, "
        "JSONL or Parquet file. By default: the digits of scikit-learn with simulated noise.",
    )
    dataset_config: str | None = _option(None, "Configuration of the dataset, if it has several.")
    train_split: str = _option("train", "Split to train on.")
    eval_split: str | None = _option(
        None,
        "Split to evaluate on. By default test, else validation, else rows held out of the training split: 10 percent "
        "of all rows if noise is simulated, 20 percent of the trusted rows otherwise.",
    )
    eval_dataset: str | None = _option(
        None,
        "Second dataset or file, to evaluate on. If it has several splits: --eval-split, else test, else validation.",
    )
    trusted_dataset: str | None = _option(None, "Second dataset or file, whose labels are all trusted.")
    answers: str | None = _option(
        None,
        "Second file with one line per answer of a source (a rule, a person, a language model), for example item, "
        "worker, answer. The training split has the column of the item too.",
    )
    answer_columns: list[str] | None = _option(  # noqa: RUF009  (it is a field)
        None, f"Its columns of the item, the source and the answer. By default {' '.join(ANSWER_COLUMNS)}."
    )
    text_column: str | None = _option(None, "Column of the texts. By default found by type and name.")
    text_pair_column: str | None = _option(None, "Column of the second texts, for pairs of texts.")
    image_column: str | None = _option(None, "Column of the images. By default found by type and name.")
    tokens_column: str | None = _option(None, "Column of the lists of words. By default found by type and name.")
    index_column: str | None = _option(
        None, "Column of row ids (integers) for simulated noise. By default the position."
    )
    normalize_labels: bool = _option(
        False, "Merge class names that differ only in case or spaces. The most frequent spelling is kept."
    )
    on_missing: str = _option(
        "error", "What to do with rows without a label or a flag: stop, or leave them out.", choices=list(ON_MISSING)
    )
    delimiter: str | None = _option(
        None, "Delimiter of CSV files: a character, or comma, semicolon, tab, pipe. By default found from a sample."
    )
    encoding: str | None = _option(None, "Encoding of CSV files, such as cp1252. By default found from a sample.")
    max_train_samples: int | None = _option(None, "Maximum number of training rows, drawn at random.")
    max_eval_samples: int | None = _option(None, "Maximum number of evaluation rows, drawn at random.")
    max_length: int | None = _option(None, "Truncate texts to this many tokens. By default the limit of the model.")

    def __post_init__(self) -> None:
        for name in ("max_train_samples", "max_eval_samples", "max_length"):
            _check_at_least_one(name, getattr(self, name))
        _check_choice("on_missing", self.on_missing, ON_MISSING)
        if self.delimiter is not None or self.encoding is not None:
            from glc_hf.data.data_files import check_encoding, parse_delimiter

            if self.delimiter is not None:
                self.delimiter = parse_delimiter(self.delimiter)
            if self.encoding is not None:
                check_encoding(self.encoding)
        if self.text_pair_column is not None and self.text_column is None:
            raise ValueError("--text-pair-column needs --text-column, the first text of the pair.")
        if self.answer_columns is not None and self.answers is None:
            raise ValueError("--answer-columns names the columns of a second file: name the file with --answers.")
        if self.answer_columns is not None and len(self.answer_columns) != 3:
            raise ValueError(
                "--answer-columns needs three columns, of the item, the source and the answer, as in --answer-columns "
                f"{' '.join(ANSWER_COLUMNS)}; got {' '.join(self.answer_columns)}."
            )


@dataclass
class NoiseArguments:
    """Options for simulated noise and for the rows that stay clean."""

    _argument_group_name: ClassVar[str] = "simulated noise"

    noise: str = _option(
        "none",
        "Noise to add to the untrusted labels: none (the labels are already noisy), uniform, flip, hierarchical, weak "
        "(labels drawn from a weak classifier, which is trained on the clean labels first), or the path of a "
        "corruption_matrix.json.",
    )
    noise_strength: float = _option(0.6, "Strength of uniform, flip or hierarchical noise, from 0 to 1.")
    noise_seed: int | None = _option(None, "Seed for noise, trusted rows and held-out rows. By default --seed.")
    noise_groups: str | None = _option(
        None,
        "Groups for hierarchical noise: a column with the group of each class (such as coarse_label), or a JSON list "
        "(the group of each class, or the classes of each group).",
    )
    weak_epochs: float = _option(10.0, "Training epochs of the weak classifier (--noise weak).")
    weak_temperature: float = _option(5.0, "Temperature of the labels that it draws. Higher is noisier.")
    trusted_fraction: float | None = _option(
        None,
        "Share of the rows to mark as trusted before noise is added. By default "
        f"{DEFAULT_TRUSTED_FRACTION}, unless the dataset marks its trusted rows.",
    )
    trusted_count: int | None = _option(None, "Number of rows to mark as trusted, instead of a share.")
    trusted_level: str = _option(
        "row", "For token labels: draw whole rows or single tokens as trusted.", choices=["row", "token"]
    )
    stratify: bool = _option(False, "Draw the trusted rows from each class in proportion to its size.")
    corruption_matrix: str | None = _option(None, "Known matrix (file, folder or Hub id), instead of an estimate.")

    def __post_init__(self) -> None:
        self.noise = self.noise or "none"  # YAML reads a bare `no` or `~` as False or None
        from glc_hf.noise.families import WEAK, noise_families  # needs numpy, which the help does not

        choices = ("none", *noise_families(), WEAK)
        if self.noise not in choices and not Path(self.noise).expanduser().exists():
            raise ValueError(
                f"--noise must be one of {', '.join(choices)}, or the path of a corruption_matrix.json; "
                f"got {self.noise!r}."
            )
        if not 0.0 <= self.noise_strength <= 1.0:
            raise ValueError(f"--noise-strength must be between 0 and 1, got {self.noise_strength}.")
        if (self.noise == "hierarchical") != (self.noise_groups is not None):
            raise ValueError(
                "--noise hierarchical and --noise-groups must be used together: the groups define which classes are "
                "confused."
            )
        for name in ("weak_epochs", "weak_temperature"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{_flag(name)} must be greater than 0, got {getattr(self, name)}.")
        if self.trusted_fraction is not None and not 0.0 < self.trusted_fraction < 1.0:
            raise ValueError(f"--trusted-fraction must be between 0 and 1, got {self.trusted_fraction}.")
        _check_at_least_one("trusted_count", self.trusted_count)
        if self.trusted_fraction is not None and self.trusted_count is not None:
            raise ValueError("--trusted-fraction and --trusted-count exclude each other: give one.")
        _check_choice("trusted_level", self.trusted_level, ("row", "token"))

    @property
    def simulated(self) -> bool:
        """Whether noise is added to the labels."""
        return self.noise != "none"


@dataclass
class ModelArguments:
    """Options that select the model and the task, and what a run may do on this machine."""

    _argument_group_name: ClassVar[str] = "model"

    model: str | None = _option(
        None,
        "Hub id or local folder, or timm/NAME for a network of timm, such as timm/resnet18. By default, without "
        "--dataset: a small network for digits.",
    )
    compare: list[str] | None = _option(  # noqa: RUF009  (it is a field)
        None,
        "Train several methods on the same rows, noise and initial weights and print one table, for example --compare "
        "no_correction glc auto. Stages that methods share are trained once. Each model is saved to a subfolder.",
    )
    task: str = _option("auto", "Type of input; auto finds it from the columns.", choices=list(TASKS))
    from_scratch: bool = _option(False, "Start from random weights: use only the configuration of the model.")
    image_size: int | None = _option(None, "Image size for a timm network that starts from scratch.")
    trust_remote_code: bool = _option(False, "Allow a model repository to run its code on this machine.")
    model_revision: str | None = _option(None, "Branch, tag or commit of the model.")
    overwrite_output_dir: bool = _option(
        False, "Write to --output-dir even if it has files that no run has written. Files of the same name are lost."
    )
    trust_config: bool = _option(
        False,
        "Let the YAML or JSON file do what otherwise only the command line may: name code to run (module:Class, "
        "trust_remote_code) and set overwrite_output_dir.",
    )

    def __post_init__(self) -> None:
        _check_choice("task", self.task, TASKS)
        _check_at_least_one("image_size", self.image_size)
        if self.image_size is not None and not (self.from_scratch and (self.model or "").startswith("timm/")):
            raise ValueError(
                "--image-size needs a timm network that starts from scratch (--model timm/… --from-scratch)."
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_at_least_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{_flag(name)} must be at least 1, got {value}.")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{_flag(name)} must be one of {', '.join(choices)}; got {value!r}.")


class Option(NamedTuple):
    """One option as the help shows it."""

    name: str
    default: Any
    help: str
    choices: list[str] | None


def train_help() -> str:
    """Return the text of `glc-hf train --help`."""
    parser = argparse.ArgumentParser(
        prog="glc-hf train",
        usage="glc-hf train [CONFIG.yaml] [--option value …]",
        description="Train a model on noisy labels with a few trusted ones, and save it with its corruption matrix. "
        "Options can also be given in a YAML or JSON file, as the first argument; the command line overrides the "
        "file. Without options, an embedded example is trained: digits with noisy labels.",
        epilog="All options of transformers.TrainingArguments are accepted too, such as --learning-rate, "
        "--num-train-epochs, --per-device-train-batch-size, --seed, --push-to-hub or --resume-from-checkpoint True. "
        f"--output-dir (default: {CONFIG_DEFAULTS['output_dir']}) is the folder to save to. --help-all lists them "
        "all. Option names can be written with dashes or underscores.",
        add_help=False,
    )
    for arguments in (DataArguments, NoiseArguments, ModelArguments):
        options = [
            Option(field.name, field.default, field.metadata["help"], field.metadata.get("choices"))
            for field in fields(arguments)
        ]
        _add_group(parser, arguments._argument_group_name, options)
    _add_group(parser, "correction", config_options())
    group = parser.add_argument_group("help")
    group.add_argument("--help", action="store_true", help="Show this help.")
    group.add_argument("--help-all", action="store_true", help="Show all options, also those of TrainingArguments.")
    group.add_argument("--debug", action="store_true", help="Show the traceback of an error.")
    return parser.format_help()


def _add_group(parser: argparse.ArgumentParser, title: str, options: list[Option]) -> None:
    group = parser.add_argument_group(title)
    for option in options:
        text = option.help.replace("%", "%%")
        if option.default is True:
            group.add_argument(_flag(f"no_{option.name}"), action="store_true", help=f"Turn off: {text}")
        elif option.default is False:
            group.add_argument(_flag(option.name), action="store_true", help=text)
        else:
            if option.choices:
                text += f" One of: {', '.join(option.choices)}."
            if option.default is not None:
                text += f" (default: {option.default})"
            group.add_argument(_flag(option.name), metavar="VALUE", help=text)


def config_options() -> list[Option]:
    """Return the options that `GLCConfig` adds to `TrainingArguments`: its fields, then those of single methods."""
    config = files("glc_hf").joinpath("training", "config.py").read_text(encoding="utf-8")
    options = {option.name: option for option in _fields_in(config, "GLCConfig")}
    for source in _method_sources():
        for option in _fields_in(source, r"\w+Options"):
            options.setdefault(option.name, option)
    return list(options.values())


def _fields_in(source: str, class_name: str) -> Iterator[Option]:
    """Yield the `name: type = field(default=…, metadata=…)` lines of the classes whose name matches."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and re.fullmatch(class_name, node.name):
            for line in node.body:
                if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                    continue
                if isinstance(line.value, ast.Call):
                    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in line.value.keywords}
                    metadata, name = given.get("metadata", {}), line.target.id
                    choices = method_names() if name == "method" else metadata.get("choices")
                    yield Option(name, given.get("default"), metadata.get("help", ""), choices)


# Names that other tools use for options of `TrainingArguments`.
_SYNONYMS = {
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
    "steps": "max_steps",
}


def unknown_option(option: str, names: Collection[str], file: str = "") -> ValueError:
    """The error about an option that does not exist, with the option that was probably meant."""
    name = option.lstrip("-").replace("-", "_")
    near = [_SYNONYMS[name]] if name in _SYNONYMS else difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {_flag(near[0])}?" if near else ""
    return ValueError(f"there is no option {option!r}{file}{hint} (see `glc-hf train --help`)")


@cache
def _training_arguments() -> frozenset[str]:
    """The fields of `TrainingArguments`, read from its source. Empty if the source is not there."""
    transformers = find_spec("transformers")
    source = Path(transformers.origin).with_name("training_args.py") if transformers and transformers.origin else None
    if source is None or not source.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    return frozenset(
        node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    )


def check_option_names(argv: list[str]) -> None:
    """Raise if an option does not exist, before the seconds that it takes to import the parser."""
    names = {field.name for kind in (DataArguments, NoiseArguments, ModelArguments) for field in fields(kind)}
    names |= {option.name for option in config_options()} | {"help_all"} | _training_arguments()
    if not _training_arguments():
        return  # the parser knows
    for word in argv:
        option = word.split("=")[0]
        name = option.removeprefix("--").replace("-", "_")
        if option.startswith("--") and name and not {name, name.removeprefix("no_")} & names:
            raise unknown_option(option, names)


def method_names() -> list[str]:
    """Return the names of the registered methods, read from their sources (`glc_hf.methods.available_methods`)."""
    sources = "\n".join(_method_sources())
    return sorted(re.findall(r'^@register\("(\w+)"\)', sources, re.MULTILINE))


def _method_sources() -> list[str]:
    paths = sorted(files("glc_hf").joinpath("methods").iterdir(), key=lambda path: path.name)
    return [path.read_text(encoding="utf-8") for path in paths if path.name.endswith(".py")]


def add_answer_options(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the options of a file with one line per answer to a command other than `train`."""
    parser.add_argument("--answers", metavar="FILE", help=text)
    parser.add_argument(
        "--answer-columns",
        nargs=3,
        metavar=("ITEM", "SOURCE", "ANSWER"),
        help=f"columns of --answers (default: {' '.join(ANSWER_COLUMNS)})",
    )
