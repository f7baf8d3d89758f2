"""The residual network that full-batch HMC sampled on CIFAR-10: filter response normalisation and SiLU, convolutions
with bias."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from raychains.core.errors import require
from raychains.core.validation import positive_int
from raychains.models.frn import FRN, TLU

WIDTH = 16
"""Channels of the first of three stages."""


class ResNetFrnSilu(nn.Module):
    """A residual network of depth 6n + 2 with FRN and SiLU, from images [n, in_channels, h, w] to logits [n, classes].

    Three stages of n blocks with ``width``, twice and four times as many channels; stages after the first halve height
    and width. Each convolution has a bias and is followed by FRN with its threshold, max(γx̂ + β, τ). SiLU follows the
    first layer's, a block's first and the block's sum. Strided convolutions pad as Haiku's SAME: even sizes below and
    to the right alone. Depth 20 with 10 classes has 274,042 parameters. Weights start normal with variance 2/fan-in,
    biases at 0.

    Args:
        depth: 6n + 2; 20 in the paper.
        classes: number of logits.
        in_channels: 3 for colour.
        width: channels of the first stage; 16 in the paper.

    Raises:
        UserError: a setting out of range.

    Source: Izmailov et al. 2021, https://arxiv.org/abs/2104.14421: ``resnet20_frn_swish`` of their code and of the
    NeurIPS 2021 competition on approximate inference.
    """

    revision = 1

    def __init__(self, depth: int = 20, classes: int = 10, in_channels: int = 3, width: int = WIDTH) -> None:
        super().__init__()
        positive_int("depth", depth)
        require(depth >= 8 and depth % 6 == 2, "depth", depth, "be 6n + 2 with n ≥ 1")
        positive_int("classes", classes)
        positive_int("in_channels", in_channels)
        positive_int("width", width)
        self.stem = Normalised(in_channels, width, 3, 1)
        widths, blocks = (width, 2 * width, 4 * width), []
        for inputs, outputs in zip((width, *widths), widths, strict=False):
            blocks.append(Block(inputs, outputs))
            blocks += [Block(outputs, outputs) for _ in range((depth - 2) // 6 - 1)]
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.blocks(F.silu(self.stem(x))).mean(dim=(2, 3)))


class Block(nn.Module):
    """silu(norm(conv(silu(norm(conv(x))))) + shortcut(x)), from [n, inputs, h, w]; halves h and w where channels
    grow."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first, self.second = Normalised(inputs, outputs, 3, stride), Normalised(outputs, outputs, 3, 1)
        self.shortcut = nn.Identity() if stride == 1 else Normalised(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.second(F.silu(self.first(x))) + self.shortcut(x))


class Normalised(nn.Module):
    """A convolution with bias, then FRN with its threshold."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        self.size, self.stride = size, stride
        self.conv = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2 if stride == 1 else 0)
        self.norm, self.threshold = FRN(outputs), RectifiedTLU(outputs)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:  # SAME: as many zeros as the last window lacks, an odd one at the end
            high, wide = (max(self.size - (n % self.stride or self.stride), 0) for n in x.shape[-2:])
            x = F.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
        return self.threshold(self.norm(self.conv(x)))


class RectifiedTLU(TLU):
    """max(y, τ) as relu(y − τ) + τ, equal but for rounding: with it a gradient of the network takes a CPU two thirds of
    the time."""

    def forward(self, x: Tensor) -> Tensor:
        threshold = self.threshold.view(-1, 1, 1)
        return F.relu(x - threshold) + threshold
