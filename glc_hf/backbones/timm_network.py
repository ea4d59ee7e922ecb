# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""timm networks as transformers models, with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from transformers import PreTrainedModel


def timm_network(
    architecture: str, label_names: list[str], image_size: int | None = None, **model_args: Any
) -> PreTrainedModel:
    """
    Create a `TimmWrapperForImageClassification` with timm's random initialization.

    `save_pretrained` also stores the image preprocessing, so `pipeline("image-classification", model=folder)` works
    without further files.

    Args:
        architecture (`str`): A name that `timm.create_model` takes, such as `"resnet18"`.
        label_names (`list[str]`): The classes, in label order.
        image_size (`int`, *optional*): Height and width of the input images, by default those of the architecture.
        model_args: Further arguments of `timm.create_model`, such as `drop_rate`; stored in the configuration.
    """
    timm = require_timm()
    from transformers.models.timm_wrapper import TimmWrapperConfig, TimmWrapperForImageClassification

    from glc_hf.backbones.base import label_mapping

    if image_size is not None and _takes_image_size(timm, architecture, image_size):
        model_args["img_size"] = image_size
    network = _create(timm, architecture, num_classes=len(label_names), **model_args)
    config = TimmWrapperConfig(
        architecture=architecture,
        num_labels=len(label_names),
        **label_mapping(label_names),
        model_args=model_args or None,
        pretrained_cfg=_preprocessing(timm, network, image_size),
    )
    model = TimmWrapperForImageClassification(config)
    # transformers initializes with a standard deviation that does not suit convolutions: use timm's weights.
    model.timm_model.load_state_dict(network.state_dict())
    return model


def pretrained_name(model: str) -> str:
    """Add timm's default tag to `timm/NAME` if it has none: the repository that holds the pretrained weights."""
    timm = require_timm()
    architecture = model.removeprefix("timm/")
    if "." in architecture or not timm.is_model(architecture):
        return model
    default = timm.get_pretrained_cfg(architecture)
    return f"timm/{architecture}.{default.tag}" if default is not None and default.tag else model


def require_timm() -> Any:
    """Import timm, or raise an error that says how to install it."""
    try:
        import timm
        import torchvision  # noqa: F401  (used by transformers' wrapper to preprocess images)
    except ImportError as error:
        raise ImportError(
            f'timm networks need {error.name}, which is not installed: pip install "glc_hf[demo]"'
        ) from error
    return timm


def _create(timm: Any, architecture: str, **options: Any) -> Any:
    if not timm.is_model(architecture):
        similar = timm.list_models(f"*{architecture[:8]}*")[:3]
        hint = f" (similar: {', '.join(similar)})" if similar else ""
        raise ValueError(
            f"timm {timm.__version__} has no network {architecture!r}{hint}; `timm.list_models()` lists them."
        )
    return timm.create_model(architecture, pretrained=False, **options)


def _takes_image_size(timm: Any, architecture: str, image_size: int) -> bool:
    """Whether the network has a fixed image size (vision transformers) instead of accepting any (convolutional)."""
    try:
        _create(timm, architecture, img_size=image_size)
    except TypeError:
        return False
    return True


def _preprocessing(timm: Any, network: Any, image_size: int | None) -> dict[str, Any]:
    """The part of timm's configuration that `TimmWrapperImageProcessor` reads."""
    config = timm.data.resolve_data_config(network.pretrained_cfg, model=network)
    if image_size is not None:
        # No center crop: it is meant for photographs.
        config.update(input_size=(3, image_size, image_size), crop_pct=1.0)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in config.items()}
