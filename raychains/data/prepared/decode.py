"""From JPEG bytes to the pixels that a network sees, as bytes: normalisation is the device's work."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from raychains.data.prepared.crops import random_crop

Array = np.ndarray[Any, Any]
RESIZED = 256 / 224
"""Shorter side over the central crop in evaluation."""


def image_of(jpeg: bytes | memoryview) -> Image.Image:
    """The picture in red, green and blue.

    Raises:
        OSError: no picture, or a damaged one.
    """
    image = Image.open(io.BytesIO(jpeg))
    return image if image.mode == "RGB" else image.convert("RGB")


def augmented(jpeg: bytes | memoryview, size: int, seed: int, index: int) -> Array:
    """A random crop of the picture, mirrored or not, as uint8 [size, size, 3]."""
    image = image_of(jpeg)
    crop = random_crop(seed, index, image.height, image.width)
    box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    pixels = np.asarray(image.crop(box).resize((size, size), Image.Resampling.BILINEAR))
    return np.ascontiguousarray(pixels[:, ::-1] if crop.flip else pixels)


def central(jpeg: bytes | memoryview, size: int) -> Array:
    """The middle of the picture, its shorter side scaled to 256/224 of ``size``, as uint8 [size, size, 3]."""
    image = image_of(jpeg)
    short = round(size * RESIZED)
    width, height = image.size
    scaled = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
    image = image.resize(scaled, Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return np.asarray(image.crop((left, top, left + size, top + size)))
