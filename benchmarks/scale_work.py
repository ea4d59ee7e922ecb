# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The work that `scale.py` measures: each function makes its inputs, and returns what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


FEATURES = 64
BATCH = 256
BLOCK = 10_000  # rows of a stream that are generated at once
Work = Callable[[], object]


def noise_dataset(rows: int, classes: int, folder: str) -> Work:
    """`corrupt_labels` on a dataset in memory."""
    from glc_hf import CorruptionMatrix, corrupt_labels

    dataset = _labeled(rows, classes)
    matrix = CorruptionMatrix.uniform(classes, 0.5)
    return lambda: corrupt_labels(dataset, matrix)


def noise_stream(rows: int, classes: int, folder: str) -> Work:
    """`corrupt_labels` on a stream that is read once."""
    import datasets

    from glc_hf import CorruptionMatrix, corrupt_labels

    features = datasets.Features(
        {"label": datasets.ClassLabel(num_classes=classes), "trusted": datasets.Value("bool")}
    )

    def blocks() -> Iterator[dict[str, int]]:
        for number in range(rows // BLOCK):
            yield {"block": number}

    def make(batch: dict[str, list[int]]) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(batch["block"][0])
        return {"label": draw.integers(classes, size=BLOCK), "trusted": np.arange(BLOCK) < BLOCK // 100}

    stream = datasets.IterableDataset.from_generator(blocks).map(
        make, batched=True, batch_size=1, remove_columns=["block"], features=features
    )
    noisy = corrupt_labels(stream, CorruptionMatrix.uniform(classes, 0.5))

    def read() -> None:
        for _ in noisy.iter(BLOCK):
            pass

    next(iter(noisy.iter(BLOCK)))  # the first block imports and allocates what stays
    return read


def estimation(rows: int, classes: int, folder: str) -> Work:
    """The gold estimate from the logits of trusted rows, batch by batch."""
    from glc_hf.correction.accumulators import GoldAccumulator

    return _estimation(GoldAccumulator(classes), rows, classes)


def confusion(rows: int, classes: int, folder: str) -> Work:
    """The confusion matrix estimate from the same logits."""
    from glc_hf.correction.accumulators import ConfusionAccumulator

    return _estimation(ConfusionAccumulator(classes), rows, classes)


def _estimation(accumulator: Any, rows: int, classes: int) -> Work:
    import torch

    generator = torch.Generator().manual_seed(0)
    accumulator.sums[0].fill_(0.0)  # allocates the pages
    logits = torch.randn(min(rows, BATCH), classes, generator=generator)

    def run() -> None:
        for first in range(0, rows, BATCH):
            labels = torch.randint(classes, (min(BATCH, rows - first),), generator=generator)
            accumulator.update_logits(logits[: len(labels)], labels)

    accumulator.update_logits(logits[:1], torch.zeros(1, dtype=torch.int64))  # allocates what stays
    return run


def audit(rows: int, classes: int, folder: str) -> Work:
    """Verdicts on all labels, the columns of an audit, the number of wrong labels, and the first 1,000 to look at."""
    import torch

    from glc_hf import CorruptionMatrix
    from glc_hf.audit.findings import Findings, GivenLabels, add_audit_columns
    from glc_hf.labels.labeled_rows import LabeledRows

    dataset = _labeled(rows, classes)
    matrix = CorruptionMatrix.uniform(classes, 0.5)
    labels = LabeledRows(dataset, "label", "trusted", classes, "audit")
    nothing = np.empty(0, dtype=np.int64)
    given = GivenLabels(dataset, labels, matrix, None, None, nothing, nothing)
    logits = torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))
    add_audit_columns(*_first_row(dataset, given), logits[:1], None)  # caches the transposed matrix

    def run() -> tuple[Any, Any]:
        findings = Findings.of(add_audit_columns(dataset, given, logits, None), matrix)
        return findings.total_wrong, findings.ranked(1_000)

    return run


def _first_row(dataset: Any, given: Any) -> tuple[Any, Any]:
    from glc_hf.labels.labeled_rows import LabeledRows

    row = dataset.select(range(1))
    return row, given._replace(dataset=row, rows=LabeledRows(row, "label", "trusted", None, "audit"))


