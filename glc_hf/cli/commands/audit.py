# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf audit`: which labels of a dataset look wrong to a trained model, as files and as a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from glc_hf.audit.findings import Findings


_SHOWN_CORRECTIONS = 3


def main(argv: list[str]) -> int:
    """
    Runs the command.

    Args:
        argv (`list[str]`): The words after `glc-hf audit`.
    """
    options = _parser().parse_args(argv)
    from glc_hf.audit.findings import Findings
    from glc_hf.audit.page import write_audit
    from glc_hf.cli.audit_rows import audit_folder
    from glc_hf.cli.terminal import set_up_messages, working

    set_up_messages(quiet=not sys.stdout.isatty())
    folder = Path(options.folder).expanduser()
    with working(f"auditing with {folder.name}"):
        audit = audit_folder(folder, options)
        findings = Findings.of(audit.rows, audit.matrix)
        output = Path(options.output_dir).expanduser() if options.output_dir else folder / "audit"
        title = f"Label audit: {audit.name}"
        paths = write_audit(output, audit.rows, findings, audit.inputs, audit.task, title, options.page_rows)
    _print(findings, audit.num_trusted, paths)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glc-hf audit",
        description="Say for every row how probably its label is wrong and which one it should have, by a trained "
        "model and the corruption matrix saved with it. Writes audit.parquet, audit.csv and audit.html.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a folder that `glc-hf train` or GLCTrainer saved a model in")
    parser.add_argument(
        "--dataset",
        metavar="NAME",
        help="Hub id, folder, or CSV, TSV, JSON, JSONL or Parquet file; left out: the rows of the run, where they can "
        "be had again (the embedded digits, or a dataset of the Hub)",
    )
    parser.add_argument("--dataset-config", metavar="NAME", help="configuration of the dataset, where it has several")
    parser.add_argument("--split", default="train", help="split to audit (default: train)")
    parser.add_argument("--label-column", metavar="COLUMN", help="column of the labels; found by itself if usual")
    parser.add_argument(
        "--trusted-column", metavar="COLUMN", default="trusted", help="column of the flags, if there is one"
    )
    for kind in ("text", "text-pair", "image", "tokens"):
        parser.add_argument(f"--{kind}-column", metavar="COLUMN", help="column of the input, if its name is unusual")
    parser.add_argument("--max-length", type=int, metavar="N", help="cut texts to this many tokens")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="rows at a time (default: 32)")
    parser.add_argument(
        "--page-rows", type=int, default=1000, metavar="N", help="rows on the page at most (default: 1000)"
    )
    parser.add_argument("--output-dir", metavar="FOLDER", help="where to write (default: FOLDER/audit)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _print(findings: Findings, num_trusted: int, paths: list[Path]) -> None:
    from glc_hf.cli.terminal import print_facts

    unit = "labels" if findings.word is not None else "rows"
    expected = float(findings.p_wrong.sum())
    lines = [
        (unit, f"{len(findings):,}, {num_trusted:,} of them trusted"),
        ("more probably wrong than right", f"{int(findings.suspect.sum()):,}"),
        ("wrong labels to be expected", f"{expected:,.0f} ({expected / max(len(findings), 1):.1%})"),
    ]
    corrections = findings.corrections(_SHOWN_CORRECTIONS)
    if corrections:
        text = ", ".join(f"{given} → {suggested} {count:,}" for given, suggested, count in corrections)
        lines.append(("commonest corrections", text))
    print_facts("glc_hf: audit", lines, [("written", ", ".join(str(path) for path in paths))])
