# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""An audit with a saved model, for `glc-hf audit`: load the rows with its classes, audit them, and write the files."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from datasets import Dataset, Image, List, Value

from glc_hf.audit.annotation_tools import TOOLS, write_export
from glc_hf.audit.findings import (
    COLUMNS,
    GIVEN,
    IS_ISSUE,
    P_WRONG,
    SCORE,
    SUGGESTED,
    Findings,
    check_audit_columns,
)
from glc_hf.audit.label_audit import REASON, ROW, LabelAudit, audit_labels
from glc_hf.audit.page import write_audit, write_frame
from glc_hf.audit.review_items import ReviewItems, check_exportable, issues_and
from glc_hf.cli.answer_file import add_answers, check_task, columns_of, columns_of_votes, with_label_column
from glc_hf.cli.data import Rows, choose_split, load_rows, load_splits
from glc_hf.cli.model import check_labels_fit, prepare
from glc_hf.cli.options import DataArguments, ModelArguments, NoiseArguments
from glc_hf.cli.parsing import TrainOptions
from glc_hf.cli.report import DIGITS
from glc_hf.correction.reliability import matrix_warnings, same_row_for_every_class
from glc_hf.correction.sources import SourceTable
from glc_hf.correction.verdict import Verdict
from glc_hf.data.label_values import is_missing, normalize_labels
from glc_hf.hub.facts import check_classes, read_facts
from glc_hf.labels.encoding import check_words, encode_flags, encode_labels
from glc_hf.labels.reading import IGNORED_LABEL, read_flags
from glc_hf.labels.storage import column_in_order, is_list_type
from glc_hf.matrix import MATRIX_FILE, CorruptionMatrix
from glc_hf.methods.matrix_files import SOURCES_FILE, load_matrices, load_sources
from glc_hf.noise.families import WEAK
from glc_hf.run_files import COMPARISON_FILE
from glc_hf.training.config import GLCConfig
from glc_hf.training.trainer import GLCTrainer


_TASKS = {"text-classification": "text", "token-classification": "token", "image-classification": "image"}
SUGGEST_FILE = "suggest.csv"
_WORD = "__word__"
# Values of a row without a label.
_NO_LABEL = {GIVEN: IGNORED_LABEL, SUGGESTED: IGNORED_LABEL, P_WRONG: 0.0, IS_ISSUE: False, SCORE: 1.0}
# Options of the run about how rows are read.
_READING = ("delimiter", "encoding", "normalize_labels", "on_missing")
_VOTE_COLUMNS = ("source_columns", "votes_column")
_COLUMNS = (
    "label_column", "trusted_column", "noisy_label_column", "text_column", "text_pair_column", "image_column",
    "tokens_column",
)  # fmt: skip
_TRUSTED = "trusted"


class FolderAudit(NamedTuple):
    """
    Result of an audit with a saved model.

    Attributes:
        findings: The findings.
        num_trusted: Number of trusted labels.
        paths: The files written; none if this is not the main process.
        warnings: The verdict of the run that trained the model, and reasons not to rely on it.
        num_suggested: Number of rows in `suggest.csv`.
        num_exported: Number of rows for other tools.
        audited: The rows with the columns of the audit.
        dataset: Name of the rows.
    """

    findings: Findings
    num_trusted: int
    paths: list[Path]
    warnings: list[str]
    num_suggested: int
    num_exported: int
    audited: Dataset
    dataset: str


