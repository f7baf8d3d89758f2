"""Crops and flips of a whole batch: each image as slicing alone would give it, offsets and flips of the right law."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.data import augment
from raychains.data.augment import crop_and_flip, normalise
from tests.data import small


def pictures(n: int, shape: tuple[int, ...] = (3, 8, 6), seed: int = 0) -> Tensor:
    return torch.randint(1, 256, (n, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sliced(image: np.ndarray, top: int, left: int, flip: bool, padding: int) -> np.ndarray:
    """One image by numpy: a window of the padded picture, mirrored or not."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    window = padded[:, top : top + height, left : left + width]
    return window[:, :, ::-1] if flip else window


@pytest.mark.parametrize(("padding", "flip"), [(4, True), (4, False), (2, True), (0, True), (0, False), (9, True)])
@pytest.mark.parametrize("n", [1, 2, 37])
def test_each_image_is_the_window_that_its_own_draw_names(n: int, padding: int, flip: bool) -> None:
    images = pictures(n)
    tops, lefts, flips = augment.draw(n, seeded(n), padding=padding, flip=flip)
    found = crop_and_flip(images, seeded(n), padding=padding, flip=flip)
    assert found.shape == images.shape and found.dtype == torch.uint8
    for i in range(n):
        mirrored = flips is not None and bool(flips[i])
        assert np.array_equal(
            found[i].numpy(), sliced(images[i].numpy(), int(tops[i]), int(lefts[i]), mirrored, padding)
        )
    assert flips is None or flip


def test_every_window_is_what_torchvisions_crop_and_flip_give() -> None:
    from torchvision.transforms import functional as T

    image, padding = pictures(1, (3, 5, 5)), 2
    padded = T.pad(image, [padding] * 4)
    for top, left, flip in itertools.product(range(5), range(5), (False, True)):
        theirs = T.crop(padded, top, left, 5, 5)
        theirs = T.hflip(theirs) if flip else theirs
        ours = augment.shifted(image, torch.tensor([top]), torch.tensor([left]), torch.tensor([flip]), padding=padding)
        assert torch.equal(ours, theirs)


def test_offsets_and_flips_are_uniform_and_independent() -> None:
    """All 162 combinations equally often; 5 standard errors are 1 in 10,000 for the worst of them."""
    n, cells = 400_000, 9 * 9 * 2
    tops, lefts, flips = augment.draw(n, seeded(0), padding=4, flip=True)
    assert flips is not None
    counts = torch.bincount((tops * 9 + lefts) * 2 + flips, minlength=cells)
    assert len(counts) == cells
    p = 1 / cells
    error = (n * p * (1 - p)) ** 0.5
    assert (counts - n * p).abs().max() < 5 * error
    chi = float(((counts - n * p) ** 2 / (n * p)).sum())
    assert abs(chi - (cells - 1)) < 5 * (2 * (cells - 1)) ** 0.5


def test_draws_of_neighbours_and_of_successive_batches_are_independent() -> None:
    n = 100_000
    generator = seeded(3)
    first, second = (augment.draw(n, generator)[0].double() - 4 for _ in range(2))
    variance = (9**2 - 1) / 12
    for a, b in ((first, second), (first[:-1], first[1:])):
        assert abs(float((a * b).mean())) < 5 * variance / n**0.5


def test_the_generator_alone_decides() -> None:
    images = pictures(16)
    copy = images.clone()
    torch.manual_seed(0)
    first = crop_and_flip(images, seeded(1))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(first, crop_and_flip(images, seeded(1)))
    assert not torch.equal(first, crop_and_flip(images, seeded(2)))
    assert torch.equal(before, torch.get_rng_state()) and torch.equal(images, copy)


# Normalisation

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def exact(images: Tensor) -> Tensor:
    x = images.double() / 255
    return (x - torch.tensor(MEAN).double()[:, None, None]) / torch.tensor(STD).double()[:, None, None]


def test_normalisation_is_torchvisions() -> None:
    from torchvision.transforms import Compose, Normalize, ToTensor

    images = torch.from_numpy(small.made("cifar10", 4)[0])
    theirs = Compose([ToTensor(), Normalize(MEAN, STD)])
    expected = torch.stack([theirs(i.permute(1, 2, 0).numpy()) for i in images])
    torch.testing.assert_close(normalise(images, MEAN, STD), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("dtype", "ulp"), [(torch.float64, 1e-7), (torch.float32, 1e-6), (torch.bfloat16, 2**-8)])
def test_every_byte_is_normalised_within_its_types_rounding(dtype: torch.dtype, ulp: float) -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(2, 3, 16, 16)
    found = normalise(images, MEAN, STD, dtype)
    assert found.dtype == dtype and found.shape == images.shape
    assert ((found.double() - exact(images)).abs() <= ulp * exact(images).abs() + 1e-6).all()


def test_channels_last_changes_the_layout_alone() -> None:
    images = pictures(3)
    plain, last = normalise(images, MEAN, STD), normalise(images, MEAN, STD, memory_format=torch.channels_last)
    assert torch.equal(plain, last)
    assert plain.is_contiguous() and last.is_contiguous(memory_format=torch.channels_last)
