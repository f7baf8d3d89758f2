"""Where an image is cropped and whether it is mirrored: from a counter-based stream of (epoch's seed, index of the image).

So the same image of the same epoch is cut alike by whichever process decodes it, whenever that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ATTEMPTS = 10
"""Boxes that are tried before the image's middle is taken, as in torchvision."""
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Shares of the image's area, and ratios width/height, between which a crop is drawn."""
CROPS = 2
"""The stream's purpose: see `raychains.data.prepared.order`."""


@dataclass(frozen=True)
class Crop:
    """A box in pixels, and whether what is in it is mirrored."""

    top: int
    left: int
    height: int
    width: int
    flip: bool = False


def uniforms(seed: int, index: int) -> Array:
    """4·`ATTEMPTS` + 1 numbers in [0, 1) for the ``index``-th image under an epoch's seed."""
    raw = np.random.Philox(key=[seed & (2**64 - 1), 0], counter=[0, 0, CROPS, index]).random_raw(4 * ATTEMPTS + 1)
    return (raw >> np.uint64(11)) * 2.0**-53


def random_crop(seed: int, index: int, height: int, width: int) -> Crop:
    """Inception's crop (area in `SCALE`, ratio in `RATIO`), mirrored half of the time.

    Source: Szegedy et al. 2015; the rule is `torchvision.transforms.RandomResizedCrop`'s.
    """
    u = uniforms(seed, index)
    flip = bool(u[-1] < 0.5)
    log_low, log_high = math.log(RATIO[0]), math.log(RATIO[1])
    for i in range(ATTEMPTS):
        share, shape, down, right = u[4 * i : 4 * i + 4]
        area = height * width * (SCALE[0] + share * (SCALE[1] - SCALE[0]))
        ratio = math.exp(log_low + shape * (log_high - log_low))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return Crop(int(down * (height - h + 1)), int(right * (width - w + 1)), h, w, flip)
    return middle(height, width, flip)


def middle(height: int, width: int, flip: bool = False) -> Crop:
    """The largest box in the image's middle whose ratio lies in `RATIO`."""
    h, w = height, width
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    return Crop((height - h) // 2, (width - w) // 2, h, w, flip)
