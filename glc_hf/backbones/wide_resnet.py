# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The paper's networks for CIFAR: wide residual networks for 32×32 images, registered with timm.

Examples: `timm.create_model("wide_resnet40_2_cifar", num_classes=100)` and, for any size,
`timm.create_model("wide_resnet_cifar", depth=22, width=4)`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import SelectAdaptivePool2d
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn


__all__ = ["WideResNet"]
CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2470, 0.2435, 0.2616)


class PreActivationBlock(nn.Module):
    """
    x + conv(dropout(relu(bn(conv(relu(bn(x))))))), with 3×3 convolutions.

    If the number of channels or the resolution changes, x is replaced by a 1×1 convolution of the activated input.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, drop_rate: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.dropout = nn.Dropout(drop_rate)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.shortcut = None
        if in_channels != out_channels or stride != 1:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, in_channels, height, width) → (rows, out_channels, height / stride, width / stride)."""
        active = F.relu(self.bn1(x))
        residual = self.conv2(self.dropout(F.relu(self.bn2(self.conv1(active)))))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """
    WRN-depth-width of Zagoruyko and Komodakis: a convolution, three groups of (depth − 4) / 6 blocks with 16, 32 and
    64 times `width` channels, where the second and third halve the resolution, and a linear layer.

    Args:
        depth (`int`, *optional*, defaults to 40): Number of convolutions, 6n + 4.
        width (`int`, *optional*, defaults to 2): Widening factor.
        num_classes (`int`, *optional*, defaults to 10): Number of logits; 0 returns features.
        in_chans (`int`, *optional*, defaults to 3): Channels of the images.
        drop_rate (`float`, *optional*, defaults to 0.3): Dropout between the convolutions of a block.
        global_pool (`str`, *optional*, defaults to `"avg"`): timm's name of the final pooling.
    """

    def __init__(
        self,
        depth: int = 40,
        width: int = 2,
        num_classes: int = 10,
        in_chans: int = 3,
        drop_rate: float = 0.3,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise ValueError(
                f"the depth of a wide residual network is 6n + 4 (10, 16, 22, 28, 34, 40, …), got {depth}."
            )
        if width < 1:
            raise ValueError(f"width, the widening factor, must be at least 1, got {width}.")
        channels = [16 * width, 32 * width, 64 * width]
        self.num_classes = num_classes
        self.drop_rate = drop_rate
        self.grad_checkpointing = False
        self.num_features = self.head_hidden_size = channels[-1]
        self.feature_info = [
            dict(num_chs=number, reduction=2**group, module=f"layer{group + 1}")
            for group, number in enumerate(channels)
        ]
        self.conv1 = nn.Conv2d(in_chans, 16, 3, padding=1, bias=False)
        self.layer1 = _group(blocks, 16, channels[0], 1, drop_rate)
        self.layer2 = _group(blocks, channels[0], channels[1], 2, drop_rate)
        self.layer3 = _group(blocks, channels[1], channels[2], 2, drop_rate)
        self.bn = nn.BatchNorm2d(channels[2])
        self.global_pool = SelectAdaptivePool2d(pool_type=global_pool, flatten=True)
        self.fc = _linear(channels[2], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """timm API: layer groups for layer-wise learning rates."""
        return dict(stem=r"^conv1", blocks=r"^layer(\d+)" if coarse else r"^layer(\d+)\.(\d+)")

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """timm API: not supported, because batch norm would count each batch twice."""
        assert not enable, "gradient checkpointing is not supported"

    def get_classifier(self) -> nn.Module:
        """timm API: the last layer."""
        return self.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """timm API: replace the last layer."""
        self.num_classes = num_classes
        if global_pool is not None:
            self.global_pool = SelectAdaptivePool2d(pool_type=global_pool, flatten=True)
        self.fc = _linear(self.num_features, num_classes)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, channels, 32, 32) → (rows, 64 · width, 8, 8)."""
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return F.relu(self.bn(x))

    def forward_head(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        """(rows, 64 · width, 8, 8) → (rows, num_classes), or the pooled features."""
        x = self.global_pool(x)
        return x if pre_logits else self.fc(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, channels, 32, 32) → (rows, num_classes)."""
        return self.forward_head(self.forward_features(x))


def _group(blocks: int, in_channels: int, out_channels: int, stride: int, drop_rate: float) -> nn.Sequential:
    first = PreActivationBlock(in_channels, out_channels, stride, drop_rate)
    rest = [PreActivationBlock(out_channels, out_channels, 1, drop_rate) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)


def _linear(features: int, num_classes: int) -> nn.Module:
    return nn.Linear(features, num_classes) if num_classes > 0 else nn.Identity()


_CONFIG = {
    "url": "",
    "num_classes": 10,
    "input_size": (3, 32, 32),
    "pool_size": (8, 8),
    "crop_pct": 1.0,
    "interpolation": "bicubic",
    "mean": CIFAR_MEAN,
    "std": CIFAR_STD,
    "first_conv": "conv1",
    "classifier": "fc",
}
_VARIANTS = ("", "10_1", "16_4", "28_10", "40_2")
default_cfgs = generate_default_cfgs({f"wide_resnet{sizes}_cifar.untrained": _CONFIG for sizes in _VARIANTS})


def _create(variant: str, pretrained: bool, **options: Any) -> WideResNet:
    return build_model_with_cfg(WideResNet, variant, pretrained, **options)


@register_model
def wide_resnet_cifar(pretrained: bool = False, **options: Any) -> WideResNet:
    """A wide residual network of any size: `depth=` and `width=`."""
    return _create("wide_resnet_cifar", pretrained, **options)


@register_model
def wide_resnet10_1_cifar(pretrained: bool = False, **options: Any) -> WideResNet:
    """WRN-10-1, the smallest variant."""
    return _create("wide_resnet10_1_cifar", pretrained, **dict(depth=10, width=1, **options))


@register_model
def wide_resnet16_4_cifar(pretrained: bool = False, **options: Any) -> WideResNet:
    """WRN-16-4."""
    return _create("wide_resnet16_4_cifar", pretrained, **dict(depth=16, width=4, **options))


@register_model
def wide_resnet28_10_cifar(pretrained: bool = False, **options: Any) -> WideResNet:
    """WRN-28-10."""
    return _create("wide_resnet28_10_cifar", pretrained, **dict(depth=28, width=10, **options))


@register_model
def wide_resnet40_2_cifar(pretrained: bool = False, **options: Any) -> WideResNet:
    """WRN-40-2, the network of the paper."""
    return _create("wide_resnet40_2_cifar", pretrained, **dict(depth=40, width=2, **options))
