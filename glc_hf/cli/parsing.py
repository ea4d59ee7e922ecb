# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Parsing and validation of the options of `glc-hf train`, from the command line and from a YAML or JSON file."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from transformers import HfArgumentParser

from glc_hf.cli.digits import DIGITS_SETTINGS
from glc_hf.cli.options import CONFIG_DEFAULTS, DataArguments, ModelArguments, NoiseArguments, unknown_option
from glc_hf.methods import get_method
from glc_hf.training.config import GLCConfig


# Values of `--resume_from_checkpoint` that are not a path.
_RESUME = {"true": True, "false": None}


class TrainOptions(NamedTuple):
    """All options of `glc-hf train`."""

    data: DataArguments
    noise: NoiseArguments
    model: ModelArguments
    config: GLCConfig

    @property
    def seed(self) -> int:
        """Seed for held-out rows, trusted rows and simulated noise."""
        return self.config.seed if self.noise.noise_seed is None else self.noise.noise_seed


class TrainParser(HfArgumentParser):
    """`HfArgumentParser` for the options of the command. It raises errors with a hint instead of exiting."""

    def __init__(self) -> None:
        kinds: list[Any] = [DataArguments, NoiseArguments, ModelArguments, GLCConfig]
        super().__init__(kinds, prog="glc-hf train", allow_abbrev=False)
        self.set_defaults(**CONFIG_DEFAULTS)
        self.names = {field.name for kind in self.dataclass_types for field in dataclasses.fields(kind) if field.init}

    def error(self, message: str) -> NoReturn:  # argparse would print a usage of more than a hundred options
        raise ValueError(f"{message} (see `glc-hf train --help`)")


def parse(argv: list[str]) -> TrainOptions:
    """
    Parse the arguments that follow `glc-hf train`.

    The command line overrides the file named as the first argument, which overrides the defaults.
    """
    parser = TrainParser()
    from_file: dict[str, Any] = {}
    if argv and not argv[0].startswith("-"):
        path, argv = Path(argv[0]), argv[1:]
        from_file = _read_file(path, parser)
        _check_trust(path, from_file, argv)
    parser.set_defaults(disable_tqdm=not sys.stdout.isatty())
    parser.set_defaults(**from_file)
    if parser.parse_known_args(argv)[0].dataset is None:
        parser.set_defaults(**{**DIGITS_SETTINGS, **from_file})
    try:
        *parsed, rest = parser.parse_args_into_dataclasses(
            argv, return_remaining_strings=True, look_for_args_file=False
        )
    except TypeError as error:  # a list or a mapping in a file where a number is expected
        raise ValueError(f"an option has a value of the wrong type: {error}") from error
    if rest:
        raise unknown_option(rest[0], parser.names)
    options = TrainOptions(*parsed)
    # `--resume_from_checkpoint` is a path, or `True` for the furthest checkpoint.
    resume: Any = options.config.resume_from_checkpoint
    options.config.resume_from_checkpoint = _RESUME.get(str(resume).lower(), resume)
    _check(options)
    return options


def _read_file(path: Path, parser: TrainParser) -> dict[str, Any]:
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError(
            f"{str(path)!r} is not an option and not a configuration file (.yaml, .yml or .json); options begin with "
            "`--`, as in `--dataset NAME`."
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no configuration file {path}.")
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
        raise ValueError(
            f"{path} must contain options, one `name: value` per line; it contains a {type(content).__name__}."
        )
    options = {str(name).replace("-", "_"): value for name, value in content.items()}
    for name in options:
        if name not in parser.names:
            raise unknown_option(name, parser.names, f" in {path}")
        if name.endswith("_strategy") and options[name] is False:
            options[name] = "no"  # YAML reads a bare `no` as False
    return options


def _check_trust(path: Path, from_file: dict[str, Any], argv: list[str]) -> None:
    """Raise if a file, which may be someone else's, would run code or overwrite files. The command line may do so."""
    given = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in argv if word.startswith("--")}
    if "trust_config" in given:
        return
    unsafe = [name for name in ("trust_remote_code", "overwrite_output_dir", "trust_config") if from_file.get(name)]
    for name in ("method", "compare"):
        values = from_file.get(name)
        if any(":" in str(value) for value in (values if isinstance(values, list) else [values])):
            unsafe.append(name)
    for name in unsafe:
        if name not in given:
            effect = "overwrites files" if name == "overwrite_output_dir" else "runs code"
            raise ValueError(
                f"{path} sets {name}: {from_file[name]}, which {effect} on this machine. If you trust the file, name "
                f"the option on the command line (--{name.replace('_', '-')} …), or add --trust-config."
            )


def _check(options: TrainOptions) -> None:
    """Validate combinations of options, before anything is loaded."""
    data, model, config = options.data, options.model, options.config
    for name in (config.method, *(model.compare or ())):
        get_method(name)
    if model.compare and config.push_to_hub:
        raise ValueError(
            "--compare saves one folder per method and pushes none: remove --push-to-hub, and push the one you want "
            "with `hf upload`."
        )
    if model.compare and isinstance(config.resume_from_checkpoint, str):
        raise ValueError(
            "--compare saves one folder per method and can't resume from a single checkpoint, "
            f"{config.resume_from_checkpoint}: use --resume_from_checkpoint True, which resumes each method."
        )
    if data.dataset is not None and model.model is None:
        raise ValueError(
            "--dataset needs --model: a Hub id (--model distilbert/distilbert-base-uncased), a local folder "
            "(--model ./my-model), or a network of timm (--model timm/resnet18, for images)."
        )
    check_place_of_votes(data, config)
    output = Path(str(config.output_dir)).resolve()
    for name in (data.dataset, data.trusted_dataset, data.eval_dataset):
        path = Path(name or "").expanduser().resolve()
        if name is None or not path.exists():
            continue
        if path.is_dir() and path in (output, *output.parents):  # the next run would read the saved files as data
            raise ValueError(
                f"--output-dir {config.output_dir} is inside the folder of the data, {name}: choose a folder outside."
            )
        if path.is_file() and config.push_to_hub and output in path.parents:
            raise ValueError(
                f"{name} is inside --output-dir {config.output_dir}, which would be pushed: choose another folder."
            )


def check_place_of_votes(data: DataArguments, config: GLCConfig) -> None:
    """Raise if options name both columns of votes and a file with answers."""
    given = [name for name in ("source_columns", "votes_column", "source_names") if getattr(config, name)]
    if data.answers is not None and given:
        raise ValueError(
            f"--answers and --{given[0].replace('_', '-')} both define the votes and their sources: use one of them."
        )
