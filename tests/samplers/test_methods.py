"""What single methods have beyond their law: closures for two gradients, draws of their own, a limit of stability."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.samplers import BSAM, SAM, EntropyMCMC, EntropySGD
from tests.checks import refused
from tests.samplers.transcriptions import advance, closure, loss_at, tensors


def test_the_loss_returned_is_the_mean_of_the_first_evaluations() -> None:
    params = [t.requires_grad_() for t in tensors()]
    sampler = SAM(params, lr=0.1, m_sharpness=2)
    expected = sum(float(loss_at(tensors(), 0, j)) for j in range(2)) / 2
    got = sampler.step([closure(params, 0, j) for j in range(2)])
    assert not got.requires_grad and float(got) == pytest.approx(expected, rel=1e-12)
    lanes = torch.ones(2, 3, requires_grad=True)
    sampler = SAM([lanes], lr=0.1, m_sharpness=2, lanes=2)

    def each() -> Tensor:
        losses = lanes.square().sum(1)
        losses.sum().backward()
        return losses.detach()

    assert sampler.step([each, each]).shape == (2,), "one for each lane"


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
    with refused("closure must call backward() on the loss"):
        sampler.step([lambda: torch.zeros(()), one])
    assert all(torch.equal(a, b.detach()) for a, b in zip(tensors(), params, strict=True))


# bSAM


def drawn(sampler: BSAM) -> list[list[Tensor]]:
    draws = list(sampler.draws())
    assert {name for name, _ in draws} == {"theta"}
    return [values for _, values in draws]


def test_each_draw_and_each_step_has_noise_of_its_own() -> None:
    sampler = BSAM([t.requires_grad_() for t in tensors()], lr=0.1, num_data=5, prediction_samples=3, seed=7)
    noise = []
    for k in range(2):
        advance(sampler, range(k, k + 1))
        noise += [values[0] - sampler.parameters()[0].detach() for values in drawn(sampler)]
    assert len(noise) == 6 and len({float(z[0, 0]) for z in noise}) == 6
    assert float((noise[3] / noise[0]).std()) > 0.1, "another update has other noise, not the same rescaled"


def test_draws_have_the_variational_law() -> None:
    """Mean m and variance T/(Ns) within 5 standard errors, for the s0 of each group before any update."""
    count, n, temperature = 40_000, 8, 0.5
    first, second = (torch.full((count,), value, dtype=torch.float64, requires_grad=True) for value in (1.0, -3.0))
    groups = [{"params": [first], "s0": 0.25}, {"params": [second], "s0": 4.0}]
    sampler = BSAM(groups, lr=0.1, num_data=n, temperature=temperature, prediction_samples=2, seed=1)
    before = copy.deepcopy(sampler.state_dict())
    for values in drawn(sampler):
        for w, mean, s in zip(values, (1.0, -3.0), (0.25, 4.0), strict=True):
            variance = temperature / (n * s)
            assert float(w.mean()) == pytest.approx(mean, abs=5 * math.sqrt(variance / count))
            assert float((w - mean).square().mean()) == pytest.approx(variance, rel=5 * math.sqrt(2 / count))
    assert sampler.state_dict()["state"] == before["state"] == {}
    for group in sampler.param_groups:
        group["temperature"] = 0.0
    assert all(torch.equal(w, p) for v in drawn(sampler) for w, p in zip(v, sampler.parameters(), strict=True))


# Entropy-SGD


def test_draws_are_the_last_outer_iterate() -> None:
    params = [t.requires_grad_() for t in tensors()]
    sampler = EntropySGD(params, lr=0.5, inner_steps=5, seed=0)
    ((_, start),) = sampler.draws()
    assert all(torch.equal(a, b) for a, b in zip(start, tensors(), strict=True))
    advance(sampler, range(4))
    inside = [x.clone() for _, draw in sampler.draws() for x in draw]
    assert all(torch.equal(a, b) for a, b in zip(inside, tensors(), strict=True)), "no outer step was made yet"
    assert not torch.equal(params[0].detach(), inside[0])
    advance(sampler, range(4, 5))
    ((_, after),) = sampler.draws()
    assert all(torch.equal(a, p.detach()) for a, p in zip(after, params, strict=True)), "θ′ restarts from x"
    assert not torch.equal(after[0], inside[0])
    assert EntropySGD.statistics_fit is False


def test_a_scope_that_would_diverge_is_refused_in_one_line() -> None:
    p = torch.zeros(2, requires_grad=True)
    sampler = EntropySGD([p], lr=1.0, inner_steps=1, inner_lr=0.5, gamma=1.0, gamma_growth=1.0)
    p.grad = torch.zeros(2)
    for _ in range(2):
        sampler.step()
    with refused("gamma", "inner_lr", "4", "gamma_growth"):
        sampler.step()


# Entropy-MCMC


@pytest.mark.parametrize(("factor", "stable"), [(0.98, True), (1.02, False)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_documented_stability_limit(momentum: float, factor: float, stable: bool) -> None:
    """lr·(largest eigenvalue of [[h+κ, −κ], [−κ, κ]]) < 2(1+m), κ = 1/(ηN); lr·(h + 2κ) < 2 is on the safe side."""
    h, eta, n = 2.0, 0.5, 3
    kappa = 1 / (eta * n)
    largest = float(np.linalg.eigvalsh([[h + kappa, -kappa], [-kappa, kappa]]).max())
    assert largest < h + 2 * kappa
    theta = torch.ones(1, dtype=torch.float64, requires_grad=True)
    lr = factor * 2 * (1 + momentum) / largest
    sampler = EntropyMCMC([theta], lr=lr, eta=eta, num_data=n, momentum=momentum, temperature=0.0)
    for _ in range(3000):
        theta.grad = h * theta.detach()
        sampler.step()
    assert bool(theta.abs() < 1e-3) is stable


def test_anchors_start_as_copies_and_unstepped_parameters_are_their_own() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    groups = [{"params": [used]}, {"params": [unused], "missing_grad": "skip"}]
    sampler = EntropyMCMC(groups, lr=0.1, eta=1.0, num_data=1, temperature=0.0)
    assert all(torch.equal(p, a) for p, a in zip(*dict(sampler.draws()).values(), strict=True))
    assert not sampler.state, "asking for draws makes no state"
    used.grad = torch.ones(2)
    sampler.step()
    theta, anchor = dict(sampler.draws()).values()
    assert torch.equal(theta[0].detach(), torch.full((2,), 0.9)) and torch.equal(anchor[0], torch.ones(2))
    assert anchor[1] is unused and unused not in sampler.state
