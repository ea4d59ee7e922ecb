# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Accuracy after 0, 50, 100 and 200 more rows were checked, which `suggest`, cleanlab or chance chose.

The tasks are those of `real_noise.py`, with at most 2,000 training rows and 30 trusted rows drawn by seed. 50, 50 and
100 rows get their gold labels and become trusted rows. The pool of linear models of method `auto` is fitted again
after each step, and the next rows are chosen with it. `cleanlab` takes the rows with the lowest
`cleanlab.rank.get_label_quality_scores`, with the probabilities of the same model. (With one label per row,
`cleanlab.multiannotator.get_active_learning_scores` is a linear function of them and ranks alike.) The accuracy is
that on the test rows. The rule of `suggest` was chosen on other rows, of the training split, with seeds 0 to 2. Needs
`pip install cleanlab` (extra `bench`). Each finished run is one line of the results file and is not repeated.

    python benchmarks/relabelling.py --data <folder>/real
    python benchmarks/relabelling.py --summary
    python benchmarks/relabelling.py --picture docs/relabelling.png
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from real_noise import default_cache
from result_files import RESULTS as FOLDER
from result_files import add_run, make_data_parser, read_runs


RESULTS = FOLDER / "relabelling.jsonl"
TASKS = ("trec", "semeval", "labelme", "youtube", "semeval_llm", "crowd")
TRUSTED = 30
MOST_ROWS = 2000
CHECKED = (0, 50, 100, 200)
DRAWS = {"random": 2}
NAMES = ("random", "cleanlab", "suggest")
# Checking 200 random rows must gain this much, otherwise there is nothing to save.
_SMALLEST_GAIN = 0.01
_RESAMPLES = 200


# ---------------------------------------------------------------------- runs
def run(task: str, seed: int, curves: Sequence[tuple[str, int]], options: Any) -> Iterator[dict[str, Any]]:
    """Yield curves of one task and seed, from their names and the numbers of their draws."""
    import numpy as np
    from real_noise_tasks import TASKS as REAL
    from real_noise_tasks import draw_cell, load_features, load_source

    known = REAL[task]
    source = load_source(options.data, known.folder, known.kind)
    features = load_features(options.data, known.folder, known.kind, options.cache)
    first = _Step(draw_cell(source, known.noise, TRUSTED, seed, most=MOST_ROWS), features, seed)
    for name, draw in curves:
        rng = np.random.default_rng([seed, draw])
        step, accuracy, wrong = first, [first.accuracy], 0
        for before, after in pairwise(CHECKED):
            rows = step.cell.untrusted[step.choose(name, after - before, rng)]
            wrong += int((step.cell.labels[rows] != source.columns["label"][rows]).sum())
            step = _Step(with_checked(step.cell, rows), features, seed)
            accuracy.append(step.accuracy)
        yield {"task": task, "seed": seed, "name": name, "draw": draw, "accuracy": accuracy, "wrong_labels": wrong}


def with_checked(cell: Any, rows: Any) -> Any:
    """The cell with more trusted rows, which have their gold labels."""
    import numpy as np
    from real_noise_tasks import Cell

    labels = cell.labels.copy()
    labels[rows] = cell.source.columns["label"][rows]
    return Cell(cell.source, labels, np.sort(np.concatenate([cell.trusted, rows])), np.setdiff1d(cell.untrusted, rows))


class _Step:
    """The pool that is fitted on a cell, its accuracy on the test rows, and the rows that are chosen with it."""

    def __init__(self, cell: Any, features: Any, seed: int) -> None:
        from real_noise_linear import LinearCell

        self.cell, self.seed, self.linear = cell, seed, LinearCell(cell, features, seed)
        predicted = self.linear.pool.log_probs(self.linear.test).argmax(dim=-1)
        self.accuracy = round(float((predicted == self.linear.test_labels).double().mean()), 5)

    def choose(self, name: str, number: int, rng: Any) -> Any:
        """Positions in `cell.untrusted`."""
        import numpy as np

        from glc_hf.audit.suggest import rows_to_check, value_of_checking

        cell, linear = self.cell, self.linear
        if name == "random":
            return rng.permutation(len(cell.untrusted))[:number]
        log_probs = linear.pool.log_probs(linear.untrusted).double().numpy()
        if name == "suggest":
            counts = np.bincount(cell.labels[cell.trusted], minlength=linear.num_labels)
            features = ((linear.table.features - linear.table.mean) / linear.table.scale).numpy()
            value = value_of_checking(log_probs, counts)
            untrusted = features[cell.untrusted]
            return rows_to_check(value, untrusted.__getitem__, features[cell.trusted], number, self.seed)
        from cleanlab.rank import get_label_quality_scores

        scores = get_label_quality_scores(cell.labels[cell.untrusted], np.exp(log_probs))
        return np.argsort(scores, kind="stable")[:number]


# ---------------------------------------------------------------------- tables
def mean_curves(seeds: Sequence[int] | None = None) -> dict[str, dict[str, list[float]]]:
    """The mean accuracy over seeds (all of them, or these, which may repeat) and draws, by task and name."""
    found: dict[tuple[str, str, int], list[list[float]]] = {}
    for entry in read_runs(RESULTS):
        found.setdefault((entry["task"], entry["name"], entry["seed"]), []).append(entry["accuracy"])
    seeds = sorted({seed for _, _, seed in found}) if seeds is None else seeds
    curves: dict[str, dict[str, list[float]]] = {}
    for task in TASKS:
        for name in NAMES:
            runs = [accuracy for seed in seeds for accuracy in found.get((task, name, seed), [])]
            if runs:
                curves.setdefault(task, {})[name] = [statistics.mean(values) for values in zip(*runs, strict=True)]
    return curves


