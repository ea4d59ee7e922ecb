# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Networks of timm as transformers models, with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from transformers import PreTrainedModel


def timm_network(
    architecture: str, label_names: list[str], image_size: int | None = None, **model_args: Any
) -> PreTrainedModel:
    """
    A network of timm, started as timm starts it, under transformers' `TimmWrapperForImageClassification`.

    `save_pretrained` keeps with it how its images are prepared, so `pipeline("image-classification", model=folder)`
    needs nothing else.

    Args:
        architecture (`str`): A name that `timm.create_model` takes, such as `"resnet18"`.
        label_names (`list[str]`): The classes, in label order.
        image_size (`int`, *optional*): Side of the images it sees; by default the architecture's own.
        model_args: What `timm.create_model` takes besides, such as `drop_rate`; kept in the configuration.
    """
    timm = require_timm()
    from transformers import TimmWrapperConfig, TimmWrapperForImageClassification

    from glc_hf.backbones.base import label_mapping

    if image_size is not None and _takes_image_size(timm, architecture, image_size):
        model_args["img_size"] = image_size
    network = _create(timm, architecture, num_classes=len(label_names), **model_args)
    config = TimmWrapperConfig(
        architecture=architecture,
        num_labels=len(label_names),
        **label_mapping(label_names),
        model_args=model_args or None,
        pretrained_cfg=_how_images_are_prepared(timm, network, image_size),
    )
    model = TimmWrapperForImageClassification(config)
    # transformers draws new weights of its own when a model is made from a configuration, with a standard deviation
    # that suits no convolution: take those that timm drew.
    model.timm_model.load_state_dict(network.state_dict())
    return model


def pretrained_name(model: str) -> str:
    """The repository that holds the weights of `timm/NAME`: where the name has no tag, that of timm's default one."""
    timm = require_timm()
    architecture = model.removeprefix("timm/")
    if "." in architecture or not timm.is_model(architecture):
        return model
    known = timm.get_pretrained_cfg(architecture)
    return f"timm/{architecture}.{known.tag}" if known is not None and known.tag else model


def require_timm() -> Any:
    """The module, or an error that says how to install it."""
    try:
        import timm
        import torchvision  # noqa: F401  (transformers' wrapper prepares images with it)
    except ImportError as error:
        raise ImportError(
            f'networks of timm need {error.name}, which is not installed: pip install "glc_hf[demo]"'
        ) from error
    return timm


def _create(timm: Any, architecture: str, **options: Any) -> Any:
    if not timm.is_model(architecture):
        near = timm.list_models(f"*{architecture[:8]}*")[:3]
        hint = f" (near: {', '.join(near)})" if near else ""
        raise ValueError(
            f"timm {timm.__version__} has no network {architecture!r}{hint}; `timm.list_models()` lists them."
        )
    return timm.create_model(architecture, pretrained=False, **options)


def _takes_image_size(timm: Any, architecture: str, image_size: int) -> bool:
    """Transformers of timm fix the size of their images when they are made; convolutional networks take no such
    option."""
    try:
        _create(timm, architecture, img_size=image_size)
    except TypeError:
        return False
    return True


def _how_images_are_prepared(timm: Any, network: Any, image_size: int | None) -> dict[str, Any]:
    """The part of timm's configuration that `TimmWrapperImageProcessor` reads."""
    prepared = timm.data.resolve_data_config(network.pretrained_cfg, model=network)
    if image_size is not None:
        # The whole image: cutting off the border is for photographs.
        prepared.update(input_size=(3, image_size, image_size), crop_pct=1.0)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in prepared.items()}
