# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Labels of several sources: the votes of all of them against one label per row, judged on gold labels.

Rules, people and a language model voted on the training rows; some rows, drawn by seed, are trusted. `--mode linear`
fits linear models on the features of a pretrained network, `--mode finetune` trains the network, with the same number
of steps for each method. Each finished run is one line of the results file and is not repeated.

    python benchmarks/sources.py --data <folder>/real --mode linear
    python benchmarks/sources.py --data <folder>/real --mode finetune --tasks trec --trusted 100
    python benchmarks/sources.py --summary

- `auto`: the votes of all sources.
- `majority_auto`, `majority_glc`, `majority`: `auto`, `glc` and plain training on the majority vote.
- `dawid_skene`: plain training on the labels of crowd-kit's Dawid-Skene model. Here and above trusted rows have their
  gold label.
- `trusted_only`: trusted rows only.
- `all_gold`: plain training on the gold labels of all rows, which no method has: what the model can reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from real_noise import default_cache, unfinished
from result_files import RESULTS as FOLDER
from result_files import add_run, make_tasks_parser, read_runs


RESULTS = FOLDER / "sources.jsonl"
ALL_GOLD = "all_gold"
METHODS = ("auto", "majority_auto", "majority_glc", "majority", "dawid_skene", "trusted_only", ALL_GOLD)
# Methods that need no trusted rows.
_WITHOUT_TRUSTED = ("auto", "majority", "dawid_skene", ALL_GOLD)
# For each method: where the labels come from, and the method on these labels.
_PARTS = {
    "auto": ("votes", "auto"),
    "majority_auto": ("majority", "auto"),
    "majority_glc": ("majority", "glc"),
    "majority": ("majority", "no_correction"),
    "dawid_skene": ("dawid_skene", "no_correction"),
    "trusted_only": ("majority", "trusted_only"),
    ALL_GOLD: ("gold", "no_correction"),
}
_TRUSTED = (30, 100, 300)


@dataclass(frozen=True)
class VotedTask:
    """
    A dataset with votes.

    Args:
        folder (`str`): In the data folder.
        more (`tuple[str, ...]`, *optional*): Columns of further sources.
        kind (`str`, *optional*, defaults to `"text"`): `"text"`, or `"features"` (linear mode only).
        trusted (`tuple[int, ...]`, *optional*): Numbers of trusted rows.
    """

    folder: str
    more: tuple[str, ...] = ()
    kind: str = "text"
    trusted: tuple[int, ...] = _TRUSTED


TASKS = {
    "labelme": VotedTask("crowd-labelme", kind="features", trusted=(0, *_TRUSTED)),
    "trec": VotedTask("wrench-trec"),
    "youtube": VotedTask("wrench-youtube"),
    "semeval": VotedTask("wrench-semeval", more=("llm_label",)),
    "crowd": VotedTask("crowd-sentiment"),
}
TITLES = {
    "labelme": "LabelMe, 59 people",
    "trec": "TREC, 68 rules",
    "youtube": "YouTube, 10 rules",
    "semeval": "SemEval, 164 rules and a language model",
    "crowd": "sentiment, 203 people",
}


# ---------------------------------------------------------------------- labels
@cache
def dense_votes(data: str, task: VotedTask) -> np.ndarray:
    """The votes of all sources, `(rows, S)`; -1: no vote."""
    from real_noise_tasks import load_source

    columns = load_source(data, task.folder, task.kind).columns
    return np.concatenate([columns["votes"], *(columns[name][:, None] for name in task.more)], axis=1)


@cache
def labels_of(data: str, task: VotedTask, way: str, num_labels: int) -> np.ndarray:
    """One label per row; -1 for rows without votes."""
    from real_noise_tasks import load_source

    from glc_hf.labels.label_batch import Votes
    from glc_hf.labels.vote_columns import majority_vote

    if way == "gold":
        return load_source(data, task.folder, task.kind).columns["label"]
    votes = Votes.from_dense(dense_votes(data, task))
    if way != "dawid_skene":
        return majority_vote(votes, num_labels)
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    answers = pd.DataFrame({"task": votes.items, "worker": votes.sources, "label": votes.labels})
    found = DawidSkene(n_iter=100).fit_predict(answers)
    labels = np.full(len(votes), -1)
    labels[found.index.to_numpy()] = found.to_numpy()
    return labels


def voted_labels(votes: Any, num_labels: int, trusted: np.ndarray, gold: np.ndarray, seed: int) -> np.ndarray:
    """The label that the votes make most probable; -1 for rows without votes."""
    from glc_hf.correction.sources import fit_sources

    model = fit_sources(votes, num_labels, trusted, gold[trusted], seed=seed)
    return np.where(np.diff(votes.offsets) > 0, model.posterior(votes).argmax(axis=1), -1)


# ---------------------------------------------------------------------- runs
def jobs(options: Any, runs: Sequence[dict]) -> Iterator[tuple[dict, list[str]]]:
    """The cells that are not finished, with their missing methods."""
    for seed in options.seeds:
        for name in options.tasks or TASKS:
            task = TASKS[name]
            if options.mode == "finetune" and task.kind == "features":
                continue
            for trusted in task.trusted if options.trusted is None else options.trusted:
                key = {"mode": options.mode, "task": name, "trusted": trusted, "seed": seed}
                if options.mode == "finetune":
                    key["steps"] = options.steps
                wanted = [method for method in options.methods if trusted or method in _WITHOUT_TRUSTED]
                missing = unfinished(runs, wanted, **key)
                if missing:
                    yield key, missing


