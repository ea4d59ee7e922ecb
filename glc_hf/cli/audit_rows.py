# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The rows of `glc-hf audit`: loaded as they are, labelled in the model's own classes, audited, and put back."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

from datasets import ClassLabel, Dataset, List, Value

from glc_hf.audit.findings import COLUMNS, GIVEN, P_WRONG, SUGGESTED
from glc_hf.cli.data import Rows, choose_split, columns_of, load_rows, load_splits
from glc_hf.cli.model import check_labels_fit, load_model, prepare
from glc_hf.cli.options import DataArguments, ModelArguments, NoiseArguments
from glc_hf.cli.parsing import TrainOptions
from glc_hf.cli.report import DIGITS
from glc_hf.cli.run import COMPARISON_FILE
from glc_hf.hub.facts import read_facts
from glc_hf.labels.encoding import check_words, encode_flags, encode_labels
from glc_hf.labels.reading import IGNORED_LABEL, read_flags
from glc_hf.matrix import MATRIX_FILE, CorruptionMatrix
from glc_hf.training.config import GLCConfig
from glc_hf.training.trainer import GLCTrainer


_TASKS = {"text-classification": "text", "token-classification": "token", "image-classification": "image"}
_WORD = "__word__"


class Audit(NamedTuple):
    """
    What came of an audit.

    Attributes:
        rows: As they were loaded, with the columns of the audit.
        matrix: The matrix that was saved with the model.
        inputs: The columns of the input.
        task: `"text"`, `"token"` or `"image"`.
        name: What the rows are called.
        num_trusted: How many labels are trusted.
    """

    rows: Dataset
    matrix: CorruptionMatrix
    inputs: tuple[str, ...]
    task: str
    name: str
    num_trusted: int


