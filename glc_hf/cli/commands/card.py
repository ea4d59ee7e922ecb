# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf card`: write the model card of a trained folder again, with details that only its owner knows."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any


def main(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf card`."""
    options = parser().parse_args(argv)
    from glc_hf.hub.facts import read_facts, write_facts
    from glc_hf.hub.model_card import PICTURE_FILE, write_card

    folder = Path(options.folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {options.folder}.")
    facts = read_facts(folder)
    write_facts(folder, {**facts, **_given_facts(options, facts)})
    card = write_card(folder)
    if options.output is not None:
        target = Path(options.output).expanduser()
        target.parent.mkdir(parents=True, exist_ok=True)
        picture = target.with_suffix(".png")  # named after the card, so that several cards can share a folder
        text = card.read_text(encoding="utf-8").replace(f"]({PICTURE_FILE})", f"]({picture.name})")
        target.write_text(text, encoding="utf-8")
        if (folder / PICTURE_FILE).is_file():
            shutil.copyfile(folder / PICTURE_FILE, picture)
        card = target
    print(f"model card: {card}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="glc-hf card",
        description="Write the model card of a trained folder again, from the files of the run. Values given here are "
        "stored in the folder and used again the next time.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of a model saved by `glc-hf train` or GLCTrainer")
    parser.add_argument("--name", help="name of the model")
    parser.add_argument("--license", help="license of the model, as spelled on the Hub, such as apache-2.0")
    parser.add_argument("--base-model", metavar="ID", help="Hub id of the model it was fine-tuned from")
    parser.add_argument("--base-license", metavar="LICENSE", help="license of the base model")
    parser.add_argument("--dataset", metavar="ID", help="Hub id of the dataset")
    parser.add_argument("--language", help="language of the texts, such as en")
    parser.add_argument("--tags", nargs="+", help="additional tags")
    parser.add_argument("--output", metavar="FILE", help="also write the card to this file, with the plot beside it")
    return parser


def _given_facts(options: argparse.Namespace, facts: dict[str, Any]) -> dict[str, Any]:
    from glc_hf.hub.facts import public_name

    given = {"model_name": options.name, "license": options.license, "language": options.language}
    given = {name: value for name, value in {**given, "tags": options.tags}.items() if value is not None}
    base = dict(facts.get("base_model") or {})
    if options.base_model is not None:
        base = public_name(options.base_model)._asdict()
    if options.base_license is not None:
        base["license"] = options.base_license
    if options.dataset is not None:
        given["dataset"] = {**(facts.get("dataset") or {}), **public_name(options.dataset)._asdict()}
    return {**given, "base_model": base}
