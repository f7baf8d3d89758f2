"""Weight normalisation: linear and convolution layers whose weights are a scale times a direction, w = s·v/‖v‖."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.errors import require
from raychains.schedules.base import is_number, positive_int


class WeightNormalized(nn.Module):
    """Base of the two layers: w = s·v/‖v‖ for each output feature (axis 0 of ``direction``).

    Parameters, plain and separately named, so that priors and samplers address each by its name: ``direction`` v
    [out, …fan-in], ``scale`` s [out] and ``bias`` [out]. v starts uniform on the unit sphere, s at ``scale``, the bias
    at 0. With ‖v‖ = 1 and inputs of zero mean and variance 1, an output has variance s² on average over v.
    """

    def __init__(self, shape: tuple[int, ...], scale: float) -> None:
        super().__init__()
        require(is_number(scale) and scale > 0, "scale", scale, "be a finite number above 0")
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

    Args:
        inputs: features that come in.
        outputs: features that go out.
        scale: where each output feature's s starts.

    Raises:
        UserError: a setting out of range.

    Source: Salimans & Kingma 2016, Eq. 2 (there g is s).
    """

    revision = 1

    def __init__(self, inputs: int, outputs: int, *, scale: float = 1.0) -> None:
        positive_int("inputs", inputs)
        positive_int("outputs", outputs)
        super().__init__((outputs, inputs), scale)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight(), self.bias)


class Conv2d(WeightNormalized):
    """Weight-normalised convolution from [n, inputs, h, w] to [n, outputs, h', w'], zero-padded by kernel // 2.

    Args:
        inputs: channels that come in.
        outputs: channels that go out.
        kernel: odd width of the square kernel.
        stride: h' = ceil(h / stride), w' likewise.
        scale: where each output channel's s starts.

    Raises:
        UserError: a setting out of range.

    Source: Salimans & Kingma 2016, Eq. 2 (there g is s).
    """

    revision = 1

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, scale: float = 1.0) -> None:
        for field, value in (("inputs", inputs), ("outputs", outputs), ("kernel", kernel), ("stride", stride)):
            positive_int(field, value)
        require(kernel % 2 == 1, "kernel", kernel, "be odd")
        super().__init__((outputs, inputs, kernel, kernel), scale)
        self.stride, self.padding = stride, kernel // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight(), self.bias, stride=self.stride, padding=self.padding)


def norms(direction: Tensor) -> Tensor:
    """‖v‖₂ of each output feature (axis 0), broadcastable against ``direction``."""
    return torch.linalg.vector_norm(direction, dim=tuple(range(1, direction.ndim)), keepdim=True)
