"""Augmentation and normalisation of a whole batch of byte images at once, on the device where they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_and_flip(images: Tensor, generator: torch.Generator, *, padding: int = 4, flip: bool = True) -> Tensor:
    """Return each image shifted by its own offset within zero padding and, by its own fair coin, mirrored left to
    right.

    The law is that of torchvision's ``RandomCrop(size, padding)`` and then ``RandomHorizontalFlip()``.

    Args:
        images: [n, channels, height, width] of any dtype, on any device.
        generator: on the images' device.
        padding: zeros added on each side; offsets are uniform in [0, 2·padding].
        flip: whether to mirror.

    Returns:
        The same shape and dtype.
    """
    tops, lefts, flips = draw(len(images), generator, padding=padding, flip=flip)
    return shifted(images, tops, lefts, flips, padding=padding)


def draw(
    n: int, generator: torch.Generator, *, padding: int = 4, flip: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Draw the numbers of `crop_and_flip`: int64 offsets from above and from the left [n], and bool [n] (None without
    flips)."""
    device = generator.device
    tops, lefts = torch.randint(0, 2 * padding + 1, (2, n), generator=generator, device=device)
    flips = torch.randint(0, 2, (n,), generator=generator, device=device).bool() if flip else None
    return tops, lefts, flips


def shifted(images: Tensor, tops: Tensor, lefts: Tensor, flips: Tensor | None, *, padding: int) -> Tensor:
    """Return the windows of the padded images that start at (``tops``, ``lefts``), mirrored where ``flips`` says so."""
    n, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    columns = torch.arange(width, device=images.device).expand(n, width)
    if flips is not None:
        columns = torch.where(flips[:, None], width - 1 - columns, columns)
    rows = tops[:, None] + torch.arange(height, device=images.device)
    index = rows[:, :, None] * padded.shape[-1] + (lefts[:, None] + columns)[:, None, :]
    flat = index.view(n, 1, height * width).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, flat).view(n, channels, height, width)


def normalise(
    images: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    *,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Return (images / 255 − mean) / std per channel, computed in float32 (float64 for that ``dtype``) and then
    rounded.

    ``mean`` and ``std`` are those of each channel on the scale [0, 1]: see `raychains.data.sets.statistics`.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    scale, shift = _affine(tuple(mean), tuple(std), wide, images.device)
    if images.device.type == "cpu":  # where addcmul takes four times as long
        return images.to(wide).mul_(scale).add_(shift).to(dtype).contiguous(memory_format=memory_format)
    return torch.addcmul(shift, images.contiguous(memory_format=memory_format), scale).to(dtype)


@lru_cache(maxsize=64)
def _affine(
    mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return 1 / (255·std) and −mean / std, each [channels, 1, 1]; kept, because sending them to a GPU waits for it."""
    m, s = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))
    return (1 / (255 * s)).to(device, dtype), (-m / s).to(device, dtype)
