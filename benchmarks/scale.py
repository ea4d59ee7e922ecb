# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Cost against size: processor time and peak memory of noise, estimation, audit and probe, by rows and by classes.

Each figure comes from a forked process with one thread. Its memory is the peak above the inputs, which exist before.
Inputs are synthetic: labels, logits of a classifier, and features on disk. The growth exponent of a cost is the slope
of log cost against log size over the three largest sizes: 1 is linear.

    python benchmarks/scale.py
    python benchmarks/scale.py --only audit --rows 10000 100000
    python benchmarks/scale.py --summary
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from many_classes import peak, reset_peak
from result_files import RESULTS as FOLDER
from result_files import make_parser, write_result


RESULTS = FOLDER / "scale.json"
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
CLASSES = (10, 100, 1_000, 10_000, 21_841)
FEW_CLASSES = 10  # while the rows grow
FEATURES = 64
CONSTANT = 0.5  # memory with a smaller exponent in rows is that of buffers
BATCH = 256
BLOCK = 10_000  # rows of a stream that are generated at once
REPEATS, LONG = 3, 5.0  # work that takes longer, in seconds, is measured once
MANY_CLASSES = 10_000  # from here on too: several K×K matrices take gigabytes
MOST = 180.0  # no larger size is measured after one that makes the next one take longer
Work = Callable[[], object]


# ---------------------------------------------------------------------- the work: inputs first, then what is measured
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


# ---------------------------------------------------------------------- measuring
def cost_of(make: Callable[[], Work]) -> dict[str, float]:
    """Processor seconds of the work in a forked process, and its peak memory above the inputs, in MiB."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work = make()
            _return_freed_memory()
            before, start = reset_peak(), time.process_time()
            work()
            seconds = time.process_time() - start
            os.write(writer, json.dumps({"seconds": seconds, "peak_mib": peak() - before}).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    result = os.read(reader, 256)
    os.close(reader)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("a measurement failed")
    return json.loads(result)


def _return_freed_memory() -> None:
    """Return memory that was freed to the system: work that used it again would seem to need none."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def _warm_up() -> None:
    """Load what torch loads at its first use of an optimizer, once for all forked processes."""
    import torch

    weight = torch.zeros(1, requires_grad=True)
    torch.optim.LBFGS([weight]).step(lambda: (weight**2).sum())


def measure(name: str, rows: int, classes: int, folder: str) -> dict[str, Any]:
    """Medians of some repetitions."""
    make = WORK[name].make
    costs = [cost_of(lambda: make(rows, classes, folder))]
    while len(costs) < REPEATS and costs[0]["seconds"] < LONG and classes < MANY_CLASSES:
        costs.append(cost_of(lambda: make(rows, classes, folder)))
    seconds, memory = (statistics.median(cost[key] for cost in costs) for key in ("seconds", "peak_mib"))
    digits = {"seconds": round(seconds, 4), "peak_mib": round(memory, 1)}
    return {"work": name, "rows": rows, "classes": classes, **digits, "repeats": len(costs)}


def exponent(sizes: list[float], costs: list[float]) -> float | None:
    """Slope of log cost against log size over the three largest sizes; `None` with fewer than two, or no cost."""
    points = [(size, cost) for size, cost in zip(sizes, costs, strict=True) if cost > 0][-3:]
    if len(points) < 2 or len(points) < min(len(costs), 3):
        return None
    logs = np.log(np.array(points, dtype=float))
    return round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 2)


