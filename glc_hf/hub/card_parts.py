# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Parts of a model card: texts of files without markup of their own, and sections on sources, verdict and usage."""

from __future__ import annotations

import io
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glc_hf.correction.sources import SourceTable
from glc_hf.correction.verdict import Verdict
from glc_hf.heat_map import can_draw, draw_matrix, new_figure, panel_size
from glc_hf.intervals import format_interval, format_level
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.matrix_files import SOURCES_FILE, load_matrices


if TYPE_CHECKING:
    from matplotlib.figure import Figure


SOURCES_PICTURE_FILE = "corruption_matrices.png"
_MAX_DRAWN = 3
_DPI = 150  # the intervals are small
# With more classes a picture of a matrix takes minutes, and shows nothing.
MAX_CLASSES_IN_PICTURE = 1000


def has_picture(matrix: CorruptionMatrix | None) -> bool:
    """Whether the card shows a picture of the matrix."""
    return matrix is not None and matrix.num_labels <= MAX_CLASSES_IN_PICTURE and can_draw()


# Most checkpoints of a run have the matrix of the one before, and a drawing takes longer than the rest of the card.
@lru_cache(maxsize=4)
def picture_of(matrix: CorruptionMatrix) -> bytes:
    """The picture of a matrix, as a PNG file."""
    return _png(matrix.plot())


@lru_cache(maxsize=4)
def _picture_of_sources(matrices: tuple[CorruptionMatrix, ...], names: tuple[str, ...], dpi: float) -> bytes:
    side = panel_size(matrices[0])
    figure = new_figure(side * len(names) + 1.2, side)
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for place, matrix, name in zip(axes, matrices, names, strict=True):
        image = draw_matrix(place, matrix, name.replace("$", r"\$"))  # no formulas
        place.set_xlabel(place.get_xlabel().replace("noisy label", "vote"))
    figure.colorbar(image, ax=axes, shrink=0.8)
    return _png(figure, dpi)


def _png(figure: Figure, dpi: float = _DPI) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight", dpi=dpi)
    return file.getvalue()


def draw_worst_sources(folder: str | Path, facts: dict[str, Any], dpi: float = _DPI) -> list[str]:
    """Draw the matrices of the worst sources, at most three, into a picture in the folder of a model. Returns their
    names; empty if the folder has no matrices of several sources."""
    picture = Path(folder) / SOURCES_PICTURE_FILE
    worst = [row["name"] for row in facts.get("sources", ())[::-1] if row["votes"]]
    matrices = load_matrices(folder) if worst and (Path(folder) / SOURCES_FILE).is_file() else {}
    drawn = [name for name in worst if name in matrices and matrices[name].num_labels <= MAX_CLASSES_IN_PICTURE]
    drawn = drawn[:_MAX_DRAWN] if can_draw() else []
    if not drawn:
        picture.unlink(missing_ok=True)  # of an earlier run in the same folder
        return []
    picture.write_bytes(_picture_of_sources(tuple(matrices[name] for name in drawn), tuple(drawn), dpi))
    return drawn


def sources_section(facts: dict[str, Any], drawn: list[str]) -> dict[str, Any] | None:
    """What the template shows of the sources: the table, those that hurt, and which matrices are drawn. `None` without
    votes of several sources."""
    if not facts.get("sources"):
        return None
    table = SourceTable.from_list(facts["sources"])
    return {
        "number": f"{len(table):,}",
        "header": SourceTable.header,
        "lines": table.cells(),
        "hurting": table.sentences(),
        "picture": SOURCES_PICTURE_FILE,
        "file": SOURCES_FILE,
        "drawn": drawn,
    }


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


def verdict_section(facts: dict[str, Any]) -> dict[str, Any] | None:
    """The sentence of the verdict and what it compares; `None` if it is not about this model."""
    verdict = Verdict.from_dict(facts["verdict"]) if facts.get("verdict") else None
    if verdict is None or not verdict.judges_model:
        return None
    return {
        "sentence": verdict.sentence,
        "level": format_level(verdict.level),
        "ways": [
            {
                "name": name,
                "this": name == verdict.chosen,
                "accuracy": f"{way.accuracy:.1%}",
                "interval": format_interval(way.low, way.high),
                "measured": way.measured,
            }
            for name, way in verdict.ways.items()
        ],
    }


def usage_section(facts: dict[str, Any], has_matrix: bool) -> str:
    """The code that loads the model."""
    name = json.dumps(facts.get("hub_model_id") or facts["model_name"], ensure_ascii=False)
    blocks = []
    if facts["task"] is not None:
        task = json.dumps(facts["task"])
        blocks.append(f"from transformers import pipeline\n\nclassifier = pipeline({task}, model={name})")
    if has_matrix:
        blocks.append(
            "from glc_hf import CorruptionMatrix  # optional, to inspect the label noise\n\n"
            f"matrix = CorruptionMatrix.from_pretrained({name})"
        )
    text = "\n\n".join(blocks)
    if facts.get("needs"):
        module = re.sub(r"[^\w.]", "", facts["needs"])
        text = f"import {module}  # registers the architecture with transformers\n{text}".rstrip()
    if not text:
        return "This is a plain PyTorch model: load the weights into the model class that was trained."
    return f"```python\n{text}\n```"