def run_cell(options: Any, key: dict, methods: Sequence[str]) -> Iterator[tuple[str, dict]]:
    """The figures of one cell, method by method."""
    from real_noise_tasks import draw_cell, load_features, load_source

    from glc_hf.labels.label_batch import Votes

    task, trusted, seed = TASKS[key["task"]], key["trusted"], key["seed"]
    source = load_source(options.data, task.folder, task.kind)
    votes = Votes.from_dense(dense_votes(options.data, task))
    chosen = draw_cell(source, lambda columns, seed: columns["label"], trusted, seed).trusted
    features = partial(load_features, options.data, task.folder, task.kind, options.cache, middle=True)

    def cell_of(way: str) -> Any:
        if way == "votes":
            labels = voted_labels(votes, source.num_labels, chosen, source.columns["label"], seed)
        else:
            labels = labels_of(options.data, task, way, source.num_labels)
        return draw_cell(source, lambda columns, seed: labels, trusted, seed)

    cells: dict[str, Any] = {}
    for method in methods:
        way, name = _PARTS[method]
        given = votes if way == "votes" else None
        if options.mode == "linear":
            from real_noise_linear import LinearCell

            if way not in cells:
                cells[way] = LinearCell(cell_of(way), features(), seed, given)
            name = "votes_only" if way == "votes" and not trusted else name
            yield method, cells[way].run([name])[name]
        else:
            from real_noise_finetune import FinetuneCell

            yield method, FinetuneCell(cell_of(way), seed, options.steps, features, given).run(name)


def run_of_real_noise(key: dict, method: str) -> dict | None:
    """The figures of the same run in the results of `real_noise.py`: fine-tuning on the trusted rows only sees no
    votes."""
    import real_noise
    from real_noise_tasks import TASKS as NOISES

    return real_noise.run_on_same_rows(read_runs(real_noise.RESULTS), key, method, {**NOISES, **TASKS})


def run_all(options: Any) -> None:
    """Run what is not finished."""
    import torch

    torch.set_num_threads(options.threads)
    options.cache = options.cache or default_cache()
    options.methods = options.methods or METHODS
    for key, methods in jobs(options, read_runs(RESULTS)):
        found = {method: run_of_real_noise(key, method) for method in methods}
        for method, figures in found.items():
            if figures is not None:
                add_run(RESULTS, {**key, "method": method, **figures})
        missing = [method for method, figures in found.items() if figures is None]
        for method, figures in run_cell(options, key, missing):
            add_run(RESULTS, {**key, "method": method, **figures})


# ---------------------------------------------------------------------- tables
def summary() -> str:
    """The tables of the committed results."""
    runs = read_runs(RESULTS)
    return "\n\n".join(_table(runs, mode) for mode in ("linear", "finetune") if any(r["mode"] == mode for r in runs))


def _table(runs: Sequence[dict], mode: str) -> str:
    found: dict[tuple, dict[str, dict[int, float]]] = {}
    for run in runs:
        if run["mode"] == mode:
            cell = found.setdefault((run["task"], run["trusted"]), {})
            cell.setdefault(run["method"], {})[run["seed"]] = run["accuracy"]
    lines, gains, most = [], [], []
    for cell in sorted(found, key=lambda cell: (list(TASKS).index(cell[0]), cell[1])):
        accuracies = found[cell]
        means = {method: float(np.mean(list(by_seed.values()))) for method, by_seed in accuracies.items()}
        others = [method for method in means if method not in ("auto", ALL_GOLD)]
        best = max(others, key=means.__getitem__, default=None)
        texts = [f"{means[method]:.3f}" if method in means else "" for method in METHODS]
        texts = [f"**{text}**" if method == best else text for method, text in zip(METHODS, texts, strict=True)]
        gain = None
        if "auto" in means and others:
            gain = min(_difference(accuracies["auto"], accuracies[method]) for method in others)
            gains.append(gain)
            if ALL_GOLD in means:
                most.append(min(_difference(accuracies[ALL_GOLD], accuracies[method]) for method in others))
        seeds = sorted({len(by_seed) for by_seed in accuracies.values()})
        points = "" if gain is None else f"{100 * gain:+.1f}"
        lines.append(
            [TITLES[cell[0]], str(cell[1]), *texts, points, " to ".join(map(str, seeds[:1] + seeds[1:][-1:]))]
        )
    heads = ["sources", "trusted rows", *(f"`{method}`" for method in METHODS), "points", "seeds"]
    title = {
        "linear": "**Linear models on the features of the pretrained network**",
        "finetune": "**Fine-tuning of the pretrained network**",
    }[mode]
    note = (
        "mean accuracy over the seeds; the best of the others in bold; points of `auto` above each of the others, on "
        "the seeds that both have: the smallest difference"
    )
    mean = ""
    if gains:
        mean = f"Over these cells, `auto` is {100 * float(np.mean(gains)):+.1f} points from the best of the others."
    if most:
        mean += f" With gold labels for all rows, it is {100 * float(np.mean(most)):+.1f} points ({len(most)} cells)."
    rules = ["---", *("---:" for _ in heads[1:])]
    table = "\n".join("| " + " | ".join(line) + " |" for line in (heads, rules, *lines))
    return f"{title} ({note})\n\n{table}\n\n{mean}"


def _difference(one: dict[int, float], other: dict[int, float]) -> float:
    """Mean difference of two methods over the seeds that both have."""
    seeds = one.keys() & other.keys()
    return float(np.mean([one[seed] - other[seed] for seed in seeds])) if seeds else float("inf")


def main() -> None:
    parser = make_tasks_parser(__doc__, tasks=TASKS)
    options = parser.parse_args()
    if not options.summary:
        if options.data is None:
            parser.error("--data is needed to run; --summary prints the table of the finished runs")
        run_all(options)
    print(summary())


if __name__ == "__main__":
    main()
