"""Residual networks for small images: a 3×3 stem, no max-pool, BatchNorm + ReLU or FRN + TLU."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from raychains.errors import require
from raychains.models.frn import activation_of, norm_of
from raychains.schedules.base import positive_int

WIDTHS = (64, 128, 256, 512)
"""Channels of ResNet-18's four stages; each after the first halves height and width."""
THIN = 16
"""Channels of the first of three stages of the networks of depth 6n + 2."""


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
        _start(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.norm1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


class ThinResNet(nn.Module):
    """The thin residual network of depth 6n + 2, from images [n, in_channels, h, w] to logits [n, classes].

    Three stages of n basic blocks with ``width``, twice and four times as many channels, shortcuts without parameters (`Padded`), average over
    positions. Depth 20 with BatchNorm and 10 classes has 269,722 parameters, depth 56 853,018. Weights start as
    `ResNet18`'s.

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
        super().__init__()
        positive_int("depth", depth)
        require(depth >= 8 and depth % 6 == 2, "depth", depth, "be 6n + 2 with n ≥ 1")
        positive_int("classes", classes)
        positive_int("in_channels", in_channels)
        positive_int("width", width)
        n, (first, second, third) = (depth - 2) // 6, (width, 2 * width, 4 * width)
        self.conv1 = nn.Conv2d(in_channels, first, 3, padding=1, bias=False)
        self.norm1, self.act1 = norm_of(norm, first), activation_of(norm, first)
        self.layer1 = _stage(first, first, 1, norm, n, pad=True)
        self.layer2 = _stage(first, second, 2, norm, n, pad=True)
        self.layer3 = _stage(second, third, 2, norm, n, pad=True)
        self.fc = nn.Linear(third, classes)
        _start(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.norm1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3)))


class BasicBlock(nn.Module):
    """act(norm(conv(act(norm(conv(x))))) + shortcut(x)), from [n, inputs, h, w] to [n, outputs, h/stride, w/stride]."""

    revision = 1

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
    """Every ``stride``-th position of [n, inputs, h, w], behind it zeros up to ``outputs`` channels: no parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.more, self.stride = outputs - inputs, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))


def _stage(inputs: int, outputs: int, stride: int, norm: str, blocks: int = 2, *, pad: bool = False) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride, norm, pad=pad)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1, norm) for _ in range(blocks - 1)))


def _start(network: nn.Module) -> None:
    """Weights of convolutions as in torchvision's ResNet: normal, by fan-out."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
