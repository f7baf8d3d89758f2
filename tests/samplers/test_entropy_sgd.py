"""Entropy-SGD and Entropy-SGLD: their plain transcription over nested loops, resumed in the middle of one."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers.entropy_sgd import EntropySGD, EntropySGLD
from raychains.samplers.noise import Noise
from tests.checks import refused

SHAPES = [(4, 3), (2,), (5, 2)]
KINDS = [EntropySGD, EntropySGLD]


def tensors(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in SHAPES]


def gradient(p: Tensor, step: int) -> Tensor:
    return (p + math.sin(step)).cos() * 0.7 + p


def settings(params: list[Tensor]) -> list[dict[str, Any]]:
    second = {
        "weight_decay": 0.2,
        "inner_steps": 3,
        "inner_lr": 0.2,
        "inner_noise": 0.0,
        "gamma": 0.5,
        "averaging": 0.5,
    }
    return [{"params": params[:2]}, {"params": params[2:], "lr": 0.3, "gamma_growth": 0.1, **second}]


def lr_at(step: int) -> float:
    return 0.5 / (1 + step % 4)


def advance(sampler: torch.optim.Optimizer, steps: range) -> None:
    for k in steps:
        sampler.param_groups[0]["lr"] = lr_at(k)
        for p in (p for group in sampler.param_groups for p in group["params"]):
            p.grad = gradient(p.detach(), k)
        sampler.step()


def transcription(*, steps: int, momentum: float, temperature: float, num_data: int, seed: int) -> Any:
    """After each step: θ′ and x of every parameter; one loop per line of the algorithm."""
    noise = Noise(seed)
    theta, x, mu = tensors(), tensors(), tensors()
    v = [torch.zeros(s, dtype=torch.float64) for s in SHAPES]
    for k in range(steps):
        for i in range(3):
            loops, inner_lr, eps, gamma0, growth, a, decay = (
                (5, 0.1, 1e-2, 0.03, 1e-3, 0.75, 0.0) if i < 2 else (3, 0.2, 0.0, 0.5, 0.1, 0.5, 0.2)
            )
            lr = lr_at(k) if i < 2 else 0.3
            gamma = gamma0 * (1 + growth) ** (k // loops)
            g = gradient(theta[i], k) + decay * theta[i]
            xi = noise.like(theta[i]) if eps else 0.0
            theta[i] = theta[i] - inner_lr * (g + gamma * (theta[i] - x[i])) + eps * math.sqrt(2 * inner_lr) * xi
            mu[i] = a * mu[i] + (1 - a) * theta[i]
            if (k + 1) % loops == 0:
                push = -lr * (x[i] - mu[i])
                if temperature:
                    xi = noise.like(theta[i])
                    push = push + math.sqrt(2 * (1 - momentum) * lr * temperature / num_data) * xi
                v[i] = momentum * v[i] + push
                x[i] = x[i] + momentum * v[i] + push
                theta[i] = mu[i] = x[i]
        yield list(theta), list(x)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_it_is_the_plain_transcription(momentum: float, temperature: float) -> None:
    params, own = [t.requires_grad_() for t in tensors()], {"momentum": momentum, "inner_steps": 5, "inner_noise": 1e-2}
    kind: Any = EntropySGLD if temperature else EntropySGD
    sampler = kind(settings(params), lr=0.5, num_data=20, temperature=temperature, seed=4, **own)
    expected = transcription(steps=23, momentum=momentum, temperature=temperature, num_data=20, seed=4)
    for k, (theta, x) in enumerate(expected):
        advance(sampler, range(k, k + 1))
        ((name, drawn),) = sampler.draws()
        assert name == "theta"
        for i in range(3):
            torch.testing.assert_close(params[i].detach(), theta[i], rtol=1e-11, atol=1e-13)
            torch.testing.assert_close(drawn[i], x[i], rtol=1e-11, atol=1e-13)


def test_entropy_sgld_at_temperature_0_is_entropy_sgd_bit_for_bit() -> None:
    both = []
    for kind in KINDS:
        params = [t.requires_grad_() for t in tensors()]
        sampler = kind(settings(params), lr=0.5, num_data=20, temperature=0.0, momentum=0.3, inner_steps=4, seed=4)
        advance(sampler, range(18))
        both.append([p.detach() for p in params])
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


def test_a_step_to_the_mean_of_one_inner_step_is_sgd() -> None:
    """L = 1, averaging 0, lr 1 and no noise: x moves to θ′, with the outer momentum by torch's Nesterov rule."""
    ours, theirs = ([t.requires_grad_() for t in tensors()] for _ in range(2))
    sampler = EntropySGD(ours, lr=1.0, inner_steps=1, averaging=0.0, inner_noise=0.0, inner_lr=0.02)
    sgd = torch.optim.SGD(theirs, lr=0.02, momentum=0.9, nesterov=True)
    for k in range(30):
        for optimizer, params in ((sampler, ours), (sgd, theirs)):
            for p in params:
                p.grad = gradient(p.detach(), k)
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_state_continues_bit_for_bit_from_the_middle_of_an_inner_loop(kind: Any, dtype: torch.dtype) -> None:
    def make(values: list[Tensor], seed: int) -> Any:
        params = [v.clone().requires_grad_() for v in values]
        return kind(settings(params), lr=0.5, num_data=20, momentum=0.6, inner_steps=5, inner_noise=0.05, seed=seed)

    straight = make(tensors(dtype), 3)
    advance(straight, range(13))  # 13 = 2·5 + 3 = 4·3 + 1
    saved, values = copy.deepcopy(straight.state_dict()), [p.detach().clone() for p in straight.parameters()]
    wide = torch.promote_types(dtype, torch.float32)
    assert {v.dtype for s in saved["state"].values() for v in s.values() if isinstance(v, Tensor)} == {wide}
    resumed = make(values, 99)
    resumed.load_state_dict(saved)
    for sampler in (straight, resumed):
        advance(sampler, range(13, 24))
    ((_, one),), ((_, two),) = straight.draws(), resumed.draws()
    pairs = zip([*straight.parameters(), *one], [*resumed.parameters(), *two], strict=True)
    for a, b in pairs:
        assert a.dtype == dtype and torch.equal(a, b) and bool(a.isfinite().all())


