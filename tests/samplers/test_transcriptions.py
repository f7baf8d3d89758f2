"""Samplers with several lines per step against their plain transcriptions, with the same noise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers import BSAM, PSGLD, SAM, EntropySGD, EntropySGLD
from tests.samplers.transcriptions import (
    Pairs,
    bsam_groups,
    bsam_path,
    entropy_groups,
    entropy_path,
    psgld_groups,
    psgld_path,
    sam_groups,
    sam_path,
    tensors,
)


def parameters() -> list[Tensor]:
    return [t.requires_grad_() for t in tensors()]


def last(path: Pairs) -> list[Tensor]:
    """The transcription's tensors at its end; after every step they are the sampler's."""
    for got, expected in path:
        torch.testing.assert_close([t.detach() for t in got], expected, rtol=1e-11, atol=1e-13)
    return expected


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sam(momentum: float, parts: int) -> None:
    sampler = SAM(sam_groups(parameters()), lr=0.1, momentum=momentum, m_sharpness=parts)
    last(sam_path(sampler, momentum=momentum))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.4])
def test_bsam(temperature: float, parts: int) -> None:
    given: dict[str, Any] = {"num_data": 30, "temperature": temperature, "weight_decay": 0.01, "m_sharpness": parts}
    sampler = BSAM(bsam_groups(parameters()), lr=0.1, seed=5, **given)
    s = last(bsam_path(sampler, temperature=temperature, seed=5))[3:]
    inverse = float(torch.cat([(1 / x).flatten() for x in s[:2]]).mean())
    assert sampler.effective_noise_std() == pytest.approx(math.sqrt(temperature * inverse / 30), rel=1e-9)


@pytest.mark.parametrize("freeze", [None, 7, 12])
def test_psgld_with_noise_decay_and_freezing(freeze: int | None) -> None:
    given: dict[str, Any] = {"num_data": 40, "freeze_preconditioner_after": freeze}
    sampler = PSGLD(psgld_groups(parameters()), lr=0.01, seed=6, **given)
    v = last(psgld_path(sampler, freeze=freeze, seed=6))[3:]
    scale = torch.cat([(1 / (1e-5 + x.sqrt())).flatten() for x in v[:2]])
    std = float((2 * 0.01 * scale / 40).mean().sqrt())  # the lr of the last step, k = 19
    assert sampler.effective_noise_std() == pytest.approx(std, rel=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("kind", "temperature"), [(EntropySGD, 0.0), (EntropySGLD, 0.0), (EntropySGLD, 1.0)])
def test_entropy_sgd_and_sgld(kind: Any, temperature: float, momentum: float) -> None:
    given = {"momentum": momentum, "inner_steps": 5, "inner_noise": 1e-2, "temperature": temperature}
    sampler = kind(entropy_groups(parameters()), lr=0.5, num_data=20, seed=4, **given)
    last(entropy_path(sampler, momentum=momentum, temperature=temperature, seed=4))
