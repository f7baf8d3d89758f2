"""Small convolutional networks: a LeNet, and two normalised convolutions for tiny grey images."""

from __future__ import annotations

from torch import Tensor, nn

from raychains.core.errors import require
from raychains.core.validation import positive_int
from raychains.models.frn import activation_of, norm_of

CHANNELS = (8, 16)
"""Channels of the two convolutions; the second halves height and width."""
LEAST = 16
"""The smallest side that leaves one position after two 5×5 convolutions and two poolings."""


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max-pooling, from square images [n, in_channels, size, size] to logits [n, classes].

    No padding: 28×28 leaves 4×4 positions of 16 channels, 32×32 leaves 5×5 (the original's; 61,706 parameters for grey
    images of 10 classes).

    Args:
        in_channels: 1 for grey, 3 for colour.
        classes: number of logits.
        size: height and width of the images, at least 16.

    Raises:
        UserError: a setting out of range.

    Source: LeCun et al. 1998, Fig. 2, with today's activation and pooling.
    """

    revision = 1

    def __init__(self, in_channels: int = 1, classes: int = 10, size: int = 28) -> None:
        super().__init__()
        positive_int("in_channels", in_channels)
        positive_int("classes", classes)
        positive_int("size", size)
        require(size >= LEAST, "size", size, f"be at least {LEAST}: two 5×5 convolutions and poolings come first")
        side = ((size - 4) // 2 - 4) // 2
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(
            nn.Linear(16 * side**2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


class SmallCNN(nn.Module):
    """Convolution, normalisation and activation twice, then a linear layer, from grey images to logits [n, classes].

    3×3 convolutions without bias, padded by 1; the second has stride 2. The activation is ReLU after BatchNorm and TLU
    after filter response normalisation.

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
        convolutions = nn.Conv2d(1, first, 3, padding=1, bias=False), nn.Conv2d(first, second, 3, 2, 1, bias=False)
        layers = [[c, norm_of(norm, c.out_channels), activation_of(norm, c.out_channels)] for c in convolutions]
        self.features = nn.Sequential(*layers[0], *layers[1])
        self.classifier = nn.Linear(second * side**2, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x.reshape(-1, 1, self.size, self.size)).flatten(1))