def test_effective_noise_std_is_the_inner_one_and_for_sgld_the_outer_one() -> None:
    p = torch.zeros(50_000, dtype=torch.float64, requires_grad=True)
    p.grad = torch.zeros_like(p)
    own: dict[str, Any] = {"lr": 0.3, "inner_steps": 1, "inner_lr": 0.2, "inner_noise": 0.01, "averaging": 0.0}
    sampler: Any = EntropySGD([p], momentum=0.0, seed=1, **{**own, "lr": 1.0})
    sampler.step()
    assert sampler.effective_noise_std() == pytest.approx(0.01 * math.sqrt(0.4), rel=1e-12)
    five = 5 / math.sqrt(2 * 50_000)  # standard errors of a standard deviation
    assert float(p.detach().std()) == pytest.approx(0.01 * math.sqrt(0.4), rel=five)
    with torch.no_grad():
        p.zero_()
    sampler = EntropySGLD([p], num_data=50, temperature=0.5, seed=1, **{**own, "inner_noise": 0.0})
    sampler.step()
    assert sampler.effective_noise_std() == pytest.approx(math.sqrt(2 * 0.3 * 0.5 / 50), rel=1e-12)
    assert float(p.detach().std()) == pytest.approx(math.sqrt(2 * 0.3 * 0.5 / 50), rel=five)


def test_outer_momentum_keeps_the_temperature() -> None:
    """On ℓ = ½h·x², L = 1, lr′ = s: x − μ = s·h·x, so that Var x → T/(N·s·h) as lr → 0, whatever the momentum."""
    variances = []
    for momentum in (0.0, 0.8):
        p = torch.zeros(30_000, dtype=torch.float64, requires_grad=True)
        sampler = EntropySGLD(
            [p], lr=0.04 * (1 - momentum), num_data=4, momentum=momentum, inner_steps=1, inner_lr=0.5, inner_noise=0.0,
            averaging=0.0, seed=2,
        )  # fmt: skip
        for _ in range(400):
            p.grad = p.detach().clone()
            sampler.step()
        variances.append(float(p.detach().square().mean()))
    # 5 standard errors, and lr·s·h/2 = 1 % for the finite step of either.
    for variance in variances:
        assert variance == pytest.approx(1 / (4 * 0.5), rel=5 * math.sqrt(2 / 30_000) + 0.01)


def test_a_scope_that_would_diverge_is_refused_in_one_line() -> None:
    p = torch.zeros(2, requires_grad=True)
    sampler = EntropySGD([p], lr=1.0, inner_steps=1, inner_lr=0.5, gamma=1.0, gamma_growth=1.0)
    p.grad = torch.zeros(2)
    for _ in range(2):
        sampler.step()
    with refused("gamma", "inner_lr", "4", "gamma_growth"):
        sampler.step()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inner_steps", 0), ("inner_steps", 2.0), ("inner_lr", 0.0), ("inner_noise", -1e-4), ("inner_noise", math.nan),
        ("gamma", 0.0), ("gamma", "0.1"), ("gamma_growth", -0.1), ("averaging", 1.0), ("averaging", -0.1),
        ("momentum", 1.0), ("lr", -1.0), ("temperature", -1.0), ("num_data", 0), ("weight_decay", math.inf),
    ],
)  # fmt: skip
def test_bad_setting_is_refused_in_one_line(kind: Any, field: str, value: Any) -> None:
    with refused(field):
        kind([torch.zeros(2, requires_grad=True)], **{"lr": 0.1, "num_data": 4, field: value})


def test_a_temperature_is_refused_and_the_noisy_relative_named() -> None:
    with refused("temperature", "entropy-sgd", "entropy-sgld"):
        EntropySGD([torch.zeros(2, requires_grad=True)], lr=0.1, temperature=0.5)
