# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Texts of files in a Markdown card: a name or a setting must not become markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def escape(value: Any) -> str:
    """Return text as one line without Markdown, safe in a table cell."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(str(value).split()))


def code(value: Any) -> str:
    """Return text as code in a line."""
    return f"`{' '.join(str(value).split()).replace('`', '')}`"


def one_line(value: Any) -> Any:
    """Return facts whose texts have no line breaks and no control characters: a line of a card stays one line."""
    if isinstance(value, dict):
        return {one_line(name): one_line(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [one_line(entry) for entry in value]
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", value).split()) if isinstance(value, str) else value


def hub_link(name: str, kind: str = "") -> str:
    """A link to a repository; text if the name can't be one."""
    known = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name, re.ASCII)
    return f"[{name}](https://huggingface.co/{kind}{name})" if known else escape(name)


def has_tag(card: Path, tag: str) -> bool:
    """Whether the metadata of a card list a tag."""
    return re.search(rf"^- {re.escape(tag)}$", card.read_text(encoding="utf-8", errors="replace"), re.M) is not None
