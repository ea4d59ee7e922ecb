# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Tables and the figure of `real_noise.py`: accuracies, regret, and how often the verdict is right."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glc_hf.intervals import ACCURACY_LEVEL, normal_quantile, wilson_interval


AUTO, PLAIN, ALL_GOLD = "auto", "no_correction", "all_gold"
# Not what a method is compared with: the default itself, its linear part, and gold labels for all rows.
NOT_BASELINES = (AUTO, "linear_pool", ALL_GOLD)
MODES = ("linear", "finetune")
METHODS = (
    AUTO,
    "linear_pool",
    PLAIN,
    "trusted_only",
    "finetune_on_trusted",
    "glc_paper",
    "glc",
    "cleanlab",
    ALL_GOLD,
)
_TITLES = {
    "linear": "Linear models on the features of the pretrained network",
    "finetune": "Fine-tuning of the pretrained network",
}
# Rows of the test splits. Fine-tuned networks are evaluated on at most 1,000 of them.
_TEST_ROWS = {"youtube": 250, "semeval": 600, "trec": 500, "crowd": 3999, "labelme": 1188, "cifar10n": 2000}
_MAX_TEST_ROWS = {"linear": 10**9, "finetune": 1000}
Run = dict[str, Any]


@dataclass
class Cell:
    """
    The runs of one task, number of trusted rows and number of steps.

    Attributes:
        task, trusted: Which.
        accuracies: Mean accuracy of each method, over the seeds that all its methods have.
        seeds: These seeds.
    """

    task: str
    trusted: int
    accuracies: dict[str, float]
    seeds: list[int]

    def regret(self, method: str) -> float | None:
        """Distance to the best baseline; negative if the method is better than all of them."""
        baselines = [value for name, value in self.accuracies.items() if name not in NOT_BASELINES]
        if method not in self.accuracies or not baselines:
            return None
        return max(baselines) - self.accuracies[method]


def cells_of(runs: Iterable[Run], mode: str) -> list[Cell]:
    """The cells of a mode, tasks in the order of the results, without cells whose methods have no seed in common."""
    groups: dict[tuple, dict[str, dict[int, float]]] = {}
    for run in runs:
        if run["mode"] == mode:
            methods = groups.setdefault((run["task"], run["trusted"], run.get("steps")), {})
            methods.setdefault(run["method"], {})[run["seed"]] = run["accuracy"]
    cells = []
    for (task, trusted, _), methods in groups.items():
        seeds = sorted(set.intersection(*(set(by_seed) for by_seed in methods.values())))
        if seeds:
            means = {name: statistics.mean(by_seed[seed] for seed in seeds) for name, by_seed in methods.items()}
            cells.append(Cell(task, trusted, means, seeds))
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    return sorted(cells, key=lambda cell: (tasks.index(cell.task), cell.trusted))


def methods_of(cells: Iterable[Cell]) -> list[str]:
    """The methods of these cells, in the order of the columns."""
    found = {name for cell in cells for name in cell.accuracies}
    return [name for name in METHODS if name in found] + sorted(found - set(METHODS))


# ---------------------------------------------------------------------- the verdict
@dataclass
class VerdictCheck:
    """
    How often the verdict of `auto` is right.

    Attributes:
        runs: Runs with a verdict.
        contained: Those whose interval contains the accuracy on the test split.
        agreeing: Those whose interval agrees with it: the test split is a sample, too, and the interval of the
            difference contains 0.
        right: For each answer (helps: yes, no, can't be told), how often it was given, and how often the accuracy on
            the test split agrees: above or below that of plain training. The third answer can't be wrong.
    """

    runs: int
    contained: int
    agreeing: int
    answers: dict[bool | None, int]
    right: dict[bool, int]


