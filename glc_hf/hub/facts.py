# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What happened in a run, as JSON beside the model: all that a card tells and the matrix does not.

The card can be made again from it at any time (`glc-hf card FOLDER`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from huggingface_hub import ModelCard, constants, model_info
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.models.auto import modeling_auto
from transformers.utils import logging

from glc_hf._compat import versions
from glc_hf.training.config import arguments_that_differ
from glc_hf.training.training_data import MapData


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


logger = logging.get_logger(__name__)
_SECONDS_FOR_LICENSE = 5
# The tasks of the models that the correction is defined for, by transformers' own lists of classes.
_CLASSES_OF_TASK = {
    "text-classification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "token-classification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "image-classification": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    "audio-classification": modeling_auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    "video-classification": modeling_auto.MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES,
}


class Origin(NamedTuple):
    """
    What something was made from.

    Attributes:
        name: A Hub id, or the last part of a local path; `None` for a model with random weights.
        on_hub: Whether `name` is a Hub id.
        license: The licence that its card names, as the Hub spells it.
    """

    name: str | None = None
    on_hub: bool = False
    license: str | None = None


def name_in_public(name: str | Path | None) -> Origin:
    """A Hub id as it is; of anything that lies on this machine, the last part alone."""
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
    """The pretrained model that this one was made from, with its licence where that can be found."""
    source = getattr(getattr(model, "config", None), "_name_or_path", None)
    base = name_in_public(source)
    if base.name is None:
        return base
    return base._replace(license=_license_on_hub(base.name) if base.on_hub else _license_in(Path(source)))


def dataset_of(dataset: Any) -> Origin:
    """The Hub id of a dataset that `load_dataset` fetched, else the name it was given, if any."""
    info = getattr(dataset, "info", None)
    for url in getattr(info, "download_checksums", None) or ():
        found = re.match(r"hf://datasets/([^@]+)@", str(url))
        if found:
            return Origin(found[1], on_hub=True)
    return Origin()


def task_of(model: Any) -> str | None:
    """The pipeline that takes such a model."""
    if hasattr(model, "get_base_model"):  # an adapter of PEFT
        model = model.get_base_model()
    names = {kind.__name__ for kind in type(model).__mro__}
    for task, classes in _CLASSES_OF_TASK.items():
        known = {name for value in classes.values() for name in ([value] if isinstance(value, str) else value)}
        if names & known:
            return task
    # Classes registered by others, the networks of `glc_hf.backbones` among them, are named in the same way.
    endings = {
        "ForSequenceClassification": "text-classification",
        "ForTokenClassification": "token-classification",
        "ForImageClassification": "image-classification",
    }
    return next((task for ending, task in endings.items() if any(name.endswith(ending) for name in names)), None)


def _license_in(folder: Path) -> str | None:
    card = folder.expanduser() / "README.md"
    return ModelCard.load(card).data.get("license") if card.is_file() else None


def _license_on_hub(name: str) -> str | None:
    if constants.HF_HUB_OFFLINE:
        return None
    try:
        data = model_info(name, timeout=_SECONDS_FOR_LICENSE).card_data
    except Exception as error:  # whatever the network does, a run goes on; the card says what is not known
        logger.info(f"the licence of {name} could not be read ({type(error).__name__}).")
        return None
    return data.get("license") if data is not None else None
