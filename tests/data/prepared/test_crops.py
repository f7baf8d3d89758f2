"""Crops against torchvision's rule with the same numbers, pixels against torchvision's transforms."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as F

from raychains.data.prepared.pictures import ATTEMPTS, Crop, augmented, central, middle, random_crop, uniforms
from tests.data.prepared.made import picture


class Told:
    """torchvision's random draws, replaced by given uniforms."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = iter(numbers)

    def empty(self, _: int) -> Told:
        return self

    def uniform_(self, low: float, high: float) -> torch.Tensor:
        return torch.tensor([low + next(self.numbers) * (high - low)], dtype=torch.float64)

    def randint(self, low: int, high: int, size: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([low + int(next(self.numbers) * (high - low))])


def by_torchvision(monkeypatch: pytest.MonkeyPatch, seed: int, index: int, height: int, width: int) -> tuple[int, ...]:
    drawn = uniforms(seed, index)
    # It draws two numbers per attempt and two more for the attempt that fits: skip those of attempts that do not.
    order: list[float] = []
    for i in range(ATTEMPTS):
        share, shape, down, right = drawn[4 * i : 4 * i + 4]
        order += [share, shape]
        area = height * width * (0.08 + share * 0.92)
        ratio = math.exp(math.log(3 / 4) + shape * (math.log(4 / 3) - math.log(3 / 4)))
        if 0 < round(math.sqrt(area * ratio)) <= width and 0 < round(math.sqrt(area / ratio)) <= height:
            order += [down, right]
            break
    told = Told(order)
    from torchvision.transforms import transforms

    with monkeypatch.context() as m:
        m.setattr(transforms.torch, "empty", told.empty)
        m.setattr(transforms.torch, "randint", told.randint)
        image = torch.zeros(3, height, width)
        return tuple(RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]))


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 375), (64, 64), (30, 700), (700, 30), (1, 1)])
def test_boxes_are_torchvisions_for_the_same_numbers(monkeypatch: pytest.MonkeyPatch, height: int, width: int) -> None:
    for index in range(40):
        crop = random_crop(5, index, height, width)
        box = (crop.top, crop.left, crop.height, crop.width)
        assert box == by_torchvision(monkeypatch, 5, index, height, width)


def test_the_middle_is_taken_where_no_box_fits() -> None:
    assert middle(30, 700) == Crop(0, 330, 30, 40) and middle(700, 30) == Crop(330, 0, 40, 30)
    assert middle(50, 60) == Crop(0, 0, 50, 60)


def test_draws_are_uniform_and_independent_of_each_other() -> None:
    """20,000 images: means within 4 standard errors of 1/2, half mirrored, neighbours and epochs uncorrelated."""
    drawn = np.array([uniforms(7, i) for i in range(20_000)])
    assert drawn.min() >= 0 and drawn.max() < 1
    assert np.abs(drawn.mean(0) - 0.5).max() < 4 / math.sqrt(12 * len(drawn))
    assert abs((drawn[:, -1] < 0.5).mean() - 0.5) < 4 * 0.5 / math.sqrt(len(drawn))
    other = np.array([uniforms(8, i) for i in range(20_000)])
    for a, b in ((drawn[1:, 0], drawn[:-1, 0]), (drawn[:, 0], other[:, 0]), (drawn[:, 0], drawn[:, 1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(len(drawn))


@pytest.mark.parametrize("index", range(6))
def test_training_pixels_are_torchvisions_crop_resize_and_flip(index: int) -> None:
    jpeg = picture(index, size=(90 + 20 * index, 70))
    image = Image.open(io.BytesIO(jpeg))
    crop = random_crop(3, index, image.height, image.width)
    size = [32, 32]
    expected = F.resized_crop(image, crop.top, crop.left, crop.height, crop.width, size, F.InterpolationMode.BILINEAR)
    expected = F.hflip(expected) if crop.flip else expected
    found = augmented(jpeg, 32, 3, index)
    assert found.dtype == np.uint8 and (found == np.asarray(expected)).all()


@pytest.mark.parametrize("size", [(90, 70), (70, 90), (64, 64), (301, 77)])
def test_evaluation_pixels_are_torchvisions_resize_and_centre_crop(size: tuple[int, int]) -> None:
    jpeg = picture(1, size=size)
    image = Image.open(io.BytesIO(jpeg))
    expected = F.center_crop(F.resize(image, 256, F.InterpolationMode.BILINEAR), [224, 224])
    assert (central(jpeg, 224) == np.asarray(expected)).all()


def test_grey_pictures_have_three_equal_channels() -> None:
    found = augmented(picture(2, mode="L"), 16, 0, 0)
    assert found.shape == (16, 16, 3) and (found[..., 0] == found[..., 2]).all()
