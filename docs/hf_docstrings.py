# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Docstrings in the form of the Hugging Face docs, as Markdown for the reference page (an extension of griffe)."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import griffe


SECTIONS = {"Args": "Parameters", "Returns": "Returns", "Raises": "Raises", "Yields": "Yields"}
# The names that the package exports; they have a place on the reference page.
PACKAGE = Path(__file__).parents[1] / "glc_hf" / "__init__.py"
PUBLIC = set(re.findall(r'^    "(\w+)": "glc_hf', PACKAGE.read_text(encoding="utf-8"), flags=re.M))


class HuggingFaceDocstrings(griffe.Extension):
    """Convert every docstring of the package when it is loaded."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Replace the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """Turn the sections (`Args:`, `Returns:`, …) into lists, and [`name`] into a link or code."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n((?:[ ]{{4}}.*\n?|\n)+)", text + "\n", flags=re.M)
    out = [parts[0]]
    for name, body, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        body = textwrap.dedent(body).strip("\n")
        content = _entries(body) if name in ("Args", "Raises") else body
        out.append(f"**{SECTIONS[name]}**\n\n{content}\n\n{after}")
    return re.sub(r"\[`~?([\w.]+)`\](?![\[(])", _link, "".join(out)).strip()


def _entries(body: str) -> str:
    """One item per argument. A line that starts with `>` is the title of the arguments below it."""
    lines, out = body.splitlines(), []
    for line in lines:
        if line.startswith("> "):
            out += ["", f"*{line[2:]}*", ""]
        elif line and not line.startswith(" "):
            # A list of names can go over several lines; its description is indented below.
            continues = bool(out) and out[-1].startswith("- ") and out[-1].rstrip().endswith(",")
            out.append(f"  {line}" if continues else f"- {line}")
        else:
            out.append(line)
    return "\n".join(re.sub(r"^- (\w+)(?= \(|:)", r"- **`\1`**", line) for line in out).strip("\n")


def _link(match: re.Match) -> str:
    name = match[1].rpartition(".")[2]
    return f"[`{name}`][glc_hf.{name}]" if name in PUBLIC else f"`{match[1]}`"
