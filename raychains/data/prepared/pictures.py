"""From JPEG bytes to the pixels that a network sees, as bytes: crops, mirrors and sizes; normalisation is the device's
work.

A crop comes from a counter-based stream of (epoch's seed, index of the image), so that the same image of the same epoch
is cut alike by whichever process decodes it, whenever that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from raychains.core import bounded
from raychains.data.prepared.order import Array

ATTEMPTS = 10
"""Boxes that are tried before the image's middle is taken, as in torchvision."""
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Shares of the image's area, and ratios width/height, between which a crop is drawn."""
RESIZED = 256 / 224
"""Shorter side over the central crop in evaluation."""
LONGEST = 16
"""Ratio of a picture's sides above which its ends are cut off before it is scaled."""
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
    """Return 4·`ATTEMPTS` + 1 numbers in [0, 1) for the ``index``-th image under an epoch's seed."""
    raw = np.random.Philox(key=[seed & (2**64 - 1), 0], counter=[0, 0, CROPS, index]).random_raw(4 * ATTEMPTS + 1)
    return (raw >> np.uint64(11)) * 2.0**-53


def random_crop(seed: int, index: int, height: int, width: int) -> Crop:
    """Return Inception's crop (area in `SCALE`, ratio in `RATIO`), mirrored half of the time.

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
    """Return the largest box in the image's middle whose ratio lies in `RATIO`."""
    h, w = height, width
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    return Crop((height - h) // 2, (width - w) // 2, h, w, flip)


def image_of(jpeg: bytes | memoryview) -> Image.Image:
    """Decode a picture in red, green and blue.

    Raises:
        OSError: no picture, or a damaged one.
    """
    image = bounded.decoded(jpeg, ("JPEG",))
    return image if image.mode == "RGB" else image.convert("RGB")


def augmented(jpeg: bytes | memoryview, size: int, seed: int, index: int) -> Array:
    """Return a random crop of the picture, mirrored or not, as uint8 [size, size, 3]."""
    image = image_of(jpeg)
    crop = random_crop(seed, index, image.height, image.width)
    box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    pixels = np.asarray(image.crop(box).resize((size, size), Image.Resampling.BILINEAR))
    return np.ascontiguousarray(pixels[:, ::-1] if crop.flip else pixels)


def central(jpeg: bytes | memoryview, size: int) -> Array:
    """Return the middle of the picture, its shorter side scaled to 256/224 of ``size``, as uint8 [size, size, 3]."""
    image = image_of(jpeg)
    if max(image.size) > LONGEST * min(image.size):  # only its middle is seen, and the whole may fill the memory
        width, height = (min(side, LONGEST * min(image.size)) for side in image.size)
        left, top = (image.width - width) // 2, (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))
    short = round(size * RESIZED)
    width, height = image.size
    scaled = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
    image = image.resize(scaled, Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return np.asarray(image.crop((left, top, left + size, top + size)))