def row_index(rows: int, classes: int, folder: str) -> Work:
    """Labels and flags as each process of a training reads and keeps them."""
    from glc_hf.labels.labeled_rows import LabeledRows

    dataset, kept = _labeled(rows, classes), []
    return lambda: kept.append(LabeledRows(dataset, "label", "trusted", classes, "glc"))


def probe_fit(rows: int, classes: int, folder: str) -> Work:
    """The head of a probe, fitted to convergence with a given penalty, on features of a file."""
    table, labels = _feature_table(rows, classes, folder)
    return lambda: table.fit(table.numbers, labels, classes, penalty=1e-3)


def probe_pass(rows: int, classes: int, folder: str) -> Work:
    """One pass of a fitted head over the same features: their logits, counted."""
    import torch

    from glc_hf.correction.linear import LinearHead

    table, _ = _feature_table(rows, classes, folder)
    head = LinearHead(torch.zeros(FEATURES, classes), torch.zeros(classes), table.mean, table.scale)

    def run() -> None:
        for some in table.numbers.split(2**16):
            table.logits(head, some).argmax(dim=1).bincount(minlength=classes)

    return run


def _labeled(rows: int, classes: int) -> Any:
    """A dataset with labels and flags, of which one in a hundred is set."""
    import datasets
    import pyarrow as pa

    draw = np.random.default_rng(0)
    table = pa.table({"label": draw.integers(classes, size=rows), "trusted": draw.random(rows) < 0.01})
    features = datasets.Features(
        {"label": datasets.ClassLabel(num_classes=classes), "trusted": datasets.Value("bool")}
    )
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=features))


def _feature_table(rows: int, classes: int, folder: str) -> tuple[Any, Any]:
    """Features near one of the classes' centers, in a file, and the labels with 30 % noise."""
    import torch

    from glc_hf.correction.linear import FeatureTable
    from glc_hf.data.feature_files import read_features, write_features

    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(classes, FEATURES, generator=generator)
    labels = torch.randint(classes, (rows,), generator=generator)
    path = Path(folder) / f"features-{rows}-{classes}.arrow"
    if not path.exists():
        parts = torch.arange(rows).split(2**14)
        write_features(
            path, ((centers[labels[p]] + 2 * torch.randn(len(p), FEATURES, generator=generator), p) for p in parts)
        )
    noise = torch.Generator().manual_seed(1)
    wrong = torch.rand(rows, generator=noise) < 0.3
    labels = torch.where(wrong, torch.randint(classes, (rows,), generator=noise), labels)
    return FeatureTable(*read_features(path)), labels


def probe_embedding(rows: int, classes: int, folder: str) -> Work:
    """The features of rows of 32 tokens from a network of the size of MiniLM, with random weights, into a file."""
    import torch
    from transformers import BertConfig, BertModel

    from glc_hf.data.feature_files import write_features

    torch.manual_seed(0)
    network = BertModel(
        BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    ).eval()
    tokens, path = torch.randint(1_000, 30_000, (rows, 32)), Path(folder) / f"features-embedded-{rows}.arrow"

    @torch.no_grad()
    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for part in torch.arange(rows).split(64):
            yield network(input_ids=tokens[part]).last_hidden_state.mean(dim=1), part

    network(input_ids=tokens[:64])  # allocates what stays
    return lambda: write_features(path, batches())


class Series(NamedTuple):
    """
    Attributes:
        make: Makes the inputs, and returns the work.
        fixed: Rows while the classes grow; `None` if this is not measured.
        rows: Growing rows; by default those of the command.
    """

    make: Callable[[int, int, str], Work]
    fixed: int | None = None
    rows: tuple[int, ...] | None = None


WORK: dict[str, Series] = {
    "`corrupt_labels`, dataset": Series(noise_dataset, 1_000_000),
    "`corrupt_labels`, stream": Series(noise_stream),
    "estimation, `glc`": Series(estimation, 2_048),
    "estimation, `confusion_matrix`": Series(confusion, 2_048),
    "audit": Series(audit, 2_048),
    "probe, embedding": Series(probe_embedding, None, (128, 512, 2_048)),
    "probe, fit of the head": Series(probe_fit, 512),
    "probe, one pass": Series(probe_pass, 2_048),
    "labels and flags of a training": Series(row_index),
}