def check_verdicts(runs: Iterable[Run], mode: str) -> VerdictCheck:
    """Compare verdicts with test accuracies. Answers are counted for runs whose plain training has finished."""
    runs = [run for run in runs if run["mode"] == mode]
    plain = {_key(run): run["accuracy"] for run in runs if run["method"] == PLAIN}
    check = VerdictCheck(0, 0, 0, {True: 0, False: 0, None: 0}, {True: 0, False: 0})
    for run in runs:
        if run["method"] != AUTO or run.get("verdict") is None:
            continue
        way, helps = run["verdict"]["ways"][run["verdict"]["chosen"]], run["verdict"]["helps"]
        check.runs += 1
        check.contained += way["low"] <= run["accuracy"] <= way["high"]
        check.agreeing += _agree(way, run["accuracy"], _test_rows(run))
        if _key(run) in plain:
            check.answers[helps] += 1
            if helps is not None:
                difference = run["accuracy"] - plain[_key(run)]
                check.right[helps] += difference > 0 if helps else difference < 0
    return check


def _test_rows(run: Run) -> int:
    if "test_rows" in run:
        return run["test_rows"]
    return min(_TEST_ROWS.get(run["task"].split("_")[0], _MAX_TEST_ROWS["finetune"]), _MAX_TEST_ROWS[run["mode"]])


def _agree(way: Mapping[str, float], accuracy: float, rows: int) -> bool:
    """Whether an estimate with its interval and the accuracy on the rows of a test split differ by chance only."""
    low, high = wilson_interval(accuracy, rows, ACCURACY_LEVEL)
    if accuracy > way["accuracy"]:
        return accuracy - way["accuracy"] <= math.hypot(way["high"] - way["accuracy"], accuracy - low)
    return way["accuracy"] - accuracy <= math.hypot(way["accuracy"] - way["low"], high - accuracy)


def _key(run: Run) -> tuple:
    return run["task"], run["trusted"], run["seed"], run.get("steps")


# ---------------------------------------------------------------------- text
def summary(runs: Sequence[Run]) -> str:
    """The tables of all modes with results."""
    return "\n\n".join(mode_summary(runs, mode) for mode in MODES if cells_of(runs, mode))