def interval(name: str, tasks: Sequence[str]) -> list[tuple[float, float]]:
    """90% intervals of the mean of `rows_saved` over tasks, by resampling the seeds."""
    seeds = sorted({entry["seed"] for entry in read_runs(RESULTS)})
    rng, means = random.Random(0), []
    for _ in range(_RESAMPLES):
        curves = mean_curves(rng.choices(seeds, k=len(seeds)))
        saved = [all_saved(curves[task][name], curves[task]["random"]) for task in tasks]
        means.append([statistics.mean(values) for values in zip(*saved, strict=True)])
    cut = _RESAMPLES // 20
    return [(values[cut], values[-1 - cut]) for values in map(sorted, zip(*means, strict=True))]


def rows_needed(curve: Sequence[float], accuracy: float) -> float | None:
    """The number of checked rows at which a curve, straight between its points, first has an accuracy."""
    if curve[0] >= accuracy:
        return 0.0
    for place in range(1, len(curve)):
        low, high = curve[place - 1 : place + 1]
        if high >= accuracy:
            share = (accuracy - low) / (high - low)
            return CHECKED[place - 1] + share * (CHECKED[place] - CHECKED[place - 1])
    return None


def rows_saved(curve: Sequence[float], by_chance: Sequence[float], place: int = -1) -> float:
    """
    Share of the rows that are saved: 1 − m/n, m the number of rows with which the curve has the accuracy of n random
    rows, `CHECKED[place]`. If it never has, n is the number of random rows with the accuracy of its last point m. At
    least −1.
    """
    number = rows_needed(curve, by_chance[place])
    if number is not None:
        return max(-1.0, 1 - number / CHECKED[place])
    number = rows_needed(by_chance, curve[-1])
    return max(-1.0, 1 - CHECKED[-1] / number) if number else -1.0


def all_saved(curve: Sequence[float], by_chance: Sequence[float]) -> list[float]:
    """`rows_saved` for the accuracy of 50, 100 and 200 random rows."""
    return [rows_saved(curve, by_chance, place) for place in range(1, len(CHECKED))]


def summary() -> str:
    """Table of the accuracies, and of the rows saved for the accuracies of 50, 100 and 200 random rows."""
    lines = [
        f"| task | rows chosen by | {' | '.join(f'{number} checked' for number in CHECKED)} | rows saved |",
        "| --- " * (len(CHECKED) + 3) + "|",
    ]
    saved: dict[str, dict[str, list[float]]] = {name: {} for name in NAMES[1:]}
    for task, of_task in mean_curves().items():
        by_chance = of_task["random"]
        best = [max(round(curve[place], 3) for curve in of_task.values()) for place in range(len(CHECKED))]
        for name, curve in of_task.items():
            cells = [
                f"**{value:.3f}**" if place and round(value, 3) == top else f"{value:.3f}"
                for place, (value, top) in enumerate(zip(curve, best, strict=True))
            ]
            shares = ""
            if name in saved and by_chance[-1] - by_chance[0] >= _SMALLEST_GAIN:
                saved[name][task] = all_saved(curve, by_chance)
                shares = _percents(saved[name][task])
            lines.append(f"| {task} | {name} | {' | '.join(cells)} | {shares} |")
    for name, of_tasks in saved.items():
        if of_tasks:
            means = [statistics.mean(column) for column in zip(*of_tasks.values(), strict=True)]
            line = f"**{_percents(means)}**; mean {statistics.mean(means):.0%}"
            bounds = ", ".join(f"{low:.0%} to {high:.0%}" for low, high in interval(name, list(of_tasks)))
            start = f"| **mean of {len(of_tasks)} tasks** | {name} |" + " |" * len(CHECKED)
            lines += [f"{start} {line} |", f"| 90% interval | {name} |{' |' * len(CHECKED)} {bounds} |"]
    return "\n".join(lines)


def _percents(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:.0%}" for share in shares)


def draw_picture(path: str) -> None:
    """Draw the mean curves."""
    import matplotlib.pyplot as plt

    curves = mean_curves()
    figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, layout="constrained")
    styles = dict(zip(NAMES, (("0.5", "--"), ("C1", ":"), ("C0", "-")), strict=True))
    for axis, (task, of_task) in zip(axes.flat, curves.items(), strict=False):
        for name, curve in of_task.items():
            color, line = styles[name]
            axis.plot(CHECKED, curve, color=color, linestyle=line, marker="o", markersize=3, label=name)
        axis.set_title(task, fontsize=10)
        axis.set_xticks(CHECKED)
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    figure.supxlabel("rows checked", fontsize=10)
    figure.supylabel("test accuracy", fontsize=10)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = make_data_parser(__doc__, TASKS)
    parser.set_defaults(seeds=[3, 4, 5, 6, 7, 8], tasks=TASKS)
    parser.add_argument("--names", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--picture", help="only draw the curves, to this file")
    options = parser.parse_args()
    if options.picture:
        draw_picture(options.picture)
        return
    if not options.summary:
        if options.data is None:
            parser.error("--data is needed to run; --summary prints the table of the finished runs")
        import torch

        torch.set_num_threads(options.threads)
        options.cache = options.cache or default_cache()
        finished = {(entry["task"], entry["seed"], entry["name"], entry["draw"]) for entry in read_runs(RESULTS)}
        for seed in options.seeds:
            for task in options.tasks:
                curves = [(name, draw) for name in options.names for draw in range(DRAWS.get(name, 1))]
                curves = [curve for curve in curves if (task, seed, *curve) not in finished]
                for result in run(task, seed, curves, options) if curves else ():
                    add_run(RESULTS, result)
    print(summary())


if __name__ == "__main__":
    main()
