"""Residual networks: a 3×3 stem, no max-pool, BatchNorm + ReLU or FRN + TLU for small images; torchvision's for
ImageNet.

torchvision is imported only when one of its networks is built.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from raychains.core.errors import require
from raychains.core.validation import positive_int
from raychains.models.frn import activation_of, norm_of

WIDTHS = (64, 128, 256, 512)
"""Channels of ResNet-18's four stages; each after the first halves height and width."""
RESNET50_REVISION = 1
"""Raised when what `resnet50` computes changes."""
THIN = 16
"""Channels of the first of three stages of the networks of depth 6n + 2."""


class _ResNet(nn.Module):
    """A 3×3 stem, stages of basic blocks that halve height and width from the second on, average over positions,
    logits."""

    def __init__(
        self, widths: Sequence[int], blocks: int, classes: int, in_channels: int, norm: str, *, pad: bool = False
    ) -> None:
        super().__init__()
        positive_int("classes", classes)
        positive_int("in_channels", in_channels)
        self.conv1 = nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False)
        self.norm1, self.act1 = norm_of(norm, widths[0]), activation_of(norm, widths[0])
        self._stages = [f"layer{i}" for i in range(1, len(widths) + 1)]
        for name, inputs, outputs in zip(self._stages, (widths[0], *widths), widths, strict=False):
            first = BasicBlock(inputs, outputs, 1 if name == "layer1" else 2, norm, pad=pad)
            more = (BasicBlock(outputs, outputs, 1, norm) for _ in range(blocks - 1))
            setattr(self, name, nn.Sequential(first, *more))
        self.fc = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.norm1(self.conv1(x)))
        for name in self._stages:
            x = getattr(self, name)(x)
        return self.fc(x.mean(dim=(2, 3)))


class ResNet18(_ResNet):
    """ResNet-18 in its CIFAR form, from images [n, in_channels, h, w] to logits [n, classes].

    Four stages of two basic blocks, 1×1 projections where the shape changes, average over positions. With BatchNorm and
    10 classes it has 11,173,962 parameters. Weights start as in torchvision's ResNet (normal, fan-out). BatchNorm's
    running statistics are buffers, not sampled: they make the potential depend on the batch. FRN has none.

    Args:
        classes: number of logits.
        in_channels: 3 for colour.
        norm: ``batch`` for BatchNorm + ReLU, ``frn`` for filter response normalisation + thresholded linear units.

    Raises:
        UserError: a setting out of range.

    Source: He et al. 2016 with the stem that cSG-MCMC's CIFAR experiments (§5.2) use; FRN: Singh & Krishnan 2019.
    """

    revision = 1

    def __init__(self, classes: int, in_channels: int = 3, norm: str = "batch") -> None:
        super().__init__(WIDTHS, 2, classes, in_channels, norm)


class ThinResNet(_ResNet):
    """The thin residual network of depth 6n + 2, from images [n, in_channels, h, w] to logits [n, classes].

    Three stages of n basic blocks with ``width``, twice and four times as many channels, shortcuts without parameters
    (`Padded`), average over positions. Depth 20 with BatchNorm and 10 classes has 269,722 parameters, depth 56 853,018.
    Weights start as `ResNet18`'s.

    Args:
        depth: 6n + 2: 20, 32, 44, 56 or 110 in the paper.
        classes: number of logits.
        in_channels: 3 for colour.
        norm: as `ResNet18`'s.
        width: channels of the first stage; 16 in the paper.

    Raises:
        UserError: a setting out of range.

    Source: He et al. 2016, §4.2, with option A of its shortcuts.
    """

    revision = 1

    def __init__(
        self, depth: int = 20, classes: int = 10, in_channels: int = 3, norm: str = "batch", width: int = THIN
    ) -> None:
        positive_int("depth", depth)
        require(depth >= 8 and depth % 6 == 2, "depth", depth, "be 6n + 2 with n ≥ 1")
        positive_int("width", width)
        super().__init__((width, 2 * width, 4 * width), (depth - 2) // 6, classes, in_channels, norm, pad=True)


class BasicBlock(nn.Module):
    """act(norm(conv(act(norm(conv(x))))) + shortcut(x)), from [n, inputs, h, w] to [n, outputs, h/stride, w/stride]."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, *, pad: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1, self.act1 = norm_of(norm, outputs), activation_of(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2, self.act2 = norm_of(norm, outputs), activation_of(norm, outputs)
        self.downsample: nn.Module = nn.Identity()
        if (stride != 1 or inputs != outputs) and pad:
            self.downsample = Padded(inputs, outputs, stride)
        elif stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, norm_of(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        return self.act2(branch + self.downsample(x))


class Padded(nn.Module):
    """Every ``stride``-th position of [n, inputs, h, w], followed by zeros up to ``outputs`` channels: no
    parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.more, self.stride = outputs - inputs, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))


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
