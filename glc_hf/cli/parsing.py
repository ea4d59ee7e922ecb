# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""From the words of the command line, or a YAML or JSON file, to checked options."""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from transformers import HfArgumentParser

from glc_hf.cli.digits import DIGITS_SETTINGS
from glc_hf.cli.options import CONFIG_DEFAULTS, DataArguments, ModelArguments, NoiseArguments
from glc_hf.methods import get_method
from glc_hf.training.config import GLCConfig


class TrainOptions(NamedTuple):
    """Everything `glc-hf train` was told."""

    data: DataArguments
    noise: NoiseArguments
    model: ModelArguments
    config: GLCConfig

    @property
    def seed(self) -> int:
        """The seed of what is drawn about the rows: held out, marked as trusted, given a wrong label."""
        return self.config.seed if self.noise.noise_seed is None else self.noise.noise_seed


# Names that other tools have for options of `TrainingArguments`.
_OFTEN_MEANT = {
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
    "steps": "max_steps",
}


class TrainParser(HfArgumentParser):
    """`HfArgumentParser` over the options of the command, whose errors are exceptions with a hint."""

    def __init__(self) -> None:
        super().__init__(
            (DataArguments, NoiseArguments, ModelArguments, GLCConfig), prog="glc-hf train", allow_abbrev=False
        )
        self.names = {field.name for kind in self.dataclass_types for field in dataclasses.fields(kind) if field.init}

    def error(self, message: str) -> NoReturn:
        """In place of printing the usage, which has more than a hundred options."""
        raise ValueError(f"{message} (see `glc-hf train --help`)")

    def unknown(self, name: str, where: str) -> NoReturn:
        """Complains about an option that is not there, with the nearest that is."""
        word = name.lstrip("-").replace("-", "_")
        near = [_OFTEN_MEANT[word]] if word in _OFTEN_MEANT else difflib.get_close_matches(word, self.names, n=1)
        hint = f"; did you mean --{near[0].replace('_', '-')}?" if near else ""
        raise ValueError(f"there is no option {name!r}{where}{hint} (see `glc-hf train --help`)")


def parse(argv: list[str]) -> TrainOptions:
    """
    Options from the command line, which win over those of a file named first, which win over the defaults.

    Args:
        argv (`list[str]`): The words after `glc-hf train`.
    """
    parser = TrainParser()
    from_file: dict[str, Any] = {}
    if argv and not argv[0].startswith("-"):
        from_file, argv = _read_file(Path(argv[0]), parser), argv[1:]
    parser.set_defaults(**CONFIG_DEFAULTS, disable_tqdm=not sys.stdout.isatty())
    parser.set_defaults(**from_file)
    if parser.parse_known_args(argv)[0].dataset is None:
        parser.set_defaults(**{**DIGITS_SETTINGS, **from_file})
    try:
        *parsed, rest = parser.parse_args_into_dataclasses(
            argv, return_remaining_strings=True, look_for_args_file=False
        )
    except TypeError as error:  # a list or a mapping, from a file, where a number is meant
        raise ValueError(f"an option has a value of the wrong kind: {error}") from error
    if rest:
        parser.unknown(rest[0], "")
    options = TrainOptions(*parsed)
    options.config.resume_from_checkpoint = _resume(options.config.resume_from_checkpoint)
    for name in (options.config.method, *(options.model.compare or ())):
        get_method(name)  # an unknown one is an error, before anything is loaded
    if options.model.compare and options.config.push_to_hub:
        raise ValueError(
            "--compare saves a folder for each method and pushes none: leave out --push-to-hub, and push the one you "
            "want with `hf upload`."
        )
    if options.model.compare and isinstance(options.config.resume_from_checkpoint, str):
        raise ValueError(
            "--compare has a folder for each method: --resume_from_checkpoint True goes on in each of them; it can't "
            f"go on from {options.config.resume_from_checkpoint}."
        )
    _check_model_is_named(options)
    _check_output_is_apart(options)
    return options


def print_all_options() -> None:
    """The help with every option of `TrainingArguments`."""
    parser = TrainParser()
    parser.set_defaults(**CONFIG_DEFAULTS)
    parser.print_help()


def _read_file(path: Path, parser: TrainParser) -> dict[str, Any]:
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError(
            f"{str(path)!r} is no option and no configuration file (.yaml, .yml or .json); options begin with `--`, "
            "as in `--dataset NAME`."
        )
    text = path.read_text(encoding="utf-8")
    try:
        if path.suffix == ".json":
            content = json.loads(text)
        else:
            import yaml

            content = yaml.safe_load(text)
    except Exception as error:
        raise ValueError(f"{path} can't be read as {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold options, one `name: value` a line; it holds {type(content).__name__}.")
    options = {str(name).replace("-", "_"): value for name, value in content.items()}
    for name in options:
        if name not in parser.names:
            parser.unknown(name, f" in {path}")
        if name.endswith("_strategy") and options[name] is False:
            options[name] = "no"  # which YAML reads as a truth value
    return options


def _resume(value: str | bool | None) -> str | bool | None:
    """`--resume_from_checkpoint` takes a path, or `True` for the furthest checkpoint."""
    return {"true": True, "false": None}.get(str(value).lower(), value)


def _check_output_is_apart(options: TrainOptions) -> None:
    """What is saved would be taken for data the next time."""
    output = Path(options.config.output_dir).resolve()
    for name in (options.data.dataset, options.data.trusted_dataset):
        path = Path(name).expanduser() if name is not None else None
        if path is not None and path.is_dir() and path.resolve() in (output, *output.parents):
            raise ValueError(
                f"--output-dir {options.config.output_dir} lies in the folder of the data, {name}: choose a place "
                "outside."
            )
        if options.config.push_to_hub and path is not None and path.is_file() and output in path.resolve().parents:
            raise ValueError(
                f"{name} lies in --output-dir {options.config.output_dir}, which is to be pushed: choose another."
            )


def _check_model_is_named(options: TrainOptions) -> None:
    if options.data.dataset is not None and options.model.model is None:
        raise ValueError(
            "--dataset needs --model: a Hub id (--model distilbert/distilbert-base-uncased), a local folder "
            "(--model ./my-model), or a network of timm (--model timm/resnet18, for images)."
        )
