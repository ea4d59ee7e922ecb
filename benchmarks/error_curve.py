# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Time of the MNIST error curve of Gold Loss Correction, eleven strengths: stacked replicas and a plain PyTorch loop.

The loop is the algorithm of the paper, one strength after the other: 784-128-128-10, batches of 32, Adam, 10 + 10
epochs, and in the second stage two forward passes per batch, for trusted and untrusted rows. Both use the same rows,
flags, noisy labels and initial weights on one thread, and are timed from the datasets to the test error. They run
alternately, so that other load on the machine affects both.

    python benchmarks/error_curve.py --data-root <folder> [--epochs 10] [--noise flip] [--trusted 0.001]
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from result_files import RESULTS, make_parser
from timing import SteppedJob, seconds_of


RESULT = RESULTS / "error_curve.json"


def plain_run(model, images, labels, trusted, test_images, test_labels, epochs: int, seed: int) -> float:
    """The percent error of one run of the plain loop."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    untrusted = (~trusted).nonzero().squeeze(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in untrusted[torch.randperm(len(untrusted), generator=generator)].split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]).logits, labels[batch]).backward()
            optimizer.step()
    gold = trusted.nonzero().squeeze(1)
    with torch.no_grad():
        probabilities = model(images[gold]).logits.softmax(dim=1)
        matrix = torch.full((10, 10), 0.1)
        for label in range(10):
            chosen = labels[gold] == label
            if chosen.any():
                matrix[label] = probabilities[chosen].mean(dim=0)
    model.load_state_dict(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=generator).split(32):
            flags = trusted[batch]
            loss = 0.0
            if flags.any():
                loss = F.cross_entropy(model(images[batch[flags]]).logits, labels[batch[flags]], reduction="sum")
            if (~flags).any():
                probs = model(images[batch[~flags]]).logits.softmax(dim=1)
                likelihood = (probs @ matrix).gather(1, labels[batch[~flags]].unsqueeze(1))
                loss = loss - likelihood.log().sum()
            optimizer.zero_grad()
            (loss / len(batch)).backward()
            optimizer.step()
    with torch.no_grad():
        wrong = torch.cat([model(part).logits.argmax(dim=1) for part in test_images.split(1000)]) != test_labels
    return 100.0 * wrong.double().mean().item()


def summary() -> str:
    """The result as a sentence."""
    if not RESULT.exists():
        return "Not measured yet."
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    epochs = f"{result['epochs']} + {result['epochs']} epochs"
    how = f"{result['noise']} noise, {result['trusted']:.1%} trusted, {len(result['strengths'])} strengths, {epochs}"
    return (
        f"The error curve of GLC on MNIST ({how}) takes {result['stacked_seconds']:.0f} s on one thread. A plain "
        f"PyTorch loop takes {result['plain_seconds']:.0f} s, **{result['times_faster']:.1f} times** as long. The "
        f"areas under the two curves are {result['stacked_area']:.2f} and {result['plain_area']:.2f} "
        "(`python benchmarks/error_curve.py`)."
    )


def main() -> None:
    from glc_hf.experiments.curves import area_under_error_curve
    from glc_hf.experiments.jobs import arguments, noisy_rows
    from glc_hf.experiments.presets import get_preset
    from glc_hf.experiments.replicas.stacked_curve import StackedCurve

    parser = make_parser(__doc__)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--noise", default="flip")
    parser.add_argument("--trusted", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--strengths", type=float, nargs="+", default=[step / 10 for step in range(11)])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    preset = get_preset("mnist")
    data = preset.prepare(options.data_root)
    runs = [
        noisy_rows(preset, data, options.noise, options.trusted, strength, options.seed)
        for strength in options.strengths
    ]
    test = preset.tensors(data.test)
    trusted = runs[0].train.with_format("torch")["trusted"][:]

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        curve = StackedCurve(
            preset,
            data,
            [run.train for run in runs],
            [run.matrix for run in runs],
            lambda method: arguments(preset, method, options.seed, folder, num_train_epochs=options.epochs),
            options.seed,
        )
        setup_seconds = time.perf_counter() - began
        until = 0.0  # the share of the stacked training at which it pauses

        def stacked_errors_of(pause):
            def tick(stages: float) -> None:
                if stages / 2 >= until:  # two stages
                    pause()

            curve.tick = tick
            return next(curve.run(["glc"])).errors

        stacked, stacked_seconds = SteppedJob(stacked_errors_of), setup_seconds
        plain_errors, plain_seconds = [], 0.0
        for run in runs:
            # One turn of the stacked training before each run of the loop.
            until = len(plain_errors) / len(runs)
            if not stacked.finished:
                stacked_seconds += seconds_of(stacked, time.perf_counter)
            began = time.perf_counter()
            inputs, labels = preset.tensors(run.train)
            model = preset.make_model(data, options.seed)
            plain_errors.append(
                plain_run(
                    model, inputs["pixel_values"], labels, trusted, test[0]["pixel_values"], test[1],
                    options.epochs, options.seed,
                )
            )  # fmt: skip
            plain_seconds += time.perf_counter() - began
            print(f"strength {options.strengths[len(plain_errors) - 1]}: plain {plain_errors[-1]:.2f} %", flush=True)
        until = math.inf
        stacked_seconds += seconds_of(stacked.finish, time.perf_counter)
        stacked_errors = stacked.result
    result = {
        "noise": options.noise,
        "trusted": options.trusted,
        "seed": options.seed,
        "epochs": options.epochs,
        "threads": options.threads,
        "strengths": options.strengths,
        "plain_seconds": round(plain_seconds, 1),
        "stacked_seconds": round(stacked_seconds, 1),
        "of_these_making_ready": round(setup_seconds, 1),
        "times_faster": round(plain_seconds / stacked_seconds, 2),
        "plain_errors": [round(error, 2) for error in plain_errors],
        "stacked_errors": [round(error, 2) for error in stacked_errors],
        "plain_area": round(area_under_error_curve(plain_errors, options.strengths), 3),
        "stacked_area": round(area_under_error_curve(stacked_errors, options.strengths), 3),
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
