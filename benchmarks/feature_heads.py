# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The classifier of `cifar10-features` and `cifar100-features`, chosen on held-out rows of the training split.

Four fifths of the training rows train, one fifth tests; the rows of the test split are not read. Each setting is
trained on clean labels and with uniform noise 0.4 on all but the 10 % trusted rows. Each finished setting is one line
of the results file and is not repeated.

    python benchmarks/feature_heads.py --data <folder>
    python benchmarks/feature_heads.py --summary
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import time
from functools import cache
from typing import Any

from result_files import RESULTS as FOLDER
from result_files import add_run, make_runs_parser, read_runs


RESULTS = FOLDER / "feature_heads.jsonl"
METHODS = ("no_correction", "glc", "trusted_only")
TRUSTED, STRENGTHS = 0.1, (0.0, 0.4)
HEADS = [
    {"hidden_size": 0, "learning_rate": 1e-3, "epochs": 10},
    {"hidden_size": 0, "learning_rate": 3e-4, "epochs": 10},
    {"hidden_size": 0, "learning_rate": 3e-3, "epochs": 10},
    {"hidden_size": 0, "learning_rate": 1e-3, "epochs": 5},
    {"hidden_size": 0, "learning_rate": 1e-3, "epochs": 20},
    {"hidden_size": 256, "learning_rate": 1e-3, "epochs": 10},
]
SETTINGS = [
    *(
        {"preset": "cifar10-features", "image_size": size, **head}
        for size, head in itertools.product((96, 160), HEADS)
    ),
    *({"preset": "cifar100-features", "image_size": 160, **head} for head in HEADS),
]


@cache
def _held_out(preset: str, image_size: int, folder: str | None) -> Any:
    """The prepared data, with a fifth of the training rows in place of the test rows."""
    from glc_hf.experiments.presets import get_preset

    data = get_preset(preset, image_size=image_size).prepare(folder)
    parts = data.train.train_test_split(0.2, seed=0)
    return dataclasses.replace(data, train=parts["train"], test=parts["test"])


def run(setting: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """Train a setting, all strengths at once, and return its errors on the held-out rows."""
    from glc_hf.experiments.jobs import arguments, noisy_rows
    from glc_hf.experiments.presets import get_preset
    from glc_hf.experiments.replicas.stacked_curve import StackedCurve

    names = {name: setting[name] for name in ("image_size", "hidden_size")}
    preset = get_preset(setting["preset"], **names)
    preset.learning_rate, preset.num_train_epochs = setting["learning_rate"], setting["epochs"]
    data = _held_out(setting["preset"], setting["image_size"], folder)
    rows = [noisy_rows(preset, data, "uniform", TRUSTED, strength, 0) for strength in STRENGTHS]
    start = time.process_time()
    with tempfile.TemporaryDirectory() as output:
        make_args = cache(lambda method: arguments(preset, method, 0, output))
        curve = StackedCurve(preset, data, [one.train for one in rows], [one.matrix for one in rows], make_args, 0)
        errors = {result.method: [round(error, 3) for error in result.errors] for result in curve.run(METHODS)}
    return {**setting, "errors": errors, "processor_seconds": round(time.process_time() - start, 1)}


def summary() -> str:
    """Table of the errors on held-out rows."""
    lines = [
        "| dataset | pixels | hidden units | learning rate | epochs | clean labels | noise 0.4 | noise 0.4, `glc` "
        "| trusted rows alone |",
        "| --- |" + " ---: |" * 8,
    ]
    for entry in read_runs(RESULTS):
        errors = entry["errors"]
        plain, glc, (alone, *_) = (errors[method] for method in METHODS)
        name = entry["preset"].removesuffix("-features")
        lines.append(
            f"| {name} | {entry['image_size']} | {entry['hidden_size'] or 'none'} | {entry['learning_rate']:g} | "
            f"{entry['epochs']} | {plain[0]:.1f} | {plain[1]:.1f} | {glc[1]:.1f} | {alone:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the settings that the results file does not have, then print the table."""
    parser = make_runs_parser(__doc__)
    parser.add_argument("--data", help="folder of the datasets, named as on the Hub")
    parser.add_argument("--sizes", nargs="+", type=int, help="only these image sizes")
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        known = [{name: entry[name] for name in SETTINGS[0]} for entry in read_runs(RESULTS)]
        for setting in SETTINGS:
            if setting not in known and setting["image_size"] in (options.sizes or (96, 160)):
                add_run(RESULTS, run(setting, options.data))
    print(summary())


if __name__ == "__main__":
    main()
