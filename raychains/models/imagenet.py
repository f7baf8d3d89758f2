"""ResNet-50 for ImageNet, torchvision's own; torchvision is imported only when one is built."""

from __future__ import annotations

from torch import nn

from raychains.schedules.base import positive_int

REVISION = 1
"""Raised when what `resnet50` computes changes."""


def resnet50(classes: int = 1000) -> nn.Module:
    """torchvision's ResNet-50 without pretrained weights, from images [n, 3, h, w] to logits [n, classes].

    It has BatchNorm; 25,557,032 parameters for 1,000 classes.

    Args:
        classes: number of logits.

    Raises:
        UserError: a setting out of range.

    Source: He et al. 2016; used by cSG-MCMC (§5.2) and Entropy-MCMC on ImageNet.
    """
    positive_int("classes", classes)
    from torchvision.models import resnet50 as build  # its import costs seconds: no other model should pay

    return build(weights=None, num_classes=classes)
