# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Methods on labels that people, rules or a language model got wrong, judged on gold labels.

The training rows have noisy labels, except some trusted rows, drawn by seed, which have gold ones. Three more tasks
have simulated noise or none. `--mode linear` fits linear models on the features of a pretrained network, `--mode
finetune` trains the network, with the same number of steps for each method. `--mode held_out` fits linear models, too,
and judges them on training rows that are left out, to check the verdict: trusted rows are a sample of these rows, and
may differ from the test rows. Each finished run is one line of the results file and is not repeated.

    python benchmarks/real_noise.py --data <folder>/real --mode linear
    python benchmarks/real_noise.py --data <folder>/real --mode held_out
    python benchmarks/real_noise.py --data <folder>/real --mode finetune --tasks youtube trec --trusted 100 --seeds 0
    python benchmarks/real_noise.py --summary --plot docs/real-noise.png

Regret is the distance of a method's accuracy to that of the best baseline of the cell: of all methods but `auto`, its
linear part, `linear_pool`, and `all_gold`, plain training on the gold labels of all rows: what the model can reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import real_noise_tables
from result_files import RESULTS as FOLDER
from result_files import add_run, make_tasks_parser, read_runs


RESULTS = FOLDER / "real_noise.jsonl"
_METHODS = {
    "linear": (
        "auto",
        "no_correction",
        "trusted_only",
        "finetune_on_trusted",
        "glc_paper",
        "glc",
        "cleanlab",
        "all_gold",
    ),
    "held_out": ("auto", "no_correction"),
    "finetune": ("auto", "finetune_on_trusted", "trusted_only", "no_correction", "glc"),
}
# Rows of the image tasks in finetune mode.
_MAX_IMAGES = 2000


def unfinished(runs: Sequence[dict], methods: Sequence[str], **key: Any) -> list[str]:
    """The methods without a run of this key."""
    finished = {run["method"] for run in runs if key.items() <= run.items()}
    return [method for method in methods if method not in finished]


def jobs(options: Any, tasks: dict[str, Any], runs: Sequence[dict]) -> Iterator[tuple[dict, list[str]]]:
    """The cells that are not finished, with their missing methods: all tasks of a seed and number of trusted rows come
    before the next number. `--trusted` is in the order of the command line."""
    sizes = max(len(task.trusted) for task in tasks.values()) if options.trusted is None else len(options.trusted)
    for seed in options.seeds:
        for position in range(sizes):
            for name, task in tasks.items():
                trusted = (options.trusted or task.trusted)[position]
                key = {"mode": options.mode, "task": name, "trusted": trusted, "seed": seed}
                if options.mode == "finetune":
                    key["steps"] = options.steps
                missing = unfinished(runs, options.methods, **key)
                if missing:
                    yield key, missing


def run_on_same_rows(runs: Sequence[dict], key: dict, method: str, tasks: dict[str, Any]) -> dict | None:
    """The figures of a finished run of another task with the same result, if there is one: fine-tuning on the trusted
    rows only does not see the noisy labels."""
    if method != "trusted_only" or key["mode"] != "finetune":
        return None
    same = {name for name, task in tasks.items() if task.folder == tasks[key["task"]].folder}
    wanted = {**key, "method": method}
    for run in runs:
        if run["task"] in same and all(run.get(name) == value for name, value in wanted.items() if name != "task"):
            return {name: value for name, value in run.items() if name not in wanted}
    return None


def run_linear(options: Any, task: Any, key: dict, methods: list[str]) -> Iterator[tuple[str, dict]]:
    """The figures of one cell with linear models."""
    from real_noise_linear import LinearCell
    from real_noise_tasks import draw_cell, hold_out_rows, load_features, load_source

    source = load_source(options.data, task.folder, task.kind)
    features = load_features(options.data, task.folder, task.kind, options.cache, middle=task.kind == "text")
    more = {}
    if key["mode"] == "held_out":
        source, features = hold_out_rows(source, features, key["seed"])
        more["test_rows"] = len(source.test_labels)
    cell = draw_cell(source, task.noise, key["trusted"], key["seed"])
    for method, figures in LinearCell(cell, features, key["seed"]).run(methods).items():
        yield method, {**figures, **more}


def run_finetune(options: Any, task: Any, key: dict, methods: list[str]) -> Iterator[tuple[str, dict]]:
    """The figures of one cell in finetune mode."""
    from real_noise_finetune import FinetuneCell
    from real_noise_tasks import draw_cell, load_features, load_source

    source = load_source(options.data, task.folder, task.kind)
    most = _MAX_IMAGES if task.kind == "image" else None
    cell = draw_cell(source, task.noise, key["trusted"], key["seed"], most)
    finetune = FinetuneCell(
        cell,
        key["seed"],
        options.steps,
        lambda: load_features(options.data, task.folder, task.kind, options.cache, middle=task.kind == "text"),
    )
    for method in methods:
        yield method, finetune.run(method)


def default_cache() -> str:
    """The folder of the features."""
    import datasets

    return str(Path(datasets.config.HF_DATASETS_CACHE) / "glc_hf_real_noise")


def run_all(options: Any) -> None:
    """Run what is not finished."""
    import torch
    from real_noise_tasks import TASKS

    torch.set_num_threads(options.threads)
    options.cache = options.cache or default_cache()
    names = options.tasks or TASKS
    tasks = {name: TASKS[name] for name in names if options.mode != "finetune" or TASKS[name].kind != "features"}
    options.methods = options.methods or _METHODS[options.mode]
    run = run_finetune if options.mode == "finetune" else run_linear
    for key, methods in jobs(options, tasks, read_runs(RESULTS)):
        found = {name: run_on_same_rows(read_runs(RESULTS), key, name, TASKS) for name in methods}
        for method, figures in found.items():
            if figures is not None:
                add_run(RESULTS, {**key, "method": method, **figures})
        missing = [method for method, figures in found.items() if figures is None]
        for method, figures in run(options, tasks[key["task"]], key, missing):
            add_run(RESULTS, {**key, "method": method, **figures})


def summary() -> str:
    """The tables of the committed results."""
    return real_noise_tables.summary(read_runs(RESULTS))


def means() -> str:
    """The means of the committed results with linear models."""
    return real_noise_tables.means(read_runs(RESULTS), "linear")


def main() -> None:
    parser = make_tasks_parser(
        __doc__, tuple(_METHODS), data="folder of the datasets; the images are in the folder uoft-cs beside it"
    )
    parser.add_argument("--plot", type=Path, help="draw the accuracies and save them here")
    options = parser.parse_args()
    if not options.summary:
        if options.data is None:
            parser.error("--data is needed to run; --summary prints the table of the finished runs")
        run_all(options)
    print(summary())
    if options.plot is not None:
        real_noise_tables.plot(read_runs(RESULTS), options.plot)


if __name__ == "__main__":
    main()
