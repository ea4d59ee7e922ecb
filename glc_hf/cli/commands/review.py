# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf review` and `glc-hf apply`: open the page of an audit, and write a dataset with the decided labels."""

from __future__ import annotations

import argparse
import shlex
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from datasets import Dataset

    from glc_hf.audit.corrections import Corrections


_PAGE = "audit.html"
_SEPARATED = (".csv", ".tsv")


def review(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf review`."""
    arguments = review_parser().parse_args(argv)
    page = _find_page(Path(arguments.folder).expanduser())
    print(f"page: {page}")
    if not arguments.no_open and not webbrowser.open(page.resolve().as_uri()):
        print("no browser was found: open the page yourself.")
    print(
        "after you have saved the decisions, run: glc-hf apply decisions.json --dataset DATASET --output "
        "cleaned.parquet (with the dataset of the audit)"
    )
    return 0


def _find_page(folder: Path) -> Path:
    for page in (folder, folder / _PAGE, folder / "audit" / _PAGE):
        if page.is_file() and page.suffix == ".html":
            return page
    raise FileNotFoundError(
        f"there is no {_PAGE} in {folder} or {folder / 'audit'}: write it with `glc-hf audit {folder} --dataset NAME`."
    )


def review_parser() -> argparse.ArgumentParser:
    """Return the parser of `glc-hf review`."""
    parser = argparse.ArgumentParser(
        prog="glc-hf review",
        description="Open the page of an audit in the browser. On it you keep labels, take suggestions or choose "
        "other classes, and save the decisions to a file for `glc-hf apply`. The page needs no network and no server.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of an audited model, or of the audit")
    parser.add_argument("--no-open", action="store_true", help="print the path of the page only")
    return parser


def apply(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf apply`."""
    arguments = apply_parser().parse_args(argv)
    if arguments.decisions is None and arguments.auto_fix is None:
        raise ValueError("name a decisions file, or take suggestions without review: --auto-fix P --audit FILE.")
    if (arguments.auto_fix is None) != (arguments.audit is None):
        raise ValueError("--auto-fix P takes suggestions of an audit, --audit FOLDER/audit.csv: give both or none.")
    from glc_hf.audit.corrections import correct_labels
    from glc_hf.audit.dataset_file import check_output, write_dataset
    from glc_hf.audit.decisions import Decisions
    from glc_hf.cli.options import DataArguments
    from glc_hf.cli.terminal import print_table, say, set_up_messages
    from glc_hf.data.data_files import choose_split, csv_format_of, load_splits

    set_up_messages(quiet=not sys.stdout.isatty())
    output = Path(arguments.output).expanduser()
    _check_not_input(output, arguments.dataset)
    check_output(output)
    data = DataArguments(delimiter=arguments.delimiter, encoding=arguments.encoding)  # checks both
    reading = (data.delimiter, data.encoding)
    splits = load_splits(arguments.dataset, arguments.dataset_config, "--dataset", *reading)
    dataset = choose_split(splits, arguments.split, "--split")
    corrections = correct_labels(
        dataset,
        Decisions([]) if arguments.decisions is None else Decisions.read(arguments.decisions),
        arguments.label_column,
        arguments.trusted_column,
        arguments.auto_fix,
        arguments.audit,
        arguments.force,
        label_option="--label-column",
    )
    file_format = csv_format_of(arguments.dataset, *reading)
    delimiter = (
        None if file_format is None or Path(arguments.dataset).suffix.lower() != ".csv" else file_format.delimiter
    )
    write_dataset(_with_texts_of_file(corrections, arguments, output, reading), output, delimiter)
    flag = corrections.trusted_column
    if flag not in dataset.column_names:
        say(
            f"The dataset has no column {flag!r}. It was added, and only checked rows are trusted in it. If another "
            "column marks trusted rows, name it with --trusted-column."
        )
    lines = {
        "rows": f"{len(corrections.dataset):,}",
        "reviewed": f"{corrections.reviewed:,} ({corrections.changed:,} changed, {corrections.skipped:,} skipped)",
    }
    if arguments.auto_fix is not None:
        lines["suggestions taken without review"] = f"{corrections.suggested:,}"
    lines["trusted"] = f"{corrections.trusted:,} ({corrections.trusted_before:,} before)"
    print_table("glc_hf: apply", list(lines.items()))
    print(f"written to: {output}")
    say(
        f"next: glc-hf train --dataset {shlex.quote(str(output))}{_column_options(corrections)} --model NAME "
        "--output-dir NEW_FOLDER"
    )
    return 0


def _column_options(corrections: Corrections) -> str:
    """The options that name the columns of labels and flags, unless they are found without them."""
    from glc_hf.labels.columns import find_label_column

    label, flag = corrections.label_column, corrections.trusted_column
    try:
        found = find_label_column(corrections.dataset, None, flag)
    except ValueError:
        found = None
    named = {
        "--label-column": label if label != found else None,
        "--trusted-column": flag if flag != "trusted" else None,
    }
    return "".join(f" {option} {shlex.quote(name)}" for option, name in named.items() if name is not None)


def _check_not_input(output: Path, dataset: str) -> None:
    source = Path(dataset).expanduser()
    if source.exists() and output.exists() and output.samefile(source):
        raise ValueError(f"--output {output} is the dataset itself, which is never overwritten: name another file.")
    if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
        raise ValueError(
            f"--output {output} is in the folder of the dataset, where it would become a part of it: name a file "
            "elsewhere."
        )


def _with_texts_of_file(
    corrections: Corrections, arguments: argparse.Namespace, output: Path, reading: tuple[str | None, str | None]
) -> Dataset:
    """From CSV to CSV, keep the other columns as they are written: 007 and 1.10 stay what they are."""
    source, dataset = Path(arguments.dataset).expanduser(), corrections.dataset
    if not (source.is_file() and {source.suffix.lower(), output.suffix.lower()} <= set(_SEPARATED)):
        return dataset
    from datasets import Features, Value

    from glc_hf.audit.corrections import with_texts
    from glc_hf.data.data_files import choose_split, load_splits

    names = [name for name in dataset.column_names if name not in corrections.added]
    strings = Features({name: Value("string") for name in names})
    splits = load_splits(arguments.dataset, None, "--dataset", *reading, features=strings)
    return with_texts(corrections, choose_split(splits, arguments.split, "--split"))


def apply_parser() -> argparse.ArgumentParser:
    """Return the parser of `glc-hf apply`."""
    parser = argparse.ArgumentParser(
        prog="glc-hf apply",
        description="Write a dataset with corrected labels: those decided on by a person, and optionally suggestions "
        "of the audit. Checked rows are flagged as trusted, the column label_source says where each label comes "
        "from (given, reviewed, suggested), and original_label has the label before. Nothing else changes, and the "
        "original is never overwritten.",
    )
    add = parser.add_argument
    add(
        "decisions",
        nargs="?",
        metavar="DECISIONS",
        help="file saved by the review page, export of Label Studio or Argilla, or CSV, TSV, JSON or JSONL table with "
        "the columns row and label",
    )
    add(
        "--dataset",
        required=True,
        metavar="NAME",
        help="the audited rows: Hub id, folder, or CSV, TSV, JSON, JSONL or Parquet file",
    )
    add("--dataset-config", metavar="NAME", help="configuration of the dataset, if it has several")
    add("--split", default="train", help="the audited split (default: train)")
    add(
        "--output",
        required=True,
        metavar="FILE",
        help="new file that ends in .parquet, .csv, .tsv, .json or .jsonl",
    )
    add("--label-column", metavar="COLUMN", help="column of the labels; default: that of the audit")
    add("--trusted-column", metavar="COLUMN", help="column of the flags; default: that of the audit, or trusted")
    add("--delimiter", metavar="CHARACTER", help="delimiter of CSV files; default: found from a sample")
    add("--encoding", metavar="NAME", help="encoding of CSV files; default: found from a sample")
    add(
        "--auto-fix",
        type=float,
        metavar="P",
        help="also take suggestions with p_wrong of at least P without review; these rows are not flagged as trusted",
    )
    add("--audit", metavar="FILE", help="audit.csv or audit.parquet with the suggestions for --auto-fix")
    add("--force", action="store_true", help="apply although rows without a decision have changed since the audit")
    return parser
