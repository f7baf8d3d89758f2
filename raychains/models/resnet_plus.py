"""ResNet++, the residual network made for samplers: SELU, weight normalisation, small last scales, no BatchNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.core.errors import require
from raychains.core.validation import positive, positive_int

BOTTLENECK_STAGES = (3, 4, 6, 3)
"""Blocks per stage of the depth-50 network."""
EXPANSION = 4
"""Output channels of a bottleneck over its width."""


class WeightNormalized(nn.Module):
    """Base of the two layers: w = s·v/‖v‖ for each output feature (axis 0 of ``direction``).

    Parameters, plain and separately named, so that priors and samplers address each by its name: ``direction`` v
    [out, …fan-in], ``scale`` s [out] and ``bias`` [out]. v starts uniform on the unit sphere, s at ``scale``, the bias
    at 0. With ‖v‖ = 1 and inputs of zero mean and variance 1, an output has variance s² on average over v.
    """

    def __init__(self, shape: tuple[int, ...], scale: float) -> None:
        super().__init__()
        direction = torch.randn(shape)
        self.direction = nn.Parameter(direction / norms(direction))
        self.scale = nn.Parameter(torch.full(shape[:1], float(scale)))
        self.bias = nn.Parameter(torch.zeros(shape[0]))

    def weight(self) -> Tensor:
        """w = s·v/‖v‖, of ``direction``'s shape."""
        v = self.direction
        return v * (self.scale.view(-1, *[1] * (v.ndim - 1)) / norms(v))


class Linear(WeightNormalized):
    """Weight-normalised linear layer from [n, inputs] to [n, outputs].

    Source: Salimans & Kingma 2016, Eq. 2 (there g is s).
    """

    def __init__(self, inputs: int, outputs: int, *, scale: float = 1.0) -> None:
        super().__init__((outputs, inputs), scale)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight(), self.bias)


class Conv2d(WeightNormalized):
    """Weight-normalised convolution from [n, inputs, h, w] to [n, outputs, ceil(h / stride), ceil(w / stride)].

    The kernel is square, its width odd, and the padding kernel // 2 zeros.

    Source: Salimans & Kingma 2016, Eq. 2 (there g is s).
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, scale: float = 1.0) -> None:
        super().__init__((outputs, inputs, kernel, kernel), scale)
        self.stride, self.padding = stride, kernel // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight(), self.bias, stride=self.stride, padding=self.padding)


def norms(direction: Tensor) -> Tensor:
    """‖v‖₂ of each output feature (axis 0), broadcastable against ``direction``."""
    return torch.linalg.vector_norm(direction, dim=tuple(range(1, direction.ndim)), keepdim=True)


class ResNetPlus(nn.Module):
    """ResNet++ from images [n, in_channels, h, w], normalised per channel, to logits [n, classes].

    Pre-activation blocks: h = selu(x), x ← shortcut + branch(h). The shortcut is x itself, or a weight-normalised 1×1
    projection of h where the shape changes; the branch is two 3×3 convolutions (depth 50: 1×1, 3×3, 1×1) with SELU
    between. Every layer is w = s·v/‖v‖ (`weight_norm`). Nothing depends on the batch or on chance.

    Why the scales start where they do: SELU keeps zero mean and unit variance, and a random unit v maps such inputs to
    unit variance on average, so s = 1 everywhere. A branch would then add its whole variance, which doubles it or
    worse: the last s of each branch starts at ``branch_scale`` = .1 instead, so each block adds about .01 (simplified
    Fixup). Of the network's last layer the input is an average over positions, so logits start small.

    Full-batch SGDM on 32 images of CIFAR-10 at lr .05 and momentum .9 halves the training loss in 10 or 11 steps.

    Args:
        depth: 6n + 2 for the CIFAR network of three stages of n basic blocks (56 in the paper), or 50 for ImageNet's
            network with bottlenecks, a 7×7 stem of stride 2 and max-pool.
        classes: number of logits.
        width: channels of the first stage, doubled by each further one; default 32 (twice the original's, as in the
            paper), 64 for depth 50.
        in_channels: 3 for colour.
        branch_scale: where the last scale of each residual branch starts; the paper says "a small constant".

    Raises:
        UserError: a setting out of range.

    Source: Heek & Kalchbrenner 2019, §4 and Fig. 1; pre-activation and projections are ours (the figure is not in our
    text).
    """

    revision = 1

    def __init__(
        self,
        depth: int = 56,
        classes: int = 10,
        width: int | None = None,
        in_channels: int = 3,
        branch_scale: float = 0.1,
    ) -> None:
        super().__init__()
        positive_int("depth", depth)
        require(depth >= 8 and depth % 6 == 2, "depth", depth, "be 6n + 2 with n ≥ 1 (CIFAR), or 50 (bottlenecks)")
        bottleneck = depth == 50
        width = (64 if bottleneck else 32) if width is None else width
        for field, value in (("classes", classes), ("width", width), ("in_channels", in_channels)):
            positive_int(field, value)
        positive("branch_scale", branch_scale)
        self.pool = bottleneck
        self.stem = Conv2d(in_channels, width, 7, stride=2) if bottleneck else Conv2d(in_channels, width, 3)
        channels, blocks = width, []
        for stage, count in enumerate(BOTTLENECK_STAGES if bottleneck else [(depth - 2) // 6] * 3):
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(Block(channels, width * 2**stage, stride, bottleneck, branch_scale))
                channels = blocks[-1].outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.pool:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        return self.head(F.selu(self.blocks(x)).mean(dim=(2, 3)))


class Block(nn.Module):
    """One pre-activation residual block, from [n, inputs, h, w] to [n, outputs, h/stride, w/stride].

    ``outputs`` is ``width``, or 4 × ``width`` for a bottleneck.
    """

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool, branch_scale: float) -> None:
        super().__init__()
        self.outputs = width * EXPANSION if bottleneck else width
        if bottleneck:
            layers = [Conv2d(inputs, width, 1), Conv2d(width, width, 3, stride=stride)]
            layers.append(Conv2d(width, self.outputs, 1, scale=branch_scale))
        else:
            layers = [Conv2d(inputs, width, 3, stride=stride), Conv2d(width, width, 3, scale=branch_scale)]
        self.branch = nn.ModuleList(layers)
        changes = stride != 1 or inputs != self.outputs
        self.projection = Conv2d(inputs, self.outputs, 1, stride=stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        h = F.selu(x)
        shortcut = x if self.projection is None else self.projection(h)
        for i, layer in enumerate(self.branch):
            h = layer(F.selu(h) if i else h)
        return shortcut + h
