# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Where a model and its data come from, as it may be told in public: Hub ids and names, never paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCard, constants, model_info
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.models.auto import modeling_auto
from transformers.utils import logging


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
