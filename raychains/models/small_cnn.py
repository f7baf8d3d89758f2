"""A network of two normalised convolutions for tiny grey images: what BatchNorm and FRN can be compared on in seconds."""

from __future__ import annotations

from torch import Tensor, nn

from raychains.models.frn import activation_of, norm_of
from raychains.schedules.base import positive_int

CHANNELS = (8, 16)
"""Of the two convolutions; the second halves height and width."""


class SmallCNN(nn.Module):
    """Convolution, normalisation and activation twice, then a linear layer, from grey images to logits [n, classes].

    3×3 convolutions without bias, padded by 1; the second has stride 2. The activation is ReLU after BatchNorm and TLU after
    filter response normalisation.

    Args:
        size: height and width of the images; they may come as [n, size²] or [n, 1, size, size].
        classes: number of logits.
        norm: ``batch`` or ``frn``.

    Raises:
        UserError: a setting out of range.
    """

    revision = 1

    def __init__(self, size: int = 8, classes: int = 10, norm: str = "batch") -> None:
        super().__init__()
        positive_int("size", size)
        positive_int("classes", classes)
        self.size = size
        first, second = CHANNELS
        side = (size + 1) // 2
        self.features = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=1, bias=False), norm_of(norm, first), activation_of(norm, first),
            nn.Conv2d(first, second, 3, padding=1, stride=2, bias=False), norm_of(norm, second),
            activation_of(norm, second),
        )  # fmt: skip
        self.classifier = nn.Linear(second * side**2, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x.reshape(-1, 1, self.size, self.size)).flatten(1))