def means(runs: Sequence[Run], mode: str) -> str:
    """Mean accuracy and regret of each method over all cells of a mode, one line per method."""
    cells = cells_of(runs, mode)
    lines = [
        f"| method | mean accuracy, {len(cells)} cells | mean regret | largest regret |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in methods_of(cells):
        values = [cell.accuracies[name] for cell in cells if name in cell.accuracies]
        regrets = [cell.regret(name) for cell in cells if cell.regret(name) is not None]
        figures = (statistics.mean(values), statistics.mean(regrets), max(regrets))
        shown = f"**`{name}`**" if name == AUTO else f"`{name}`"
        lines.append("| " + " | ".join([shown, *(f"{figure:.3f}" for figure in figures)]) + " |")
    return "\n".join(lines)


def mode_summary(runs: Sequence[Run], mode: str) -> str:
    """Accuracies, their mean, the regret, and the check of the verdicts of one mode."""
    cells = cells_of(runs, mode)
    methods = methods_of(cells)
    seeds = sorted({len(cell.seeds) for cell in cells})
    over = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    lines = [f"**{_TITLES[mode]}** (mean accuracy over {over} seed{'s' * (seeds != [1])}; the best baseline in bold)"]
    lines += ["", _row("task", "trusted rows", *(f"`{name}`" for name in methods))]
    lines += [_row("---", *["---:"] * (len(methods) + 1))]
    for cell in cells:
        lines.append(_row(cell.task, str(cell.trusted), *(_accuracy(cell, name) for name in methods)))
    lines += _mean_lines(cells, methods)
    regrets = {name: [r for cell in cells if (r := cell.regret(name)) is not None] for name in methods}
    lines.append(_row("mean regret", "", *(_points(values, statistics.mean) for values in regrets.values())))
    lines.append(_row("largest regret", "", *(_points(values, max) for values in regrets.values())))
    lines += _regret_lines(cells, mode)
    lines += _cost_lines(runs, mode) if mode == "finetune" else []
    like_training = [run for run in runs if not run["task"].startswith("trec")]
    final = [run for run in like_training if run["method"] != AUTO or run.get("verdict", {}).get("final")]
    lines += _verdict_lines(*(check_verdicts(some, mode) for some in (runs, like_training, final)))
    return "\n".join([*lines, *(_held_out_lines(check_verdicts(runs, "held_out")) if mode == "linear" else [])])


def _mean_lines(cells: Sequence[Cell], methods: Sequence[str]) -> list[str]:
    """Mean accuracies of the methods with all cells and, if others have fewer, of all methods over the same cells."""
    complete = [cell for cell in cells if set(methods) <= cell.accuracies.keys()]
    everywhere = [all(name in cell.accuracies for cell in cells) for name in methods]
    rows = [("mean", cells, everywhere)]
    if not all(everywhere) and complete:
        rows.append((f"mean of the {len(complete)} cells with all methods", complete, [True] * len(methods)))
    return [
        _row(label, "", *(_mean(some, name) if shown else "" for name, shown in zip(methods, which, strict=True)))
        for label, some, which in rows
    ]


def _mean(cells: Sequence[Cell], method: str) -> str:
    return f"{statistics.mean(cell.accuracies[method] for cell in cells):.3f}"


def _regret_lines(cells: Sequence[Cell], mode: str) -> list[str]:
    """The cells in which `auto` is more than one point below the best baseline, and what chance explains of it."""
    found = [(cell, regret) for cell in cells if (regret := cell.regret(AUTO)) is not None]
    beyond = sorted(((cell, regret) for cell, regret in found if round(regret, 4) > 0.01), key=lambda pair: -pair[1])
    if not beyond:
        return []
    named = [
        f"{cell.task} {cell.trusted} ({-100 * regret:.1f} ± {100 * _half_width(cell, mode):.1f})"
        for cell, regret in beyond
    ]
    return [
        "",
        f"`{AUTO}` is more than one point below the best baseline in {len(beyond)} of {len(found)} cells: "
        f"{', '.join(named)}. Behind ± is half the {ACCURACY_LEVEL:.0%} interval that the number of test rows gives "
        "the difference of two models. The best of several baselines also has the most luck.",
    ]


def _half_width(cell: Cell, mode: str) -> float:
    """Of the interval of the difference between `auto` and the best baseline, as if their errors were independent."""
    best = cell.accuracies[AUTO] + (cell.regret(AUTO) or 0.0)
    variance = sum(accuracy * (1 - accuracy) for accuracy in (cell.accuracies[AUTO], best))
    return normal_quantile(ACCURACY_LEVEL) * math.sqrt(variance / _test_rows({"task": cell.task, "mode": mode}))


def _cost_lines(runs: Sequence[Run], mode: str) -> list[str]:
    """Processor time of `auto` compared with plain training of the same cell and seed, on processors with the same
    instructions for bf16. Runs with `timed` false had other programs beside them, which makes them slower."""
    seconds = {
        (run["method"], (_key(run), run.get("bf16", True))): run["processor_seconds"]
        for run in runs
        if run["mode"] == mode and run.get("timed", True)
    }
    ratios = [
        value / seconds[PLAIN, key]
        for (name, key), value in seconds.items()
        if name == AUTO and (PLAIN, key) in seconds
    ]
    if not ratios:
        return []
    return [
        "",
        f"The processor time of `{AUTO}` is {statistics.median(ratios):.2f} times that of plain training "
        f"(median of {len(ratios)} runs, {min(ratios):.2f} to {max(ratios):.2f}).",
    ]


def _verdict_lines(check: VerdictCheck, like_training: VerdictCheck, final: VerdictCheck) -> list[str]:
    if not check.runs:
        return []
    other = ""
    if 0 < like_training.runs < check.runs:
        other = (
            " The test split of TREC is easier than its training split, of which the trusted rows are a part; without "
            f"TREC it is {_out_of(like_training.contained, like_training.runs)} and, with the sampling error, "
            f"{_out_of(like_training.agreeing, like_training.runs)}."
        )
    if 0 < final.runs < like_training.runs:
        other += (
            " With fewer than 50 trusted rows, the verdict is about the linear models, and the network is mostly "
            f"better than these; without such runs it is {_out_of(final.contained, final.runs)}."
        )
    told = {True: "that correction helps", False: "that it does not help"}
    said = [f"{told[answer]} {check.answers[answer]} times (right: {check.right[answer]})" for answer in told]
    return [
        "",
        "The interval of the verdict (level 90%) contains the accuracy on the test split in "
        f"{_out_of(check.contained, check.runs)} runs of `{AUTO}`, and agrees with it, given the sampling error of "
        f"the test split, in {_out_of(check.agreeing, check.runs)}.{other} The verdict says {', '.join(said)}, and "
        f"that it can't be told {check.answers[None]} times.",
    ]


def _held_out_lines(check: VerdictCheck) -> list[str]:
    if not check.runs:
        return []
    return [
        "",
        "With 30% of the training rows held out and used as test rows, of which the trusted rows are a sample, the "
        f"interval contains the accuracy in {_out_of(check.contained, check.runs)} of the same runs and, with the "
        f"sampling error, in {_out_of(check.agreeing, check.runs)}.",
    ]


def _out_of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})"


