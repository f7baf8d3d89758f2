"""AdamW against torch's own, step for step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raychains.samplers import AdamW

SHAPES = ((5, 3), (7,), ())


def pair(dtype: torch.dtype) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [[torch.nn.Parameter(t.to(dtype, copy=True)) for t in drawn] for _ in range(2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "settings",
    [{}, {"weight_decay": 0.1}, {"beta1": 0.5, "beta2": 0.9, "eps": 1e-3, "weight_decay": 0.01}, {"beta1": 0.0}],
)
def test_every_step_is_that_of_torch(dtype: torch.dtype, settings: dict[str, float]) -> None:
    ours, theirs = pair(dtype)
    betas = settings.get("beta1", 0.9), settings.get("beta2", 0.999)
    own = {name: value for name, value in settings.items() if not name.startswith("beta")}
    mine = AdamW(ours, lr=0.02, **settings)
    reference = torch.optim.AdamW(theirs, lr=0.02, betas=betas, **{"weight_decay": 0.0, **own}, foreach=False)
    generator = torch.Generator().manual_seed(1)
    for step in range(60):
        for group in (*mine.param_groups, *reference.param_groups):
            group["lr"] = 0.02 / (1 + step / 10)
        for p, q in zip(ours, theirs, strict=True):
            p.grad = p.detach() ** 3 + torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype)
            q.grad = p.grad.clone()
        mine.step()
        reference.step()
        # One order of the same operations: at most a few last bits differ between versions of torch.
        for p, q in zip(ours, theirs, strict=True):
            torch.testing.assert_close(p, q, rtol=8 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)
