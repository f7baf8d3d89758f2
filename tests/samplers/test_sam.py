"""SAM and what every method with two gradients shares: closures, the return from the perturbed point, lanes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers.bsam import BSAM
from raychains.samplers.sam import SAM
from tests.checks import refused

SHAPES = [(4, 3), (2,), (5, 2)]
DECAY, RHO = [0.0, 0.0, 0.2], [0.05, 0.05, 0.3]


def tensors(dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in SHAPES]


def loss_at(params: list[Tensor], step: int, part: int = 0) -> Tensor:
    """Couples all coordinates and changes with the step and the sub-minibatch."""
    total = torch.stack([(p * torch.arange(1, p.numel() + 1).reshape(p.shape) * 0.1).sum() for p in params]).sum()
    return torch.stack([(p**2 + (p + step).sin()).mean() for p in params]).sum() + (total + part).cos()


def closure(params: list[Tensor], step: int, part: int = 0) -> Callable[[], Tensor]:
    def evaluate() -> Tensor:
        for p in params:
            p.grad = None
        loss = loss_at(params, step, part)
        loss.backward()
        return loss

    return evaluate


def gradients(values: list[Tensor], step: int, part: int) -> list[Tensor]:
    points = [v.clone().requires_grad_() for v in values]
    return list(torch.autograd.grad(loss_at(points, step, part), points))


def settings(params: list[Tensor]) -> list[dict[str, Any]]:
    return [{"params": params[:2]}, {"params": params[2:], "weight_decay": 0.2, "rho": 0.3}]


def advance(sampler: Any, steps: range) -> None:
    params = sampler.parameters()
    for k in steps:
        sampler.param_groups[0]["lr"] = 0.05 * (1 + k % 3)
        sampler.step([closure(params, k, j) for j in range(sampler.parts)])


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_is_the_plain_transcription(momentum: float, parts: int) -> None:
    params = [t.requires_grad_() for t in tensors()]
    sampler = SAM(settings(params), lr=0.1, momentum=momentum, m_sharpness=parts)
    theta, v = tensors(), [torch.zeros(s, dtype=torch.float64) for s in SHAPES]
    for k in range(8):
        advance(sampler, range(k, k + 1))
        mean = [torch.zeros_like(t) for t in theta]
        for j in range(parts):
            g = [d + w * t for d, w, t in zip(gradients(theta, k, j), DECAY, theta, strict=True)]
            norm = math.sqrt(sum(float((x * x).sum()) for x in g))
            worst = [t + r * x / norm for t, r, x in zip(theta, RHO, g, strict=True)]
            again = [d + w * t for d, w, t in zip(gradients(worst, k, j), DECAY, worst, strict=True)]
            mean = [m + x / parts for m, x in zip(mean, again, strict=True)]
        for i in range(3):
            v[i] = momentum * v[i] - (0.05 * (1 + k % 3) if i < 2 else 0.1) * mean[i]
            theta[i] = theta[i] + v[i]
            torch.testing.assert_close(params[i].detach(), theta[i], rtol=1e-11, atol=1e-13)


def test_the_loss_returned_is_the_mean_of_the_first_evaluations() -> None:
    params = [t.requires_grad_() for t in tensors()]
    sampler = SAM(params, lr=0.1, m_sharpness=2)
    expected = sum(float(loss_at(tensors(), 0, j)) for j in range(2)) / 2
    got = sampler.step([closure(params, 0, j) for j in range(2)])
    assert not got.requires_grad and float(got) == pytest.approx(expected, rel=1e-12)


def test_without_a_gradient_there_is_no_perturbation() -> None:
    theta = torch.tensor([1.0, -2.0], requires_grad=True)
    seen = []

    def flat() -> Tensor:
        seen.append(theta.detach().clone())
        loss = 0 * theta.sum()
        loss.backward()
        return loss

    SAM([theta], lr=0.1).step(flat)
    assert len(seen) == 2 and all(torch.equal(s, torch.tensor([1.0, -2.0])) for s in [*seen, theta.detach()])


def test_parameters_without_gradient_are_left_alone() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    sampler = SAM([used, unused], lr=0.1, weight_decay=0.1)
    sampler.step(closure([used], 0))
    assert torch.equal(unused.detach(), torch.ones(2)) and not torch.equal(used.detach(), torch.ones(2))
    assert unused not in sampler.state


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_two_lanes_are_two_separate_sams_exactly(momentum: float) -> None:
    starts = [tensors(torch.float32, seed) for seed in (1, 2)]
    alone = []
    for start in starts:
        params = [t.clone().requires_grad_() for t in start]
        sampler = SAM(params, lr=0.1, momentum=momentum, rho=0.2, weight_decay=0.1)
        for k in range(6):
            sampler.step(closure(params, k))
        alone.append([p.detach() for p in params])
    stacked = [torch.stack(pair).requires_grad_() for pair in zip(*starts, strict=True)]
    sampler = SAM(stacked, lr=0.1, momentum=momentum, rho=0.2, weight_decay=0.1, lanes=2)

    def both(step: int) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            losses = torch.stack([loss_at([p[lane] for p in stacked], step) for lane in range(2)])
            losses.sum().backward()
            return losses.detach()

        return evaluate

    for k in range(6):
        assert sampler.step(both(k)).shape == (2,)
    for lane in range(2):
        for one, two in zip(alone[lane], stacked, strict=True):
            assert torch.equal(one, two.detach()[lane])


@pytest.mark.parametrize("kind", [SAM, BSAM])
@pytest.mark.parametrize("failing", [1, 2, 4])
def test_a_closure_that_raises_leaves_the_parameters_where_the_step_began(kind: Any, failing: int) -> None:
    params = [t.requires_grad_() for t in tensors()]
    sampler = kind(params, lr=0.1, num_data=10, m_sharpness=2, seed=1)
    advance(sampler, range(2))
    before = [p.detach().clone() for p in params]
    calls = 0

    def evaluate() -> Tensor:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise ZeroDivisionError("from the closure")
        return closure(params, 3)()

    with pytest.raises(ZeroDivisionError, match="from the closure"):
        sampler.step([evaluate, evaluate])
    assert calls == failing and all(torch.equal(a, b.detach()) for a, b in zip(before, params, strict=True))


@pytest.mark.parametrize("kind", [SAM, BSAM])
def test_wrong_closures_are_refused_in_one_line(kind: Any) -> None:
    params = [t.requires_grad_() for t in tensors()]
    sampler = kind(params, lr=0.1, num_data=10, m_sharpness=2)
    assert sampler.gradients_per_step == 2 and sampler.parts == 2
    one = closure(params, 0)
    with refused("closure", kind.kind):
        sampler.step()
    with refused("closure", kind.kind):
        sampler.step([one, 3])
    for wrong in ([], [one] * 3):
        with refused("2", kind.kind, "m_sharpness"):
            sampler.step(wrong)
    with refused("closure", "None"):
        sampler.step([lambda: None, one])
    assert all(torch.equal(a, b.detach()) for a, b in zip(tensors(), params, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [SAM, BSAM])
def test_state_continues_bit_for_bit(kind: Any, dtype: torch.dtype) -> None:
    def make(values: list[Tensor], seed: int) -> Any:
        params = [v.clone().requires_grad_() for v in values]
        return kind(settings(params), lr=0.1, num_data=10, m_sharpness=2, seed=seed)

    straight = make(tensors(dtype), 3)
    advance(straight, range(4))
    saved, values = copy.deepcopy(straight.state_dict()), [p.detach().clone() for p in straight.parameters()]
    wide = torch.promote_types(dtype, torch.float32)
    states = [v for s in saved["state"].values() for v in s.values() if isinstance(v, Tensor)]
    assert states and all(v.dtype == wide for v in states)
    resumed = make(values, 99)
    resumed.load_state_dict(saved)
    for sampler in (straight, resumed):
        advance(sampler, range(4, 9))
    for a, b, start in zip(straight.parameters(), resumed.parameters(), tensors(dtype), strict=True):
        assert a.dtype == dtype and torch.equal(a, b) and bool(a.isfinite().all()) and not torch.equal(a, start)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rho", 0.0), ("rho", -0.1), ("rho", math.nan), ("rho", "0.1"), ("momentum", 1.0), ("m_sharpness", 0),
        ("m_sharpness", 1.5), ("lr", -0.1), ("weight_decay", -1.0), ("temperature", 1.0),
    ],
)  # fmt: skip
def test_bad_setting_is_refused_in_one_line(field: str, value: Any) -> None:
    with refused(field):
        SAM([torch.zeros(2, requires_grad=True)], **{"lr": 0.1, field: value})


def test_a_temperature_is_refused_and_the_noisy_relative_named() -> None:
    with refused("temperature", "sam", "bsam"):
        SAM([torch.zeros(2, requires_grad=True)], lr=0.1, temperature=0.5)
