# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Time of the corrected cross-entropy: forward and backward on one CPU thread, compared with PyTorch's cross-entropy and
with the authors' formula.

    python benchmarks/corrected_loss.py

The corrected loss uses compiled C code; "PyTorch alone" is what it does where there is no compiler. The candidates run
alternately. The authors' formula reads the whole matrix, which evicts the others from the cache. So
it only runs after every twenty turns, together with cross-entropy, followed by turns that don't count.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from result_files import RESULTS, make_parser, write_result
from timing import describe, measured, ratios, spread, take_turns
from torch import Tensor

from glc_hf import CorruptionMatrix, corrected_cross_entropy
from glc_hf.correction import likelihood
from glc_hf.correction.compiled.loss_kernel import loss_kernel


# (rows, classes, turns, target ratio to cross-entropy)
SIZES = [(256, 10, 2000, 1.5), (256, 100, 1500, 1.5), (256, 1000, 400, 1.2), (64, 10000, 160, 1.15)]
TRUSTED_SHARE = 0.1
TURNS_BETWEEN_AUTHORS = 20


def authors_formula(logits: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """-log(clamp((softmax @ C).gather(y))): a product with the whole matrix, and an epsilon to avoid log 0."""
    noisy = torch.softmax(logits, dim=-1) @ matrix
    return -noisy.gather(1, labels.unsqueeze(1)).clamp(min=1e-12).log().mean()


def candidates(rows: int, classes: int) -> dict[str, Callable[[], None]]:
    """One forward and backward on the same logits per candidate, including all checks."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(rows, classes)).requires_grad_()
    labels = torch.randint(classes, (rows,))
    trusted = torch.rand(rows) < TRUSTED_SHARE
    matrix = CorruptionMatrix.uniform(classes, 0.5)
    tensor = torch.tensor(matrix.probs, dtype=torch.float32)
    losses: dict[str, Callable[[], Tensor]] = {
        "cross_entropy": lambda: F.cross_entropy(logits, labels),
        "corrected": lambda: corrected_cross_entropy(logits, labels, matrix),
        "corrected_with_trusted": lambda: corrected_cross_entropy(logits, labels, matrix, trusted),
        "pytorch_alone": lambda: corrected_cross_entropy(logits, labels, matrix, trusted),
        "authors": lambda: authors_formula(logits, labels, tensor),
    }
    compiled = likelihood.compiled_item_losses

    def step(name: str, loss: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            logits.grad = None
            loss().backward()

        def run_without_compiler() -> None:
            likelihood.compiled_item_losses = _nothing
            run()
            likelihood.compiled_item_losses = compiled

        return run_without_compiler if name == "pytorch_alone" else run

    return {name: step(name, loss) for name, loss in losses.items()}


def _nothing(*args: object) -> None:
    """What the compiled code returns without a compiler."""


def measure(rows: int, classes: int, turns: int, at_most: float) -> list[dict[str, object]]:
    """The ratios of the corrected loss to cross-entropy, without and with trusted rows, and that of the authors."""
    runs = candidates(rows, classes)
    authors = {name: runs[name] for name in ("cross_entropy", "authors")}
    del runs["authors"]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    authors_seconds: dict[str, list[float]] = {name: [] for name in authors}
    for _ in range(turns // TURNS_BETWEEN_AUTHORS):
        for name, taken in take_turns(runs, TURNS_BETWEEN_AUTHORS, warm_up=2).items():
            seconds[name].extend(taken)
        for name, taken in take_turns(authors, 1).items():
            authors_seconds[name].extend(taken)
    size = f"B={rows}, K={classes:,}"
    more = {
        "microseconds": {name: spread(values, 1e6, 1) for name, values in seconds.items()},
        "ratio_of_authors_formula": spread(ratios(authors_seconds, "authors", "cross_entropy")),
    }
    names = {
        "corrected": f"corrected loss, {size}",
        "corrected_with_trusted": f"corrected loss with {TRUSTED_SHARE:.0%} trusted rows, {size}",
        "pytorch_alone": f"the same by PyTorch alone, {size}",
    }
    return [
        measured(title, "`F.cross_entropy`", ratios(seconds, name, "cross_entropy"), at_most, **more)
        for name, title in names.items()
    ]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "corrected_loss.json")
    parser.add_argument("--repeats", type=float, default=1.0, help="factor for the number of turns")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if loss_kernel() is None:
        raise SystemExit("this benchmark needs a C compiler, and GLC_HF_COMPILE must not be 0.")
    lines = []
    for rows, classes, turns, at_most in SIZES:
        turns = max(2 * TURNS_BETWEEN_AUTHORS, int(turns * options.repeats))
        for line in measure(rows, classes, turns, at_most):
            lines.append(line)
            print(describe(line), flush=True)
        print(f"  the authors' formula: {lines[-1]['ratio_of_authors_formula']['median']:.1f}×", flush=True)
    what = "processor time of forward + backward, float32, one thread; candidates run alternately"
    write_result(options.output, what, ["torch"], trusted_share=TRUSTED_SHARE, measured=lines)


if __name__ == "__main__":
    main()
