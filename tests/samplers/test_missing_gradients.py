"""A parameter that a minibatch does not use: its gradient is 0 for samplers, and optimisers skip it, as torch's do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raychains.samplers import KINDS, MCLMC, SGLD, Sampler
from tests.checks import refused
from tests.samplers.every_kind import CASES, build, everything, force, same_bits

OPTIMISERS = {"sgd", "sgdm", "adamw", "sam", "bsam", "swag", "laplace", "entropy-sgd"}
SAMPLERS = [(kind, own) for kind, own in CASES if kind not in OPTIMISERS]
Gradient = Callable[[Tensor], Tensor | None]


def trained(sampler: Sampler, gradient: Gradient, count: int = 6) -> Sampler:
    """Steps in which the first parameter always has a gradient and the others have one in every third step."""
    first, *others = sampler.parameters()
    for k in range(count):

        def closure(k: int = k) -> Tensor:
            first.grad = force(first.detach(), 0, k)
            for p in others:
                p.grad = force(p.detach(), 1, k) if k % 3 == 0 else gradient(p)
            return torch.zeros(())

        if sampler.gradients_per_step == 1:
            closure()
            sampler.step()
        else:
            sampler.step([closure] * sampler.parts)
    return sampler


def parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((2, 3), (4,), ())]


@pytest.mark.parametrize(("kind", "own"), SAMPLERS, ids=[f"{k}-{o}" for k, o in SAMPLERS])
def test_a_missing_gradient_is_the_gradient_0_for_samplers_to_the_bit(kind: str, own: dict[str, Any]) -> None:
    runs = [
        everything(trained(build(kind, parameters(), seed=1, weight_decay=0.1, **own), gradient))
        for gradient in (lambda p: None, torch.zeros_like)
    ]
    assert same_bits(*runs)


def test_the_kinds_above_are_those_that_do_not_skip() -> None:
    assert {kind for kind, c in KINDS.items() if c.missing_grad == "skip"} == OPTIMISERS
    assert {c.missing_grad for c in KINDS.values()} == {"zero", "skip"}


def moved(sampler: Sampler, gradient: Gradient = lambda p: None) -> list[bool]:
    """Whether each parameter moves in one step in which only the first has a gradient."""
    before = [p.detach().clone() for p in sampler.parameters()]

    def closure() -> Tensor:
        first, *others = sampler.parameters()
        first.grad = torch.ones_like(first)
        for p in others:
            p.grad = gradient(p)
        return torch.zeros(())

    sampler.step(closure)
    return [not torch.equal(p.detach(), q) for p, q in zip(sampler.parameters(), before, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_optimisers_and_groups_skip_and_the_samplers_that_move_all_together_refuse(kind: str) -> None:
    one, *others = parameters()
    groups: list[dict[str, Any]] = [{"params": [one]}, {"params": others, "missing_grad": "skip"}]
    if kind == "mclmc":
        with refused("missing_grad", "'skip'", "'zero'"):
            build(kind, groups)
        return
    skips = parameters() if kind in OPTIMISERS else groups
    for sampler in (build(kind, params, weight_decay=0.1, seed=0) for params in (skips, groups)):
        assert moved(sampler) == [True, False, False]
        assert not sampler.state.keys() & set(sampler.parameters()[1:])
    sampler.param_groups[1]["missing_grad"] = "zero"
    assert moved(sampler) == [True, True, True]
    sampler.param_groups[1]["missing_grad"] = "none"
    with refused("missing_grad", "'none'", "'zero' or 'skip'"):
        moved(sampler)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gradient", [lambda p: None, torch.ones_like], ids=["none", "stale"])
def test_a_frozen_parameter_stays(kind: str, gradient: Gradient) -> None:
    params = parameters()
    params[1].requires_grad_(False)
    sampler = build(kind, params, weight_decay=0.1, seed=0)
    assert [moved(sampler, gradient)[i] for i in (0, 1)] == [True, False]


def test_a_parameter_that_is_frozen_later_stays_or_is_refused_where_all_move_together() -> None:
    for kind in (SGLD, MCLMC):
        params = parameters()
        sampler = kind(params, lr=0.1, num_data=10)
        assert moved(sampler) == [True, True, True]
        params[1].requires_grad_(False)
        if kind is MCLMC:
            with refused("params", "frozen", "mclmc"):
                moved(sampler)
        else:
            assert moved(sampler) == [True, False, True]


@pytest.mark.parametrize("kind", [k for k, c in KINDS.items() if c.gradients_per_step == 1])
def test_before_the_first_gradient_a_step_does_nothing_and_after_it_goes_on(kind: str) -> None:
    sampler = build(kind, parameters(), weight_decay=0.1, seed=0)
    start = everything(sampler)
    start = [t.clone() for t in start]
    sampler.step()
    assert same_bits(everything(sampler), start)
    moved(sampler)
    before = [p.detach().clone() for p in sampler.parameters()]
    sampler.zero_grad()
    sampler.step()
    assert [torch.equal(p.detach(), q) for p, q in zip(sampler.parameters(), before, strict=True)] == [
        kind in OPTIMISERS
    ] * 3


def test_a_weight_that_one_example_of_eight_uses_has_its_exact_posterior() -> None:
    """y = t·x with x = 1 for one example of 8 and else 0, noise 1, prior N(0, 1), y = 2 at x = 1: t is N(1, 1/2).

    A batch of 2 has the example with probability 1/4, b = 1: θ ← (1 − lr·(λ + b/2))·θ + lr·b + noise, λ = 1/8, whose
    moments at a finite lr are those below. 8 experts of 500 chains each have batches of their own.
    """
    torch.manual_seed(0)
    chains, lr, decay = 4000, 0.05, 1 / 8
    experts = [nn.Parameter(torch.zeros(chains // 8)) for _ in range(8)]
    sampler = SGLD(experts, lr=lr, num_data=8, weight_decay=decay, seed=1)
    found = []
    for step in range(800):
        sampler.zero_grad()
        used = [t for t in experts if torch.rand(()) < 0.25]
        if used:
            sum(((2 - t).square() / 4).sum() for t in used).backward()
        sampler.step()
        if step >= 400 and step % 50 == 0:
            found.append(torch.cat([t.detach() for t in experts]))
    draws = torch.stack(found).double()
    # Moments of the update with b ∈ {0, 1}: a = 1 − lr(λ + b/2), c = lr·b, noise 2·lr/8.
    a, a2 = 1 - lr * (decay + 0.125), 0.75 * (1 - lr * decay) ** 2 + 0.25 * (1 - lr * (decay + 0.5)) ** 2
    c, ac, c2 = lr * 0.25, 0.25 * lr * (1 - lr * (decay + 0.5)), lr**2 * 0.25
    mean = c / (1 - a)
    variance = (2 * ac * mean + c2 + 2 * lr / 8) / (1 - a2) - mean**2
    assert (mean, variance) == (pytest.approx(1.0), pytest.approx(0.5, abs=0.06))
    # Chains of one expert share their batches: the standard error is that of 8 means.
    means = draws.mean(0).reshape(8, -1).mean(1)
    assert float(means.mean()) == pytest.approx(mean, abs=4 * float(means.std()) / math.sqrt(8))
    assert float(draws.var()) == pytest.approx(variance, abs=0.05)
