# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The section of a model card about the sources of votes, and the picture of the worst matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glc_hf.correction.sources import SourceTable
from glc_hf.heat_map import draw_matrix, panel_size
from glc_hf.methods.matrix_files import SOURCES_FILE, load_matrices


SOURCES_PICTURE_FILE = "corruption_matrices.png"
_MAX_DRAWN = 3
# With more classes a picture of a matrix takes minutes, and shows nothing.
MAX_CLASSES_IN_PICTURE = 1000


def draw_worst_sources(folder: str | Path, facts: dict[str, Any], dpi: float) -> list[str]:
    """Draw the matrices of the worst sources, at most three, into a picture in the folder of a model. Returns their
    names; empty if the folder has no matrices of several sources."""
    picture = Path(folder) / SOURCES_PICTURE_FILE
    worst = [row["name"] for row in facts.get("sources", ())[::-1] if row["votes"]]
    matrices = load_matrices(folder) if worst and (Path(folder) / SOURCES_FILE).is_file() else {}
    drawn = [name for name in worst if name in matrices and matrices[name].num_labels <= MAX_CLASSES_IN_PICTURE]
    drawn = drawn[:_MAX_DRAWN]
    if not drawn:
        picture.unlink(missing_ok=True)  # of an earlier run in the same folder
        return []
    from matplotlib.figure import Figure

    side = panel_size(matrices[drawn[0]])
    figure = Figure(figsize=(side * len(drawn) + 1.2, side), layout="constrained")
    axes = figure.subplots(1, len(drawn), squeeze=False)[0]
    for place, name in zip(axes, drawn, strict=True):
        image = draw_matrix(place, matrices[name], name.replace("$", r"\$"))  # no formulas
        place.set_xlabel(place.get_xlabel().replace("noisy label", "vote"))
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.savefig(picture, bbox_inches="tight", dpi=dpi)
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