def exponents(results: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """The growth exponents of each work: of time and memory in rows, and of time in classes."""
    found: dict[str, dict[str, float | None]] = {}
    for name in WORK:
        by_rows, by_classes = series(results, name, "rows"), series(results, name, "classes")
        found[name] = {
            "time_by_rows": exponent([one["rows"] for one in by_rows], [one["seconds"] for one in by_rows]),
            "memory_by_rows": exponent([one["rows"] for one in by_rows], [one["peak_mib"] for one in by_rows]),
            "time_by_classes": exponent(
                [one["classes"] for one in by_classes], [one["seconds"] for one in by_classes]
            ),
        }
    return found


def series(results: list[dict[str, Any]], name: str, size: str) -> list[dict[str, Any]]:
    """The results of a work for growing `rows` or `classes`, in their order."""
    own = [one for one in results if one["work"] == name and one["varied"] == size]
    return sorted(own, key=lambda one: one[size])


def plan(only: list[str] | None, rows: tuple[int, ...], classes: tuple[int, ...]) -> Iterator[tuple[str, str, list]]:
    """The series to measure: the work, what grows, and the sizes (rows, classes)."""
    for name, work in WORK.items():
        if only is None or any(start in name for start in only):
            yield name, "rows", [(number, FEW_CLASSES) for number in work.rows or rows]
            if work.fixed is not None:
                yield name, "classes", [(work.fixed, number) for number in classes]


def run(only: list[str] | None, rows: tuple[int, ...], classes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure the series; a size is left out if the time of the one before says that it takes too long."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, varied, sizes in plan(only, rows, classes):
            last: dict[str, Any] | None = None
            for number_of_rows, number_of_classes in sizes:
                if last is not None:
                    growth = number_of_rows * number_of_classes / (last["rows"] * last["classes"])
                    if last["seconds"] * growth > MOST:
                        print(f"{name}: {number_of_rows:,} rows, {number_of_classes:,} classes left out", flush=True)
                        break
                last = {**measure(name, number_of_rows, number_of_classes, folder), "varied": varied}
                results.append(last)
                print(json.dumps(last), flush=True)
            for file in Path(folder).glob("features-*"):
                file.unlink()
    return results


# ---------------------------------------------------------------------- tables
def summary(path: Path = RESULTS) -> str:
    """Table of the exponents, and of time and memory at the largest size."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    found = exponents(results)
    lines = [
        "| work | rows | rows per second | peak memory | memory per row | time grows with rows^ | memory grows with "
        "rows^ | most classes | seconds there | time grows with classes^ |",
        "| --- |" + " ---: |" * 9,
    ]
    for name in WORK:
        by_rows, by_classes = series(results, name, "rows"), series(results, name, "classes")
        if not by_rows:
            continue
        largest, growth = by_rows[-1], found[name]
        memory = largest["peak_mib"]
        cells = [
            f"{largest['rows']:,}",
            f"{_rounded(largest['rows'] / largest['seconds']):,}",
            f"{memory:,.0f} MiB",
            f"{memory * 2**20 / largest['rows']:.1f} B" if (growth["memory_by_rows"] or 0) > CONSTANT else "",
            _exponent_text(growth["time_by_rows"]),
            _exponent_text(growth["memory_by_rows"]),
        ]
        cells += ["", "", ""]
        if by_classes:
            most = by_classes[-1]
            cells[-3:] = [
                f"{most['classes']:,} ({most['rows']:,} rows)",
                f"{most['seconds']:.2f}",
                _exponent_text(growth["time_by_classes"]),
            ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def projection(path: Path = RESULTS) -> str:
    """Table of what the measured costs mean for each of 1,000 processes at 10⁹ rows. Costs of a size that was not
    measured are those per row of the largest one."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    step = json.loads((FOLDER / "training_step.json").read_text(encoding="utf-8"))["measured"][0]["milliseconds"]
    lines = [
        "| step | rows per process | measured, one core | time per process | memory per process |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for title, name, rows in STEPS:
        found = series(results, name, "rows")
        if not found:
            continue
        # The figure of this size, if it was measured.
        largest = next((one for one in found if one["rows"] == rows), found[-1])
        seconds = largest["seconds"] / largest["rows"]
        grows = exponents(results)[name]["memory_by_rows"]
        memory = largest["peak_mib"] * 2**20
        if grows is not None and grows > CONSTANT:
            memory *= rows / largest["rows"]
        lines.append(
            f"| {title} | {_power(rows)} | {_amount(seconds, TIMES)} per row | {_amount(seconds * rows, TIMES)} | "
            f"{_amount(memory, SIZES)} |"
        )
    for name in ("Trainer", "GLCTrainer"):
        seconds = step[name]["median"] / 1000 / 32
        lines.append(
            f"| one epoch of training, `{name}` | 10⁶ | {_amount(seconds, TIMES)} per row | "
            f"{_amount(seconds * 10**6, TIMES)} | |"
        )
    return "\n".join(lines)


# Step, work and rows of each of 1,000 processes for 10⁹ rows. Every process reads all labels, or all of a stream.
STEPS = [
    ("noise, if it is simulated", "`corrupt_labels`, dataset", 10**9),
    ("the same on a stream: one pass", "`corrupt_labels`, stream", 10**9),
    ("labels and flags", "labels and flags of a training", 10**9),
    ("embedding of the probe", "probe, embedding", 10**6),
    ("fit of its head", "probe, fit of the head", 10**6),
    ("one pass of its head", "probe, one pass", 10**6),
    ("estimate from 10⁶ trusted rows", "estimation, `glc`", 10**3),
    ("audit of all rows", "audit", 10**9),
    ("audit of a part", "audit", 10**6),
]
TIMES = [(3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
SIZES = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]


def _amount(value: float, units: list[tuple[float, str]]) -> str:
    """Two significant digits in the largest unit that makes it at least one; the smallest unit otherwise."""
    size, unit = next((one for one in units if value >= one[0]), units[-1])
    return f"{float(f'{value / size:.2g}'):,g} {unit}"


def _power(value: int) -> str:
    return {10**9: "10⁹", 10**6: "10⁶", 10**3: "10³"}[value]


def _rounded(value: float) -> int:
    """Two significant digits."""
    return int(float(f"{value:.2g}"))


def _exponent_text(value: float | None) -> str:
    return "" if value is None else f"{abs(value) if abs(value) < 0.005 else value:.2f}"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", help="only the work whose name contains one of these")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--classes", nargs="+", type=int, default=CLASSES)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="only print the table")
    options = parser.parse_args()
    if not options.summary:
        import datasets
        import torch

        # Imported here, so that the forked processes don't import it again.
        import glc_hf.audit.findings  # noqa: F401

        datasets.disable_progress_bars()
        torch.set_num_threads(1)
        _warm_up()
        results = run(options.only, tuple(options.rows), tuple(options.classes))
        if options.only is not None and options.output.exists():
            others = json.loads(options.output.read_text(encoding="utf-8"))["results"]
            measured = {one["work"] for one in results}
            results = [one for one in others if one["work"] not in measured] + results
        what = "processor time and peak memory above the inputs, one thread, one forked process per figure"
        packages = ["torch", "datasets", "pyarrow"]
        write_result(options.output, what, packages, exponents=exponents(results), results=results)
    print(summary(options.output))


if __name__ == "__main__":
    main()
