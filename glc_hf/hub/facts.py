# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Facts about a run for its model card, stored as JSON beside the model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset
from huggingface_hub import ModelCard, constants, model_info
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.models.auto import modeling_auto
from transformers.utils import logging

from glc_hf._compat import versions
from glc_hf.hold_out import TRUSTED_SET
from glc_hf.labels.columns import is_list_feature
from glc_hf.labels.reading import IGNORED_LABEL, read_integers
from glc_hf.run_files import FACTS_FILE, read_json


logger = logging.get_logger(__name__)

_FORMAT_VERSION = 1
_LICENSE_TIMEOUT = 5  # seconds
# Values that an evaluation logs about itself, not about the model.
_NOT_METRICS = (
    "runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "jit_compilation_time",
)  # fmt: skip
_MODEL_CLASSES: dict[str, dict[str, Any]] = {
    "text-classification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "token-classification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "image-classification": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    "audio-classification": modeling_auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    "video-classification": modeling_auto.MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES,
}
# For classes outside transformers, such as those of `glc_hf.backbones`.
_CLASS_SUFFIXES = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForImageClassification": "image-classification",
}


def gather_facts(trainer: Any, finished_at: int | None = None) -> dict[str, Any]:
    """
    Return the facts of a run that its card needs, ready for JSON. They contain no paths, user names or host names.

    Args:
        trainer ([`GLCTrainer`]):
            The trainer, during or after training. Not imported here: `training` imports this module.
        finished_at (`int`, *optional*):
            Length of the trainer's log when training ended. Later entries describe the final model, even if
            `load_best_model_at_end` loaded an earlier checkpoint.
    """
    args = trainer.args
    model = trainer.accelerator.unwrap_model(trainer.model)
    rows = trainer.training_data.describe()
    return {
        "format_version": _FORMAT_VERSION,
        "model_name": Path(args.output_dir).resolve().name,
        "task": task_of(model),
        "needs": "glc_hf.backbones" if type(model).__module__.startswith("glc_hf.backbones") else None,
        "library": "peft" if hasattr(model, "peft_config") else "transformers",
        "method": args.method,
        "method_title": trainer.method.title,
        "num_labels": trainer.num_labels,
        "label_names": trainer.class_names,
        "has_matrix": bool(trainer.corruption_matrices),
        "rows": None if rows is None else {**rows, "eval_rows": _length(trainer.eval_dataset)},
        "stage1": stage1_of(trainer),
        "evaluation": _evaluation(trainer, finished_at),
        "verdict": None if trainer.verdict is None else trainer.verdict.to_dict(),
        "sources": sources_of(trainer),
        "warnings": trainer.warnings,
        "step": trainer.state.global_step,
        "epoch": trainer.state.epoch,
        "seed": args.seed,
        "arguments": args.changed_arguments(),
        "versions": {name: value for name, value in versions().items() if value != "not installed"},
    }


def write_facts(folder: str | Path, facts: dict[str, Any]) -> None:
    """Write `glc_summary.json` into the folder of a model."""
    text = json.dumps(facts, indent=2, ensure_ascii=False, default=float)
    (Path(folder) / FACTS_FILE).write_text(text + "\n", encoding="utf-8")


def read_facts(folder: str | Path) -> dict[str, Any]:
    """Read `glc_summary.json` from the folder of a model."""
    file = Path(folder) / FACTS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {FACTS_FILE} in {folder}: the folder was not saved by GLCTrainer or `glc-hf train`."
        )
    return read_json(file, _FORMAT_VERSION)


def check_classes(file: Path, num_labels: int, facts: dict[str, Any]) -> None:
    """Raise if a file with a matrix has another number of classes than the model beside it."""
    if num_labels != facts["num_labels"]:
        raise ValueError(
            f"{file} has {num_labels} classes, but the model in that folder has {facts['num_labels']}: it is not the "
            "matrix of this model. Restore the right one, or train again."
        )


def stage1_of(trainer: Any) -> str | None:
    """What the first stage trained, whose metrics are those before correction; `None` if there is only one stage."""
    stages = trainer.method.first_stages()
    return stages[0].description if stages else None


def sources_of(trainer: Any) -> list[dict[str, Any]]:
    """The quality of each source of votes, ready for JSON; empty without votes of several sources."""
    return [] if trainer.training_data.votes is None else trainer.sources().to_list()


class Measured(NamedTuple):
    """What accuracies were measured on: the number of rows, or of labels if rows contain lists of labels."""

    counts: dict[str, int]
    unit: str