def audit_folder(folder: Path, arguments: Namespace) -> FolderAudit:
    """
    Audit rows with the model in a folder.

    Args:
        folder (`Path`): Folder of a model that `glc-hf train` or [`GLCTrainer`] saved.
        arguments (`Namespace`): The arguments of `glc-hf audit`.

    Raises:
        `ValueError`: The matrix has the same row for every class, and `arguments.force` is not set.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}.")
    if (folder / COMPARISON_FILE).is_file():
        files = (path for name in (MATRIX_FILE, SOURCES_FILE) for path in folder.glob(f"*/{name}"))
        models = sorted(str(path.parent) for path in files)
        raise ValueError(
            f"{folder} contains a comparison: name the folder of one of its models, {' or '.join(models)}."
        )
    facts = read_facts(folder)
    sources = load_sources(folder)
    # A matrix of an earlier run in the same folder says nothing about this model.
    has_matrix = facts.get("has_matrix", True) and (folder / MATRIX_FILE).is_file()
    if sources is None and not has_matrix:
        if facts.get("has_matrix", True) and load_matrices(folder):
            raise ValueError(
                f"{folder} does not contain what the votes of its sources say: it was saved by an earlier version. "
                "Train again to audit with it."
            )
        raise FileNotFoundError(
            f"there is no {MATRIX_FILE} in {folder}: an audit needs one, and the method {facts['method']!r} does not "
            "use one. Train with --method auto or glc."
        )
    if sources is None and any(getattr(arguments, name) is not None for name in (*_VOTE_COLUMNS, "answers")):
        raise ValueError(
            f"the model in {folder} was trained on one label per row, not on votes of several sources: leave out "
            "--source-columns, --votes-column and --answers."
        )
    if facts["task"] not in _TASKS:
        raise ValueError(f"{folder} contains a model for {facts['task']}; an audit supports {', '.join(_TASKS)}.")
    if arguments.export:
        check_exportable(_TASKS[facts["task"]])
    if sources is None:
        matrix = CorruptionMatrix.from_pretrained(folder)
    else:
        matrix = sources.mean_matrix(facts["label_names"])
    check_classes(folder / (MATRIX_FILE if sources is None else SOURCES_FILE), matrix.num_labels, facts)
    # Sources whose errors cancel out have such a mean, but say something about the class.
    if sources is None and same_row_for_every_class(matrix) and not arguments.force:
        raise ValueError(
            f"the run in {folder} can't be trusted: its corruption matrix has the same row for every class, so the "
            "given labels say nothing about the true ones and an audit would be meaningless. Nothing was written. "
            "Train longer or with a higher learning rate, or audit anyway with --force."
        )
    # Folders of earlier versions don't have the warnings.
    warnings = list(facts.get("warnings", matrix_warnings(matrix)))
    verdict = Verdict.from_dict(facts["verdict"]) if facts.get("verdict") else None
    if verdict is not None and verdict.judges_model:
        warnings.insert(0, f"verdict of the training: {verdict.sentence}")
    options = _train_options(folder, facts, arguments, votes=sources is not None)
    with options.config.main_process_first(desc="loading the data"):
        raw, rows, numbers = _load(options, matrix, _TASKS[facts["task"]], arguments)
    check_audit_columns(raw)
    check_labels_fit(rows)
    task, flag = rows.columns.task, options.config.trusted_column
    if task == "token":
        words = [list(range(len(labels))) for labels in rows.train.with_format(None)[rows.columns.label]]
        rows.train = rows.train.add_column(_WORD, words, feature=List(Value("int64")))
    prepared = prepare(rows, options, carried=(_WORD,), new_head=False)
    known = matrix if sources is None else None
    trainer = GLCTrainer(prepared.model, options.config, data_collator=prepared.collator, corruption_matrix=known)
    trainer.given_sources = sources
    audit = audit_labels(trainer, prepared.train, arguments.folds)
    audited = _add_columns(raw, rows, numbers, audit.audited())
    findings = Findings.of(audited, matrix, audit.note, audit.evidence())
    output = Path(arguments.output_dir).expanduser() if arguments.output_dir else folder / "audit"
    name = options.data.dataset or (facts.get("dataset") or {}).get("name") or "the run"
    title = f"Label audit: {Path(name).name if Path(name).exists() else name}"
    table = SourceTable.from_list(facts["sources"]) if sources is not None else None
    inputs = rows.columns.inputs
    label = rows.columns.label if rows.columns.label in raw.column_names else None
    trusted = int(read_flags(rows.train, flag).values.sum()) if flag in rows.train.column_names else 0
    suggestions = _suggestions(audit, arguments.suggest, raw, numbers, inputs) if arguments.suggest else None
    reasons = {} if suggestions is None else dict(zip(suggestions[ROW], suggestions[REASON], strict=True))
    if not trainer.is_world_process_zero():
        return FolderAudit(findings, trusted, [], warnings, len(reasons), 0, audited, name)
    export = None
    if arguments.export:
        chosen = issues_and(findings, list(reasons), arguments.page_rows)
        export = ReviewItems(findings, audited, inputs, task, label, sources is not None, chosen, reasons, flag)
    paths = write_audit(
        output, audited, findings, inputs, task, title, arguments.page_rows, warnings, table, label, reasons, flag
    )
    if suggestions is not None:
        paths.append(output / SUGGEST_FILE)
        write_frame(suggestions, paths[-1])
    if export is not None and len(export):  # without issues there is nothing to write
        for tool in arguments.export:
            paths += write_export(export, output / TOOLS[tool][1], tool)
    num_exported = 0 if export is None else len(export)
    return FolderAudit(findings, trusted, paths, warnings, len(reasons), num_exported, audited, name)


def _suggestions(
    audit: LabelAudit, number: int, raw: Dataset, numbers: np.ndarray, inputs: tuple[str, ...]
) -> pd.DataFrame:
    """Return the rows to check next, best first, without images."""
    suggested = audit.suggested(number).with_format(None)
    rows = numbers[list(suggested[ROW])].tolist()
    columns: dict[str, Any] = {ROW: rows}
    chosen = raw.with_format(None).select(rows)
    for name in inputs:
        if not isinstance(raw.features[name], Image):
            columns[name] = [" ".join(map(str, text)) if isinstance(text, list) else text for text in chosen[name]]
    for name in (GIVEN, SUGGESTED):
        # Lists of token labels are in the other files.
        columns[name] = [None if isinstance(label, list) else audit.class_name(label) for label in suggested[name]]
    return pd.DataFrame({**columns, REASON: list(suggested[REASON])})


def _train_options(folder: Path, facts: dict[str, Any], arguments: Namespace, votes: bool) -> TrainOptions:
    """Return the options of `glc-hf train` that load the rows: those given, or those of the run."""
    of_run, dataset = facts["arguments"], facts.get("dataset") or {}
    given = {name: getattr(arguments, name) for name in _COLUMNS if getattr(arguments, name) is not None}
    columns = {name: given.get(name, of_run.get(name)) for name in _COLUMNS}
    config = {
        "output_dir": str(folder),
        "per_device_eval_batch_size": arguments.batch_size,
        "trusted_column": columns.pop("trusted_column") or _TRUSTED,
        "label_column": columns.pop("label_column"),
        "noisy_label_column": columns.pop("noisy_label_column"),
        "seed": of_run.get("seed", GLCConfig.seed),
        "report_to": "none",
        "disable_tqdm": True,
        **(_vote_columns(of_run, arguments) if votes else {}),
    }
    model = ModelArguments(model=str(folder))
    if arguments.dataset is not None:
        reading = {name: of_run[name] for name in _READING if name in of_run}
        for name in ("delimiter", "encoding"):
            if getattr(arguments, name) is not None:
                reading[name] = getattr(arguments, name)
        data = DataArguments(
            dataset=arguments.dataset,
            dataset_config=arguments.dataset_config,
            **columns,
            train_split=arguments.split,
            max_length=arguments.max_length or of_run.get("max_length"),
            answers=arguments.answers,
            answer_columns=arguments.answer_columns,
            **reading,
        )
        return TrainOptions(data, NoiseArguments(), model, GLCConfig(**config))
    if not dataset.get("on_hub") and dataset.get("name") != DIGITS:
        trained = f" The model was trained on {dataset['name']}." if dataset.get("name") else ""
        raise ValueError(f"name the rows to audit: --dataset, with a file, a folder or a Hub id.{trained}")
    if of_run.get("noise") == WEAK:
        raise ValueError(
            "the labels of this run came from a weak classifier and were not saved: name the rows to audit, --dataset."
        )
    data = DataArguments(**{f.name: of_run[f.name] for f in dataclasses.fields(DataArguments) if f.name in of_run})
    noise = NoiseArguments(**{f.name: of_run[f.name] for f in dataclasses.fields(NoiseArguments) if f.name in of_run})
    data = dataclasses.replace(data, **columns, answers=arguments.answers, answer_columns=arguments.answer_columns)
    return TrainOptions(data, noise, model, GLCConfig(**config))


def _forget_missing_columns(options: TrainOptions, arguments: Namespace, names: list[str]) -> None:
    """Let columns be found by their usual names if those of the run are not in these rows."""
    for part in (options.config, options.data):
        for name in _COLUMNS:
            column = getattr(part, name, None)
            if column is not None and getattr(arguments, name) is None and column not in names:
                setattr(part, name, _TRUSTED if name == "trusted_column" else None)


def _vote_columns(of_run: dict[str, Any], arguments: Namespace) -> dict[str, Any]:
    """Return the columns of the votes and the names of their sources: those given, or those of the run."""
    given = {name: getattr(arguments, name) for name in _VOTE_COLUMNS if getattr(arguments, name) is not None}
    if arguments.answers is not None:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise ValueError(f"--answers and --{option} both say where the votes are: give one of them.")
        return {}
    if given:
        # The names of the run are those of its columns, or of the places in its lists.
        same = given.get("source_columns") in (None, of_run.get("source_columns"))
        return {**given, "source_names": of_run.get("source_names") if same else None}
    if "answers" in of_run:
        raise ValueError(
            f"the votes of the run came from a second file, {of_run['answers']}: name it, or one with answers on the "
            "rows to audit, with --answers. Votes can also be in columns: --source-columns, --votes-column."
        )
    return {name: of_run[name] for name in (*_VOTE_COLUMNS, "source_names") if name in of_run}


def _load(
    options: TrainOptions, matrix: CorruptionMatrix, task: str, arguments: Namespace
) -> tuple[Dataset, Rows, np.ndarray]:
    """Return the rows as loaded; those to audit, with the class numbers of the model and boolean flags; and their
    numbers among the rows as loaded: with `on_missing="skip"`, rows without a label are left out."""
    data = options.data
    if options.noise.simulated or data.dataset is None:
        rows = load_rows(options)
        return rows.train, rows, np.arange(len(rows.train))
    splits = load_splits(data.dataset, data.dataset_config, "--dataset", data.delimiter, data.encoding)
    raw = choose_split(splits, data.train_split, "--split")
    _forget_missing_columns(options, arguments, raw.column_names)
    train, flag, noisy = raw, options.config.trusted_column, options.config.noisy_label_column
    if noisy is not None and noisy not in raw.column_names:
        found = ", ".join(raw.column_names)
        raise ValueError(f"there is no column {noisy!r} (--noisy-label-column); the columns are {found}.")
    if data.answers is not None:
        answers = choose_split(load_splits(data.answers, None, "--answers"), "train", "--answers")
        train = add_answers(raw, answers, options)
    votes = columns_of_votes(options.config)
    for name in votes:
        if name not in train.column_names:
            raise ValueError(
                f"the dataset has no column {name!r} of votes; its columns are {', '.join(train.column_names)}. Name "
                "those of the votes with --source-columns or --votes-column."
            )
    train = with_label_column(train, [], options, task)
    columns = columns_of(train.features, options, task)
    check_task(columns.task, options)
    check_words(train, columns.inputs[0], columns.label, "the dataset")
    parts, skips = {"the dataset": train}, data.on_missing == "skip"
    if data.normalize_labels:
        spelled = [name for name in (columns.label, noisy, *votes) if name is not None]
        parts, *_ = normalize_labels(parts, spelled, names=matrix.label_names)
    # Rows with votes need no label of their own.
    unlabeled = ("the dataset",) if votes or skips else ()
    encoded, names = encode_labels(parts, columns.label, names=matrix.label_names, unlabeled=unlabeled)
    if noisy is not None:  # only trusted rows need one
        encoded, _ = encode_labels(encoded, noisy, names=matrix.label_names, unlabeled=("the dataset",))
    train, numbers = encoded["the dataset"], np.arange(len(raw))
    if skips and not votes:
        numbers = _rows_with_label(train, columns.label)
        train = train if len(numbers) == len(train) else train.select(numbers)
    if flag in train.column_names:
        train = encode_flags(_without_missing_flags(train, flag) if skips else train, flag)
    return raw, Rows(train, None, columns, names, matrix.num_labels), numbers


def _rows_with_label(dataset: Dataset, column: str) -> np.ndarray:
    """Return the numbers of the rows that have a label; all rows of token labels."""
    labels = column_in_order(dataset, column)
    if is_list_type(labels.type):
        return np.arange(len(dataset))
    return np.flatnonzero(pc.fill_null(pc.greater_equal(labels, 0), False).to_numpy())


def _without_missing_flags(dataset: Dataset, column: str) -> Dataset:
    """A row without a flag is not trusted."""
    flags = column_in_order(dataset, column)
    if is_list_type(flags.type):
        return dataset
    values = flags.to_pylist()
    if not any(map(is_missing, values)):
        return dataset
    # Numbers with missing ones among them are read as 1.0 and 0.0.
    texts = [str(int(value) if isinstance(value, float) else value) for value in values if not is_missing(value)]
    known = iter(texts)
    flags = ["false" if is_missing(value) else next(known) for value in values]
    return dataset.remove_columns(column).add_column(column, flags).select_columns(dataset.column_names)


def _add_columns(raw: Dataset, rows: Rows, numbers: np.ndarray, audited: Dataset) -> Dataset:
    """Add the columns of the audit to the rows as loaded; for token labels, one value per word. A row that was left
    out has the given and the suggested label -100."""
    audited = audited.with_format(None)
    columns = {name: list(audited[name]) for name in COLUMNS}
    if rows.columns.task == "token":
        columns = _per_word(columns, audited[_WORD], rows.train.with_format(None)[rows.columns.label])
    for name in COLUMNS:
        values = columns[name]
        if len(numbers) < len(raw):
            values = [_NO_LABEL[name]] * len(raw)
            for number, value in zip(numbers.tolist(), columns[name], strict=True):
                values[number] = value
        raw = raw.add_column(name, values, feature=audited.features[name])
    return raw


def _per_word(columns: dict[str, Any], words: Any, labels: Any) -> dict[str, list[list[Any]]]:
    """Map values from tokens to words. A truncated word, or one labeled -100, keeps its label and has no p_wrong. A
    word with neither a vote nor a label has no p_wrong either."""
    result: dict[str, list[list[Any]]] = {name: [] for name in COLUMNS}
    for row, given in enumerate(labels):
        # In rows with votes, a label may be missing (-1).
        given = [label if label >= 0 else IGNORED_LABEL for label in given]
        number = len(given)
        of_row = {GIVEN: given, SUGGESTED: list(given), P_WRONG: [None] * number}
        of_row |= {IS_ISSUE: [False] * number, SCORE: [None] * number}
        for word, *values in zip(words[row], *(columns[name][row] for name in COLUMNS), strict=True):
            if word is not None and word >= 0 and values[0] != IGNORED_LABEL:
                for name, value in zip(COLUMNS, values, strict=True):
                    of_row[name][word] = value
        for name in COLUMNS:
            result[name].append(of_row[name])
    return result