def _row(*values: str) -> str:
    return f"| {' | '.join(values)} |"


def _accuracy(cell: Cell, method: str) -> str:
    if method not in cell.accuracies:
        return ""
    text = f"{cell.accuracies[method]:.3f}"
    return f"**{text}**" if method not in NOT_BASELINES and cell.regret(method) == 0 else text


def _points(values: list[float], reduce: Any) -> str:
    return f"{reduce(values):.3f}" if values else ""


# ---------------------------------------------------------------------- the figure
_COLORS = {
    AUTO: "#d62728",
    "linear_pool": "#ff9896",
    PLAIN: "#7f7f7f",
    "trusted_only": "#1f77b4",
    "finetune_on_trusted": "#2ca02c",
    "glc_paper": "#c5b0d5",
    "glc": "#9467bd",
    "cleanlab": "#e6a100",
}
_MARKERS = {AUTO: "D", "linear_pool": "d", PLAIN: "x", "trusted_only": "s", "finetune_on_trusted": "^"}


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draw the accuracy of each task and method: one row of panels per mode, one panel per number of trusted rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    modes = {mode: cells for mode in MODES if (cells := cells_of(runs, mode))}
    if not modes:
        raise SystemExit("there are no results to plot")
    by_size = {mode: _by_size(cells) for mode, cells in modes.items()}
    columns = max(len(panels) for panels in by_size.values())
    heights = [0.34 * len({cell.task for cell in cells}) + 0.9 for cells in modes.values()]
    figure, axes = plt.subplots(
        len(modes),
        columns,
        figsize=(3.6 * columns + 1.4, sum(heights) + 0.7),
        squeeze=False,
        sharex="row",
        sharey="row",
        height_ratios=heights,
        layout="constrained",
    )
    handles: dict[str, Any] = {}
    for line, (mode, panels) in zip(axes, by_size.items(), strict=True):
        tasks = list(dict.fromkeys(cell.task for cell in modes[mode]))
        for axis, cells in zip(line, panels, strict=False):
            for method in reversed([name for name in methods_of(cells) if name != ALL_GOLD]):  # `auto` on top
                points = [(c.accuracies[method], tasks.index(c.task)) for c in cells if method in c.accuracies]
                handles[method] = axis.scatter(
                    *zip(*points, strict=True),
                    s=48 if method == AUTO else 30,
                    marker=_MARKERS.get(method, "o"),
                    color=_COLORS.get(method, "#000000"),
                    label=method,
                    zorder=3 if method == AUTO else 2,
                )
            axis.set_yticks(range(len(tasks)), tasks)
            axis.set_ylim(len(tasks) - 0.5, -0.5)
            axis.grid(axis="both", color="#e5e5e5", linewidth=0.8)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
            numbers = sorted({cell.trusted for cell in cells})
            axis.set_title(f"{mode}, {' or '.join(map(str, numbers))} trusted rows", fontsize=10)
        for axis in line[len(panels) :]:
            axis.set_visible(False)
        line[0].set_xlabel("accuracy on the gold labels of the test split", fontsize=9, loc="left")
    ordered = [name for name in METHODS if name in handles]
    figure.legend(
        [handles[name] for name in ordered],
        ordered,
        loc="outside lower center",
        ncols=min(4, 2 * columns),
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _by_size(cells: list[Cell]) -> list[list[Cell]]:
    """The cells with few, more and many trusted rows: tasks with images have other numbers than those with texts."""
    sizes = [range(75), range(75, 200), range(200, 10**9)]
    panels = [[cell for cell in cells if cell.trusted in size] for size in sizes]
    return [panel for panel in panels if panel]
