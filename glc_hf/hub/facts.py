# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What happened in a run, as JSON beside the model: all that a card tells and the matrix does not.

The card can be made again from it at any time (`glc-hf card FOLDER`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.environment import versions
from glc_hf.hub.origin import task_of
from glc_hf.training.arguments import arguments_that_differ
from glc_hf.training.data import MapData


if TYPE_CHECKING:
    from glc_hf.training.trainer import GLCTrainer

FACTS_FILE = "glc_summary.json"
_FORMAT_VERSION = 1
_EVALUATED = "eval_"
# What an evaluation reports about itself, not about the model.
_NOT_A_MEASURE = (
    "runtime",
    "samples_per_second",
    "steps_per_second",
    "model_preparation_time",
    "jit_compilation_time",
)


def gather_facts(trainer: GLCTrainer, finished_at: int | None = None) -> dict[str, Any]:
    """
    Everything a card tells about a run, ready for JSON; no paths, no names of users or machines.

    Args:
        trainer ([`GLCTrainer`]): In training or after it.
        finished_at (`int`, *optional*): The length of its log when training ended; what follows is about the model as
            it is now, whichever checkpoint was loaded at the end.
    """
    args = trainer.args
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {
        "format_version": _FORMAT_VERSION,
        "model_name": Path(args.output_dir).resolve().name,
        "task": task_of(model),
        "needs": "glc_hf.backbones" if type(model).__module__.startswith("glc_hf.backbones") else None,
        "library": "peft" if hasattr(model, "peft_config") else "transformers",
        "method": args.method,
        "num_labels": trainer.num_labels,
        "label_names": trainer.class_names,
        "rows": _rows(trainer),
        "evaluation": _evaluation(trainer, finished_at),
        "step": trainer.state.global_step,
        "epoch": trainer.state.epoch,
        "seed": args.seed,
        "arguments": arguments_that_differ(args),
        "versions": {name: value for name, value in versions().items() if value != "not installed"},
    }


def write_facts(folder: str | Path, facts: dict[str, Any]) -> None:
    """Writes them beside the model."""
    text = json.dumps(facts, indent=2, ensure_ascii=False, default=float)
    (Path(folder) / FACTS_FILE).write_text(text + "\n", encoding="utf-8")


def read_facts(folder: str | Path) -> dict[str, Any]:
    """Reads them back."""
    file = Path(folder) / FACTS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {FACTS_FILE} in {folder}: no GLCTrainer and no `glc-hf train` saved a model there."
        )
    return json.loads(file.read_text(encoding="utf-8"))


def _rows(trainer: GLCTrainer) -> dict[str, Any] | None:
    """Rows and labels by class; `None` for a stream, which nobody counted."""
    data = trainer.training_data
    if not isinstance(data, MapData):
        return None
    given = np.bincount(data.item_labels("all"), minlength=trainer.num_labels)
    trusted = np.bincount(data.item_labels("trusted"), minlength=trainer.num_labels)
    return {
        "train_rows": data.rows.num_rows,
        "labels": int(given.sum()),
        "trusted": int(trusted.sum()),
        "given_by_class": given.tolist(),
        "trusted_by_class": trusted.tolist(),
        "eval_rows": _length(trainer.eval_dataset),
    }


def _length(dataset: Any) -> int | None:
    if isinstance(dataset, dict):
        lengths = [_length(part) for part in dataset.values()]
        return None if None in lengths else sum(lengths)
    return len(dataset) if hasattr(dataset, "__len__") else None


def _evaluation(trainer: GLCTrainer, finished_at: int | None) -> dict[str, Any] | None:
    """The measures of the model as it is, and those of the first stage: before and after correction."""
    history = trainer.state.log_history
    entries = [entry for entry in history if any(name.startswith(_EVALUATED) for name in entry)]
    if not entries:
        return None
    after = entries[-1]
    if finished_at is not None and trainer.args.load_best_model_at_end:
        since = [entry for entry in history[finished_at:] if entry in entries]
        best = [entry for entry in entries if entry.get("step") == trainer.state.best_global_step]
        after = since[-1] if since else (best or entries)[-1]
    before: dict[str, float] = {}
    for entry in history:
        before.update(_measures(entry, f"stage1_{_EVALUATED}"))
    return {"before": before, "after": _measures(after, _EVALUATED), "step": after.get("step")}


def _measures(entry: dict[str, Any], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): value
        for name, value in entry.items()
        if name.startswith(prefix) and not name.endswith(_NOT_A_MEASURE) and isinstance(value, (int, float))
    }