def measured_on(trainer: Any) -> Measured:
    """Return the number of rows or labels behind each accuracy, by its name in the log without `eval_`. Sets of
    unknown size, such as streams, are left out."""
    sets = trainer.eval_dataset
    sets = {f"{name}_": part for name, part in sets.items()} if isinstance(sets, dict) else {"": sets}
    sets[f"{TRUSTED_SET}_"] = sets.get(f"{TRUSTED_SET}_", trainer.trusted_eval_dataset)
    counts, unit = {}, "rows"
    for prefix, part in sets.items():
        number = _length(part)
        if isinstance(part, Dataset) and is_list_feature(part.features.get(trainer.label_column)):
            number = int((read_integers(part, trainer.label_column).values != IGNORED_LABEL).sum())
            unit = "labels"
        if number is not None:
            counts[f"{prefix}accuracy"] = number
    return Measured(counts, unit)


def _length(dataset: Any) -> int | None:
    if isinstance(dataset, dict):
        lengths = [_length(part) for part in dataset.values()]
        known = [length for length in lengths if length is not None]
        return sum(known) if len(known) == len(lengths) else None
    return len(dataset) if hasattr(dataset, "__len__") else None


def _evaluation(trainer: Any, finished_at: int | None) -> dict[str, Any] | None:
    """Metrics of the current model (after correction) and of the first stage (before correction)."""
    history = trainer.state.log_history
    entries = [entry for entry in history if any(name.startswith("eval_") for name in entry)]
    if not entries:
        return None
    after = entries[-1]
    if finished_at is not None and trainer.args.load_best_model_at_end:
        since = [entry for entry in history[finished_at:] if entry in entries]
        best = [entry for entry in entries if entry.get("step") == trainer.state.best_global_step]
        after = (since or best or entries)[-1]
    before = {name: value for entry in history for name, value in _metrics(entry, "stage1_eval_").items()}
    measured = measured_on(trainer)
    return {
        "before": before,
        "after": _metrics(after, "eval_"),
        "step": after.get("step"),
        "measured_on": measured.counts,
        "unit": measured.unit,
    }


def _metrics(entry: dict[str, Any], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): value
        for name, value in entry.items()
        if name.startswith(prefix) and not name.endswith(_NOT_METRICS) and isinstance(value, (int, float))
    }


class Origin(NamedTuple):
    """
    Source of a model or dataset.

    Attributes:
        name: A Hub id, or the last part of a local path; `None` for a model with random weights.
        on_hub: Whether `name` is a Hub id.
        license: License stated in its card, as a Hub identifier.
    """

    name: str | None = None
    on_hub: bool = False
    license: str | None = None


def public_name(name: str | Path | None) -> Origin:
    """Return a Hub id unchanged, and only the last part of a local path."""
    if not name:
        return Origin()
    local = Path(name).expanduser()
    if not local.exists() and not local.is_absolute():
        try:
            validate_repo_id(str(name))
            return Origin(str(name), on_hub=True)
        except HFValidationError:
            pass
    return Origin(local.resolve().name if local.exists() else local.name)


def base_model_of(model: Any) -> Origin:
    """Return the pretrained model that a model started from, with its license if known."""
    source = getattr(getattr(model, "config", None), "_name_or_path", None)
    base = public_name(source)
    if source is None or base.name is None:
        return base
    if base.on_hub:
        return base._replace(license=_license_on_hub(base.name))
    card = Path(source).expanduser() / "README.md"
    return base._replace(license=ModelCard.load(card).data.get("license") if card.is_file() else None)


def _license_on_hub(name: str) -> str | None:
    if constants.HF_HUB_OFFLINE:
        return None
    try:
        data = model_info(name, timeout=_LICENSE_TIMEOUT).card_data
    except Exception as error:  # training must not fail because of the license
        logger.info(f"the license of {name} could not be read ({type(error).__name__}).")
        return None
    return data.get("license") if data is not None else None


def dataset_of(dataset: Any) -> Origin:
    """Return the Hub id of a dataset that `load_dataset` downloaded, if any."""
    for url in getattr(getattr(dataset, "info", None), "download_checksums", None) or ():
        match = re.match(r"hf://datasets/([^@]+)@", str(url))
        if match:
            return Origin(match[1], on_hub=True)
    return Origin()


def task_of(model: Any) -> str | None:
    """Return the pipeline task of a model, or `None` if no pipeline supports it."""
    if hasattr(model, "get_base_model"):  # a PEFT adapter
        model = model.get_base_model()
    names = {parent.__name__ for parent in type(model).__mro__}
    for task, classes in _MODEL_CLASSES.items():
        if any(not names.isdisjoint([value] if isinstance(value, str) else value) for value in classes.values()):
            return task
    return next((task for suffix, task in _CLASS_SUFFIXES.items() if any(n.endswith(suffix) for n in names)), None)
