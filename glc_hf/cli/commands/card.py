# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf card`: the model card of a trained folder, made anew, with what only its owner can add."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any


def main(argv: list[str]) -> int:
    """
    Runs the command.

    Args:
        argv (`list[str]`): The words after `glc-hf card`.
    """
    options = _parser().parse_args(argv)
    from glc_hf.hub.facts import read_facts, write_facts
    from glc_hf.hub.model_card import CARD_FILE, write_card

    folder = Path(options.folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {options.folder}.")
    facts = read_facts(folder)
    write_facts(folder, {**facts, **_told(options, facts)})
    card = write_card(folder)
    if options.output is not None:
        target = Path(options.output).expanduser()
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(card, target)
        card = target
    print(f"{CARD_FILE if options.output is None else 'card'}: {card}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glc-hf card",
        description="Make the model card of a trained folder anew, from what the run wrote there. What is given here "
        "is kept in the folder, for the next time.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a folder that `glc-hf train` or GLCTrainer saved a model in")
    parser.add_argument("--name", help="the model's name")
    parser.add_argument("--license", help="licence of the model, as the Hub spells it, such as apache-2.0")
    parser.add_argument("--base-model", metavar="ID", help="Hub id of the model it was made from")
    parser.add_argument("--base-license", metavar="LICENSE", help="licence of that model")
    parser.add_argument("--dataset", metavar="ID", help="Hub id of the dataset")
    parser.add_argument("--language", help="language of the texts, such as en")
    parser.add_argument("--tags", nargs="+", help="further tags")
    parser.add_argument(
        "--output", metavar="FILE", help="also write the card there, and the picture of the matrix beside it"
    )
    return parser


def _told(options: argparse.Namespace, facts: dict[str, Any]) -> dict[str, Any]:
    from glc_hf.hub.facts import public_name

    told: dict[str, Any] = {}
    for option, name in (("name", "model_name"), ("license",) * 2, ("language",) * 2, ("tags",) * 2):
        value = getattr(options, option)
        if value is not None:
            told[name] = value
    base = dict(facts.get("base_model") or {})
    if options.base_model is not None:
        base = public_name(options.base_model)._asdict()
    if options.base_license is not None:
        base["license"] = options.base_license
    if options.dataset is not None:
        told["dataset"] = {**(facts.get("dataset") or {}), **public_name(options.dataset)._asdict()}
    return {**told, "base_model": base}


def _copy(card: Path, target: Path) -> None:
    """The card under another name; its picture goes by that name too, so that several cards can share a folder."""
    from glc_hf.hub.model_card import PICTURE_FILE

    picture = target.with_suffix(".png")
    text = card.read_text(encoding="utf-8").replace(f"]({PICTURE_FILE})", f"]({picture.name})")
    target.write_text(text, encoding="utf-8")
    if (card.parent / PICTURE_FILE).is_file():
        shutil.copyfile(card.parent / PICTURE_FILE, picture)
