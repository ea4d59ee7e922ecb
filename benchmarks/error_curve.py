# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Time of an error curve of Gold Loss Correction, eleven strengths: stacked replicas and a plain PyTorch loop.

The loop is the algorithm of the paper, one strength after the other, with the network, optimizer and batches of the
preset, and in the second stage two forward passes per batch, for trusted and untrusted rows. Both use the same rows,
flags, noisy labels and initial weights, and are timed from the datasets to the test error.

On one thread they run alternately, so that other load on the machine affects both. Then the replicas are trained once
more with `--threads`. All times are processor time. That of several threads is the time that the longest of them
takes, in each stage, plus the time of everything else: the elapsed time on a machine with that many free cores. The
elapsed time is in the result too.

    python benchmarks/error_curve.py --data-root <folder> [--preset mnist] [--epochs 10] [--noise flip] [--threads 2]
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from result_files import RESULTS, make_parser
from timing import SteppedJob, seconds_of


RESULT = RESULTS / "error_curve.json"
NAMES = {"mnist": "MNIST", "sst": "SST", "twitter": "Twitter"}


def logits_of(model, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The logits of one label per row. Rows of the window tagger have their label in the middle, so only the middle
    word is computed."""
    if not hasattr(model, "word_vectors"):
        return model(**inputs).logits
    words = F.embedding(inputs["input_ids"], model.word_vectors) * inputs["attention_mask"].unsqueeze(-1)
    hidden = words.flatten(1)
    for layer in model.layers:
        hidden = getattr(F, model.config.hidden_act)(layer(hidden))
    return model.classifier(hidden)


def plain_run(model, preset, inputs, labels, trusted, test, epochs: int, seed: int) -> float:
    """The percent error of one run of the plain loop."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    untrusted, classes = (~trusted).nonzero().squeeze(1), model.config.num_labels
    generator = torch.Generator().manual_seed(seed)

    def logits(rows: torch.Tensor) -> torch.Tensor:
        return logits_of(model, {name: values[rows] for name, values in inputs.items()})

    def new_optimizer() -> torch.optim.Optimizer:
        cls, settings = preset.optimizer()
        groups = defaultdict(list)
        for name, parameter in model.named_parameters():
            groups[preset.weight_decay if preset.decays(name) else 0.0].append(parameter)
        return cls([{"params": chosen, "weight_decay": decay} for decay, chosen in groups.items()], **settings)

    def batches(rows: torch.Tensor):
        for _ in range(epochs):
            yield from rows[torch.randperm(len(rows), generator=generator)].split(preset.batch_size)

    optimizer = new_optimizer()
    for batch in batches(untrusted):
        optimizer.zero_grad()
        F.cross_entropy(logits(batch), labels[batch]).backward()
        optimizer.step()
    gold = trusted.nonzero().squeeze(1)
    with torch.no_grad():
        probabilities = logits(gold).softmax(dim=1)
        matrix = torch.full((classes, classes), 1 / classes)
        for label in range(classes):
            chosen = labels[gold] == label
            if chosen.any():
                matrix[label] = probabilities[chosen].mean(dim=0)
    model.load_state_dict(start)
    optimizer = new_optimizer()
    for batch in batches(torch.arange(len(labels))):
        flags = trusted[batch]
        loss = 0.0
        if flags.any():
            loss = F.cross_entropy(logits(batch[flags]), labels[batch[flags]], reduction="sum")
        if (~flags).any():
            probs = logits(batch[~flags]).softmax(dim=1)
            likelihood = (probs @ matrix).gather(1, labels[batch[~flags]].unsqueeze(1))
            loss = loss - likelihood.log().sum()
        optimizer.zero_grad()
        (loss / len(batch)).backward()
        optimizer.step()
    test_inputs, test_labels = test
    with torch.no_grad():
        parts = zip(*(values.split(1000) for values in test_inputs.values()), strict=True)
        predicted = [logits_of(model, dict(zip(test_inputs, part, strict=True))).argmax(dim=1) for part in parts]
    return 100.0 * (torch.cat(predicted) != test_labels).double().mean().item()


class LongestThreads:
    """
    Processor time of a job whose stages are trained in several threads, if each had a core of its own.

    Args:
        training (`module`): The module whose `train_stage` the threads call.
    """

    def __init__(self, training: Any) -> None:
        self.original, self.lock = training.train_stage, Lock()
        self.training, self.stages = training, defaultdict(list)

    def __enter__(self) -> LongestThreads:
        self.training.train_stage = self._timed
        self._began = time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.training.train_stage = self.original
        saved = sum(sum(seconds) - max(seconds) for seconds in self.stages.values())
        self.seconds = time.process_time() - self._began - saved

    def _timed(self, network, inputs, loss, rows, *others) -> None:
        began = time.thread_time()
        self.original(network, inputs, loss, rows, *others)
        with self.lock:
            self.stages[len(rows)].append(time.thread_time() - began)  # stages have different numbers of rows


def summary() -> str:
    """The results in sentences, one per preset."""
    if not RESULT.exists():
        return "Not measured yet."
    sentences = []
    for name, result in json.loads(RESULT.read_text(encoding="utf-8")).items():
        epochs = f"{result['epochs']} + {result['epochs']} epochs"
        how = f"{result['noise']} noise, {result['trusted']:.1%} trusted, {len(result['strengths'])} strengths"
        sentences.append(
            f"The error curve of GLC on {NAMES[name]} ({how}, {epochs}) takes {result['stacked_seconds']:.0f} s of "
            f"processor time on one thread, and {result['stacked_seconds_on_threads']:.0f} s on {result['threads']}. "
            f"A plain PyTorch loop takes {result['plain_seconds']:.0f} s on one thread, "
            f"**{result['times_faster']:.1f} times** and **{result['times_faster_on_threads']:.1f} times** as long. "
            f"The areas under the curves are {result['stacked_area']:.2f}, {result['stacked_area_on_threads']:.2f} "
            f"and {result['plain_area']:.2f}."
        )
    return "\n".join([*(f"- {one}" for one in sentences), "", "(`python benchmarks/error_curve.py`)"])


def main() -> None:
    from glc_hf.experiments.curves import area_under_error_curve
    from glc_hf.experiments.jobs import arguments, noisy_rows
    from glc_hf.experiments.presets import get_preset
    from glc_hf.experiments.replicas import stacked_curve
    from glc_hf.experiments.replicas.stacked_curve import StackedCurve

    parser = make_parser(__doc__)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--preset", default="mnist", choices=NAMES)
    parser.add_argument("--noise", default="flip")
    parser.add_argument("--trusted", type=float, default=None, help="fraction (default: the preset's smallest)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=None, help="default: the preset's")
    parser.add_argument("--strengths", type=float, nargs="+", default=[step / 10 for step in range(11)])
    parser.add_argument("--threads", type=int, default=2, help="threads of the second training of the replicas")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)

    preset = get_preset(options.preset)
    data = preset.prepare(options.data_root)
    trusted_share = preset.trusted[0] if options.trusted is None else options.trusted
    epochs = int(preset.num_train_epochs) if options.epochs is None else options.epochs
    runs = [
        noisy_rows(preset, data, options.noise, trusted_share, strength, options.seed)
        for strength in options.strengths
    ]
    test = preset.tensors(data.test)
    trusted = runs[0].train.with_format("torch")["trusted"][:]

    with tempfile.TemporaryDirectory() as folder:

        def new_curve(threads: int) -> StackedCurve:
            return StackedCurve(
                preset,
                data,
                [run.train for run in runs],
                [run.matrix for run in runs],
                lambda method: arguments(preset, method, options.seed, folder, num_train_epochs=epochs),
                options.seed,
                threads=threads,
            )

        began = time.process_time()
        curve = new_curve(1)
        setup_seconds = time.process_time() - began
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
                stacked_seconds += seconds_of(stacked)
            began = time.process_time()
            inputs, labels = preset.tensors(run.train)
            model = preset.make_model(data, options.seed)
            plain_errors.append(plain_run(model, preset, inputs, labels, trusted, test, epochs, options.seed))
            plain_seconds += time.process_time() - began
            print(f"strength {options.strengths[len(plain_errors) - 1]}: plain {plain_errors[-1]:.2f} %", flush=True)
        until = math.inf
        stacked_seconds += seconds_of(stacked.finish)
        stacked_errors = stacked.result
        elapsed = time.perf_counter()
        with LongestThreads(stacked_curve) as longest:
            threaded_errors = next(new_curve(options.threads).run(["glc"])).errors
        elapsed = time.perf_counter() - elapsed
    result = {
        "noise": options.noise,
        "trusted": trusted_share,
        "seed": options.seed,
        "epochs": epochs,
        "threads": options.threads,
        "strengths": options.strengths,
        "plain_seconds": round(plain_seconds, 1),
        "stacked_seconds": round(stacked_seconds, 1),
        "of_these_making_ready": round(setup_seconds, 1),
        "times_faster": round(plain_seconds / stacked_seconds, 2),
        "stacked_seconds_on_threads": round(longest.seconds, 1),
        "elapsed_seconds_on_threads": round(elapsed, 1),
        "times_faster_on_threads": round(plain_seconds / longest.seconds, 2),
        "plain_errors": [round(error, 2) for error in plain_errors],
        "stacked_errors": [round(error, 2) for error in stacked_errors],
        "stacked_errors_on_threads": [round(error, 2) for error in threaded_errors],
        "plain_area": round(area_under_error_curve(plain_errors, options.strengths), 3),
        "stacked_area": round(area_under_error_curve(stacked_errors, options.strengths), 3),
        "stacked_area_on_threads": round(area_under_error_curve(threaded_errors, options.strengths), 3),
    }
    known = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    results = {name: result if name == options.preset else known.get(name) for name in NAMES}
    results = {name: one for name, one in results.items() if one is not None}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
