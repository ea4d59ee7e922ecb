# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The help of `glc-hf train`, made without importing transformers.

The options of `GLCConfig` are read off its source with `ast`: its module needs `TrainingArguments`, which takes
seconds to import.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
from importlib.resources import files
from typing import Any, NamedTuple

from glc_hf.cli.arguments import CONFIG_DEFAULTS, DataArguments, ModelArguments, NoiseArguments


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
