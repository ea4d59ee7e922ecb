# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The MNIST error curve of Gold Loss Correction, eleven strengths: stacked replicas against a plain PyTorch loop.

The loop is the algorithm as it stands in the paper, one cell after the other: 784-128-128-10, batches of 32, Adam,
10 + 10 epochs, and in the second stage two forward passes a batch, one for trusted rows and one for the others. Both
take the same rows, flags, noisy labels and initial weights, on one thread, and are timed from the datasets to the test
error; strengths are timed in turns, so that what else the machine does meets both.

    python benchmarks/error_curve.py --data-root <folder> [--epochs 10] [--noise flip] [--trusted 0.001]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F


RESULT = Path(__file__).parent / "results" / "error_curve.json"


def plain_cell(model, images, labels, trusted, test_images, test_labels, epochs: int, seed: int) -> float:
    """One cell by a plain loop; the percent error."""
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
                likely = (probs @ matrix).gather(1, labels[batch[~flags]].unsqueeze(1))
                loss = loss - likely.log().sum()
            optimizer.zero_grad()
            (loss / len(batch)).backward()
            optimizer.step()
    with torch.no_grad():
        wrong = torch.cat([model(part).logits.argmax(dim=1) for part in test_images.split(1000)]) != test_labels
    return 100.0 * wrong.double().mean().item()


def summary() -> str:
    """The measured result in a sentence."""
    if not RESULT.exists():
        return "Not measured yet."
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    epochs = f"{found['epochs']} + {found['epochs']} epochs"
    how = f"{found['noise']} noise, {found['trusted']:.1%} trusted, {len(found['strengths'])} strengths, {epochs}"
    return (
        f"The curve of GLC on MNIST ({how}) takes {found['stacked_seconds']:.0f} s on one thread, and a plain PyTorch "
        f"loop {found['plain_seconds']:.0f} s: **{found['times_faster']:.1f} times** as long. The areas under the two "
        f"curves are {found['stacked_area']:.2f} and {found['plain_area']:.2f} (`python benchmarks/error_curve.py`)."
    )


def main() -> None:
    """Times both and writes the result."""
    from glc_hf.experiments.curves import area_under_error_curve
    from glc_hf.experiments.jobs import arguments, noisy_rows
    from glc_hf.experiments.presets import get_preset
    from glc_hf.experiments.replicas.stacked_curve import StackedCurve

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    cells = [
        noisy_rows(preset, data, options.noise, options.trusted, strength, options.seed)
        for strength in options.strengths
    ]
    test = preset.tensors(data.test)
    trusted = cells[0].train.with_format("torch")["trusted"][:]

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        curve = StackedCurve(
            preset,
            data,
            [cell.train for cell in cells],
            [cell.matrix for cell in cells],
            lambda method: arguments(preset, method, options.seed, folder, num_train_epochs=options.epochs),
            options.seed,
        )
        making_ready = time.perf_counter() - began
        stacked = Turns(lambda tick: setattr(curve, "tick", tick), lambda: next(curve.run(["glc"])).errors)
        plain_errors, plain_seconds = [], 0.0
        for cell in cells:
            # As many turns of the stacked training as there are cells, one before each cell.
            stacked.go_on(len(plain_errors) / len(cells))
            began = time.perf_counter()
            inputs, labels = preset.tensors(cell.train)
            model = preset.make_model(data, options.seed)
            plain_errors.append(
                plain_cell(
                    model, inputs["pixel_values"], labels, trusted, test[0]["pixel_values"], test[1],
                    options.epochs, options.seed,
                )
            )  # fmt: skip
            plain_seconds += time.perf_counter() - began
            print(f"strength {options.strengths[len(plain_errors) - 1]}: plain {plain_errors[-1]:.2f} %", flush=True)
        stacked_errors, stacked_seconds = stacked.finish()
        stacked_seconds += making_ready
    result = {
        "noise": options.noise,
        "trusted": options.trusted,
        "seed": options.seed,
        "epochs": options.epochs,
        "threads": options.threads,
        "strengths": options.strengths,
        "plain_seconds": round(plain_seconds, 1),
        "stacked_seconds": round(stacked_seconds, 1),
        "of_these_making_ready": round(making_ready, 1),
        "times_faster": round(plain_seconds / stacked_seconds, 2),
        "plain_errors": [round(error, 2) for error in plain_errors],
        "stacked_errors": [round(error, 2) for error in stacked_errors],
        "plain_area": round(area_under_error_curve(plain_errors, options.strengths), 3),
        "stacked_area": round(area_under_error_curve(stacked_errors, options.strengths), 3),
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


class Turns:
    """The stacked training in a thread of its own that runs only when it is its turn; its turns are timed."""

    def __init__(self, set_tick, run) -> None:
        import threading

        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._until, self._seconds, self._result = 0.0, 0.0, None
        set_tick(self._tick)

        def work() -> None:
            self._mine.acquire()
            self._result = run()
            self._until = float("inf")
            self._theirs.release()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def _tick(self, stages: float) -> None:
        if stages / 2 >= self._until:  # two stages
            self._theirs.release()
            self._mine.acquire()

    def _turn(self, until: float) -> None:
        if self._until == float("inf"):
            return
        self._until = until
        began = time.perf_counter()
        self._mine.release()
        self._theirs.acquire()
        self._seconds += time.perf_counter() - began

    def go_on(self, share: float) -> None:
        """Runs it to this share of its work."""
        self._turn(share)

    def finish(self):
        """Runs it to its end; what it gave, and the seconds of all its turns."""
        self._turn(float("inf"))
        self._thread.join()
        return self._result, self._seconds


if __name__ == "__main__":
    main()
