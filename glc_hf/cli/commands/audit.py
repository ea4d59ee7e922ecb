# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf audit`: find the labels of a dataset that look wrong to a trained model; write tables and a page."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glc_hf.cli.options import INPUT_COLUMNS, add_answer_options


if TYPE_CHECKING:
    from glc_hf.cli.audit_rows import FolderAudit


_SHOWN_CORRECTIONS = 3
_TOOLS = ("label-studio", "argilla")


def main(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf audit`."""
    arguments = parser().parse_args(argv)
    if arguments.private and not arguments.push_to_hub:
        raise ValueError("--private is for --push-to-hub: name the repository with it.")
    if arguments.push_to_hub:
        from huggingface_hub.utils import validate_repo_id

        validate_repo_id(arguments.push_to_hub)
    from glc_hf.cli.audit_rows import audit_folder
    from glc_hf.cli.terminal import print_table, say, set_up_messages, spinner
    from glc_hf.intervals import format_count

    main_process = os.environ.get("RANK", "0") == "0"
    set_up_messages(quiet=not sys.stdout.isatty(), main_process=main_process)
    folder = Path(arguments.folder).expanduser()
    with spinner(f"auditing with {folder.name}"):
        audit = audit_folder(folder, arguments)
    findings, num_trusted, paths, warnings, num_suggested, num_exported, *_ = audit
    if not main_process:
        return 0
    for warning in warnings:
        say(warning if warning.startswith("verdict") else f"warning: {warning}")
    if findings.note:
        say(findings.note)
    total = findings.total_wrong
    lines = {
        "labels" if findings.word is not None else "rows": f"{len(findings):,} ({num_trusted:,} trusted)",
        "label issues": f"{findings.num_issues:,}",
        "wrong labels": f"{total}, {total.expected / max(len(findings), 1):.1%} of all",
    }
    corrections = findings.corrections(_SHOWN_CORRECTIONS)
    if corrections:
        text = ", ".join(f"{given} → {suggested} {count:,}" for given, suggested, count in corrections)
        lines["most frequent corrections"] = text
    if arguments.suggest:
        lines["suggested to check next"] = format_count(num_suggested)
    if arguments.export:
        lines[f"exported for {' and '.join(arguments.export)}"] = format_count(num_exported)
    print_table("glc_hf: audit", list(lines.items()))
    if findings.num_issues < total.low and not findings.note:
        say(
            f"The network finds fewer label issues than there are wrong labels (at least {total.low:,.0f}). Add "
            "--folds 5, which predicts with linear models instead, or train for more epochs."
        )
    say(f"written to: {', '.join(map(str, paths))}")
    if arguments.push_to_hub:
        _push(folder, audit, arguments)
    say(f"next: glc-hf review {shlex.quote(str(paths[0].parent))}")
    return 0


def _push(folder: Path, audit: FolderAudit, arguments: argparse.Namespace) -> None:
    from glc_hf.audit.hub_dataset import push_audit
    from glc_hf.correction.verdict import Verdict
    from glc_hf.hub.facts import read_facts

    facts = read_facts(folder)
    push_audit(
        audit.audited,
        arguments.push_to_hub,
        audit.findings,
        model=facts.get("hub_model_id") or folder,
        dataset=audit.dataset,
        verdict=Verdict.from_dict(facts["verdict"]) if facts.get("verdict") else None,
        warnings=[warning for warning in audit.warnings if not warning.startswith("verdict")],
        private=arguments.private or None,
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="glc-hf audit",
        description="Estimate for each row the probability that its label is wrong and the label it should have, with "
        "a trained model and its corruption matrix, or with what the votes of several sources say. Writes "
        "audit.parquet, audit.csv and audit.html, the page to review labels (`glc-hf review`). Columns that are not "
        "named are those of the run.",
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="folder of a model saved by `glc-hf train` or GLCTrainer")
    add(
        "--dataset",
        metavar="NAME",
        help="Hub id, folder, or CSV, TSV, JSON, JSONL or Parquet file; default: the rows of the run, if they are the "
        "embedded digits or a dataset of the Hub",
    )
    add("--dataset-config", metavar="NAME", help="configuration of the dataset, if it has several")
    add("--split", default="train", help="split to audit (default: train)")
    add("--label-column", metavar="COLUMN", help="column of the labels; default: that of the run, or a usual name")
    add("--trusted-column", metavar="COLUMN", help="column of the flags; default: that of the run, or trusted")
    add(
        "--noisy-label-column",
        metavar="COLUMN",
        help="column of the labels of the noisy source, also in trusted rows, where the wrong ones are then counted",
    )
    for name, content in INPUT_COLUMNS.items():
        default = "that of the run, or a usual name"
        add(f"--{name}-column", metavar="COLUMN", help=f"column of the {content}; default: {default}")
    add(
        "--source-columns",
        nargs="+",
        metavar="COLUMN",
        help="columns of votes, one per source, for a model trained on votes; default: those of the run",
    )
    add("--votes-column", metavar="COLUMN", help="column of lists of votes instead; default: that of the run")
    add_answer_options(parser, "file with one line per answer instead, as for `glc-hf train`")
    add(
        "--folds",
        type=int,
        metavar="N",
        help="use predictions of linear models that have not seen the label of the row, in N folds; 0: those of the "
        "network (default: 5 if the network has learned more than half of the wrong labels, else 0)",
    )
    add("--suggest", type=int, default=0, metavar="N", help="write the N rows to check next to suggest.csv")
    add(
        "--export",
        nargs="+",
        choices=_TOOLS,
        metavar="TOOL",
        help="also write the label issues (at most --page-rows) and the rows of --suggest for other tools: "
        "label-studio (label_studio.json with the tasks, label_studio.xml with the labeling configuration) or argilla "
        "(a folder for rg.Dataset.from_disk). `glc-hf apply` takes their exports",
    )
    add(
        "--push-to-hub",
        metavar="REPO",
        help="also push the rows and the columns of the audit to this dataset repository of the Hub, with a card",
    )
    add("--private", action="store_true", help="with --push-to-hub: only you can see the repository")
    add("--delimiter", metavar="CHARACTER", help="delimiter of CSV files; default: that of the run, or found")
    add("--encoding", metavar="NAME", help="encoding of CSV files; default: that of the run, or found")
    add("--max-length", type=int, metavar="N", help="truncate texts to this many tokens")
    add("--batch-size", type=int, default=32, metavar="N", help="rows per batch (default: 32)")
    add("--page-rows", type=int, default=5000, metavar="N", help="maximum number of rows on the page (default: 5000)")
    add("--output-dir", metavar="FOLDER", help="folder to write to (default: FOLDER/audit)")
    add(
        "--force",
        action="store_true",
        help="audit although the matrix has the same row for every class, which makes an audit meaningless",
    )
    add("--debug", action="store_true", help="show the traceback of an error")
    return parser