def audit_folder(folder: Path, options: Namespace) -> Audit:
    """Audits the rows that the options name with the model in a folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}.")
    if (folder / COMPARISON_FILE).is_file():
        models = sorted(str(path.parent) for path in folder.glob(f"*/{MATRIX_FILE}"))
        raise ValueError(f"{folder} holds a comparison: name the folder of one of its models, {' or '.join(models)}.")
    facts = read_facts(folder)
    if not (folder / MATRIX_FILE).is_file():
        raise FileNotFoundError(
            f"there is no {MATRIX_FILE} in {folder}: the method {facts['method']!r} uses none, and an audit needs it. "
            "Train with --method glc."
        )
    if facts["task"] not in _TASKS:
        raise ValueError(f"{folder} holds a model for {facts['task']}; an audit can read {', '.join(_TASKS)}.")
    matrix = CorruptionMatrix.from_pretrained(folder)
    settings = _settings(folder, facts, options)
    raw, rows = _load(facts, settings, matrix, _TASKS[facts["task"]])
    task, label, flag = rows.columns.task, rows.columns.label, settings.config.trusted_column
    for name in COLUMNS:
        if name in raw.column_names:
            raise ValueError(f"the dataset has a column {name!r} already, from another audit: remove or rename it.")
    check_labels_fit(rows)
    model, processor, saved_processor = load_model(
        ModelArguments(model=str(folder)), task, matrix.num_labels, matrix.label_names
    )
    if task == "token":
        words = [list(range(len(labels))) for labels in rows.train.with_format(None)[label]]
        rows.train = rows.train.add_column(_WORD, words, feature=List(Value("int64")))
    prepared = prepare(rows, processor, model, settings, carried=(_WORD,))
    settings.config.label_column = None  # the prepared one is called `labels`
    trainer = GLCTrainer(
        model,
        settings.config,
        data_collator=prepared.collator,
        processing_class=saved_processor,
        corruption_matrix=matrix,
    )
    audited = trainer.audit(prepared.train)
    result = _put_back(raw, rows, audited, matrix.label_names)
    trusted = int(read_flags(rows.train, flag).values.sum()) if flag in rows.train.column_names else 0
    return Audit(result, matrix, rows.columns.inputs, task, _name(facts, settings), trusted)


def _settings(folder: Path, facts: dict[str, Any], options: Namespace) -> TrainOptions:
    """The options of `glc-hf train` that say which rows these are: of the command, or of the run itself."""
    config = {
        "output_dir": str(folder),
        "per_device_eval_batch_size": options.batch_size,
        "trusted_column": options.trusted_column,
        "label_column": options.label_column,
        "report_to": "none",
        "disable_tqdm": True,
    }
    if options.dataset is not None:
        names = ("dataset", "dataset_config", "text_column", "text_pair_column", "image_column", "tokens_column")
        data = DataArguments(
            **{name: getattr(options, name) for name in names},
            train_split=options.split,
            max_length=options.max_length,
        )
        return TrainOptions(data, NoiseArguments(), ModelArguments(), GLCConfig(**config))
    dataset = facts.get("dataset") or {}
    if not dataset.get("on_hub") and dataset.get("name") != DIGITS:
        raise ValueError("name the rows to audit: --dataset, with a file, a folder or a Hub id.")
    told = facts["arguments"]
    if told.get("noise") == "weak":
        raise ValueError(
            "the labels of this run came from a weak classifier and were not kept: name the rows to audit, --dataset."
        )
    for name in ("seed", "trusted_column", "label_column"):
        if name in told:
            config[name] = told[name]
    return TrainOptions(
        DataArguments(**_of(DataArguments, told)),
        NoiseArguments(**_of(NoiseArguments, told)),
        ModelArguments(),
        GLCConfig(**config),
    )


def _of(kind: type, told: dict[str, Any]) -> dict[str, Any]:
    return {field.name: told[field.name] for field in dataclasses.fields(kind) if field.name in told}


def _name(facts: dict[str, Any], settings: TrainOptions) -> str:
    if settings.data.dataset is None:
        return (facts.get("dataset") or {}).get("name") or "the run"
    return Path(settings.data.dataset).name if Path(settings.data.dataset).exists() else settings.data.dataset


def _load(facts: dict[str, Any], settings: TrainOptions, matrix: CorruptionMatrix, task: str) -> tuple[Dataset, Rows]:
    """The rows as they were loaded, and the same with labels in the model's classes and flags as booleans."""
    if settings.noise.simulated or settings.data.dataset is None:
        rows = load_rows(settings)
        return rows.train, rows
    data, flag = settings.data, settings.config.trusted_column
    raw = choose_split(load_splits(data.dataset, data.dataset_config), data.train_split, "--split")
    columns = columns_of(raw.features, settings, task)
    check_words(raw, columns.inputs[0], columns.label, "the dataset")
    part = {"the dataset": raw}
    encoded, names = encode_labels(part, columns.label, names=matrix.label_names)
    train = encoded["the dataset"]
    if flag in train.column_names:
        train = encode_flags(train, flag)
    return raw, Rows(train, None, columns, names, matrix.num_labels)


def _put_back(raw: Dataset, rows: Rows, audited: Dataset, names: list[str] | None) -> Dataset:
    """The columns of the audit beside those that the rows came with; for words, by word."""
    verdicts = audited.with_format(None).select_columns([n for n in (*COLUMNS, _WORD) if n in audited.column_names])
    columns = {name: verdicts[name] for name in COLUMNS}
    classes: Any = ClassLabel(names=names) if names is not None else Value("int64")
    features = {GIVEN: classes, SUGGESTED: classes, P_WRONG: Value("float64")}
    if rows.columns.task == "token":
        columns = _by_word(columns, verdicts[_WORD], rows.train.with_format(None)[rows.columns.label])
        features = {name: List(feature) for name, feature in features.items()}
    for name in COLUMNS:
        raw = raw.add_column(name, list(columns[name]), feature=features[name])
    return raw


def _by_word(columns: dict[str, Any], words: Any, labels: Any) -> dict[str, list[list[Any]]]:
    """From tokens to words. A word that was cut off, or labelled -100, keeps its label and has no p_wrong."""
    result: dict[str, list[list[Any]]] = {name: [] for name in COLUMNS}
    for row, given in enumerate(labels):
        suggested, p_wrong = list(given), [None] * len(given)
        tokens = zip(words[row], columns[SUGGESTED][row], columns[P_WRONG][row], strict=True)
        for word, better, wrong in tokens:
            if word is not None and word >= 0 and given[word] != IGNORED_LABEL:
                suggested[word], p_wrong[word] = better, wrong
        for name, values in ((GIVEN, list(given)), (SUGGESTED, suggested), (P_WRONG, p_wrong)):
            result[name].append(values)
    return result
