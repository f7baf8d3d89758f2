"""ResNet-18 for small images: a 3×3 stem, no max-pool, BatchNorm + ReLU or FRN + TLU."""

from __future__ import annotations

from torch import Tensor, nn

from raychains.models.frn import activation_of, norm_of
from raychains.schedules.base import positive_int

WIDTHS = (64, 128, 256, 512)
"""Channels of the four stages; each after the first halves height and width."""


class ResNet18(nn.Module):
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
        super().__init__()
        positive_int("classes", classes)
        positive_int("in_channels", in_channels)
        self.conv1 = nn.Conv2d(in_channels, WIDTHS[0], 3, padding=1, bias=False)
        self.norm1, self.act1 = norm_of(norm, WIDTHS[0]), activation_of(norm, WIDTHS[0])
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], 1, norm)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], 2, norm)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], 2, norm)
        self.layer4 = _stage(WIDTHS[2], WIDTHS[3], 2, norm)
        self.fc = nn.Linear(WIDTHS[3], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.norm1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


class BasicBlock(nn.Module):
    """act(norm(conv(act(norm(conv(x))))) + shortcut(x)), from [n, inputs, h, w] to [n, outputs, h/stride, w/stride]."""

    revision = 1

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1, self.act1 = norm_of(norm, outputs), activation_of(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2, self.act2 = norm_of(norm, outputs), activation_of(norm, outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, norm_of(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        return self.act2(branch + self.downsample(x))


def _stage(inputs: int, outputs: int, stride: int, norm: str) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride, norm), BasicBlock(outputs, outputs, 1, norm))
