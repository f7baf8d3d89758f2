"""`torch.compile` around a sampler's step, and around a whole training step, changes no bit of what is drawn.

The backend ``eager`` traces as the default one does, NumPy's part too, and needs no C++ compiler.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raychains.samplers import KINDS, SGHMC, Sampler
from tests.samplers.every_kind import build, everything, force, same_bits
from tests.spread import witnessed


def parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((40, 30), (5,))]


def steps(sampler: Sampler, *, compiled: bool) -> list[Any]:
    def moved(*closures: Any) -> list[Tensor]:
        sampler.step(*closures)
        return [t.clone() for _, tensors in sampler.draws() for t in tensors]

    step: Any = torch.compile(moved, backend="eager") if compiled else moved
    drawn: list[Tensor] = []
    for k in range(4):

        def closure(k: int = k) -> Tensor:
            for i, p in enumerate(sampler.parameters()):
                p.grad = force(p.detach(), i, k)
            return torch.zeros(())

        if sampler.gradients_per_step == 1:
            closure()
            drawn += step()
        else:
            drawn += step([closure] * sampler.parts)
    return drawn + everything(sampler)


@pytest.mark.parametrize("kind", witnessed(KINDS, "sghmc", "psgld", "sgnht", "emcmc", "swag", "sam"))
def test_a_compiled_step_and_its_draws_have_the_same_bits(kind: str) -> None:
    plain, compiled = (steps(build(kind, parameters(), seed=1), compiled=c) for c in (False, True))
    assert same_bits(plain, compiled)


def test_a_compiled_training_step_draws_the_same_bits() -> None:
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, x = nn.Linear(60, 50), torch.randn(8, 60)
        sampler = SGHMC(model.parameters(), lr=0.1, momentum=0.5, num_data=8, seed=1)

        def train(model: nn.Module = model, x: Tensor = x, sampler: Sampler = sampler) -> Tensor:
            sampler.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            sampler.step()
            return loss

        step: Any = torch.compile(train, backend="eager") if compiled else train
        for _ in range(4):
            step()
        found.append([p.detach() for p in model.parameters()])
    assert same_bits(*found)
