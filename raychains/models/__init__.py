"""Networks, built by name. A model that changes what it computes raises its `revision`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from raychains.core.errors import UserError, unknown_name
from raychains.models.cnn import LeNet, SmallCNN
from raychains.models.mlp import MLP, Linear, three_layer
from raychains.models.resnet import RESNET50_REVISION, ResNet18, ThinResNet, resnet50
from raychains.models.resnet_frn_silu import ResNetFrnSilu
from raychains.models.resnet_plus import ResNetPlus

NAMES: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "mlp": (MLP, MLP.revision),
    "mlp3": (three_layer, MLP.revision),
    "linear": (Linear, Linear.revision),
    "lenet": (LeNet, LeNet.revision),
    "small_cnn": (SmallCNN, SmallCNN.revision),
    "resnet18": (ResNet18, ResNet18.revision),
    "resnet_thin": (ThinResNet, ThinResNet.revision),
    "resnet_frn_silu": (ResNetFrnSilu, ResNetFrnSilu.revision),
    "resnet_plus": (ResNetPlus, ResNetPlus.revision),
    "resnet50": (resnet50, RESNET50_REVISION),
}
"""The builder of each name, and its revision."""

__all__ = [
    "MLP",
    "NAMES",
    "LeNet",
    "Linear",
    "ResNet18",
    "ResNetFrnSilu",
    "ResNetPlus",
    "SmallCNN",
    "ThinResNet",
    "build",
    "revision",
]


def build(name: str, **settings: Any) -> nn.Module:
    """A freshly initialised network of `NAMES`, from torch's global generator.

    Raises:
        UserError: an unknown name, or settings that the network lacks, misses or refuses.
    """
    builder, _ = _entry(name)
    try:
        inspect.signature(builder).bind(**settings)
    except TypeError as error:
        raise UserError(f"model {name}: {error}") from None
    return builder(**settings)


def revision(name: str) -> int:
    """The revision of a network of `NAMES`: part of what determines a chain's samples.

    Raises:
        UserError: an unknown name.
    """
    return _entry(name)[1]


def _entry(name: str) -> tuple[Callable[..., nn.Module], int]:
    if name not in NAMES:
        raise unknown_name("model", name, NAMES)
    return NAMES[name]
