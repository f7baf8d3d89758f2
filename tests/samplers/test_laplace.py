"""The last layer's precision is the dense Gauss–Newton matrix of autograd, and draws have that Gaussian's law."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacrev

from raychains.samplers import SGDM, LastLayerLaplace
from raychains.samplers.laplace import LARGEST
from raychains.tasks.base import seeded
from raychains.tasks.likelihoods import Classes, GaussianNoise, Heteroscedastic, Likelihood
from tests.checks import refused
from tests.spread import spread

N, DECAY = 14, 0.05


def network(outputs: int, bias: bool = True) -> nn.Sequential:
    with seeded(2):
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs, bias=bias)).double()


def inputs(n: int = N) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def sampler_of(model: nn.Sequential, **settings: Any) -> LastLayerLaplace:
    return LastLayerLaplace(
        model.parameters(), **{"lr": 0.1, "num_data": N, "weight_decay": DECAY, "seed": 0, **settings}
    )


def measured(model: nn.Sequential, likelihood: Likelihood, n: int = N, **settings: Any) -> LastLayerLaplace:
    """A sampler that was shown n examples in two batches."""
    sampler = sampler_of(model, **settings)
    with torch.no_grad():
        for x in inputs(n).split(9):
            sampler.measure(model[2], model[:2](x), likelihood.fisher(model, model(x)))
    return sampler


def dense(model: nn.Sequential, expected: Callable[[Tensor], Tensor]) -> np.ndarray:
    """Σ JᵀFJ over examples by autograd, in the order of (output, input or bias); ``expected`` is F of one example's
    outputs."""
    head = {n: p.detach() for n, p in model[2].named_parameters()}
    total = 0.0
    for phi in model[:2](inputs()).detach():
        jacobian = jacrev(lambda ps, phi=phi: functional_call(model[2], ps, (phi[None],))[0])(head)
        parts = [jacobian["weight"], *([jacobian["bias"][:, :, None]] if "bias" in head else [])]
        flat = torch.cat(parts, dim=2).flatten(1)
        outputs = functional_call(model[2], head, (phi[None],))[0]
        total = total + flat.T @ expected(outputs) @ flat
    return total.numpy()


def softmax_hessian(outputs: Tensor) -> Tensor:
    return hessian(lambda f: torch.logsumexp(f, 0) - f[0])(outputs)  # the same for every label


def gaussian_hessian(outputs: Tensor) -> Tensor:
    return hessian(lambda f: f.square().sum() / (2 * 0.3**2))(outputs)


def averaged_hessian(likelihood: Heteroscedastic, outputs: Tensor) -> Tensor:
    """The Hessian of −log p(y | f), averaged over y by Gauss and Hermite's rule, which is exact for squares of y."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    mean, sigma = likelihood.noise.split(outputs)
    model, found = nn.Module(), torch.zeros(2, 2, dtype=torch.float64)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        y = (mean + node * sigma).detach()[None]
        found = found + weight * hessian(lambda f, y=y: likelihood.loss(model, f[None], y))(outputs)
    return found


HETEROSCEDASTIC = Heteroscedastic()
CASES: dict[str, tuple[Likelihood, int, bool, Callable[[Tensor], Tensor]]] = {
    "classes": (Classes(), 3, True, softmax_hessian),
    "classes without bias": (Classes(), 3, False, softmax_hessian),
    "gaussian": (GaussianNoise(0.3), 2, True, gaussian_hessian),
    "heteroscedastic": (HETEROSCEDASTIC, 2, True, lambda f: averaged_hessian(HETEROSCEDASTIC, f)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_precision_is_the_dense_gauss_newton_matrix_of_autograd(case: str) -> None:
    likelihood, outputs, bias, expected = CASES[case]
    model = network(outputs, bias)
    found = measured(model, likelihood).state[model[2].weight]["precision"]
    np.testing.assert_allclose(found.numpy(), dense(model, expected), rtol=1e-10, atol=1e-12)


def test_a_learned_noise_counts_as_it_is() -> None:
    model = GaussianNoise("learned").extend(network(2))
    with torch.no_grad():
        model.get_parameter("log_noise").fill_(math.log(0.3))
    x = inputs()
    known, learned = (
        noise.fisher(model, model[2](model[:2](x))) for noise in (GaussianNoise(0.3), GaussianNoise("learned"))
    )
    torch.testing.assert_close(known, learned, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("temperature", "bias"), spread([1.0, 0.5], [True, False]))
def test_draws_have_the_gaussian_of_precision_and_prior(temperature: float, bias: bool) -> None:
    """Mean and covariance of 5,000 draws within 5 standard errors; nothing but the last layer is drawn."""
    model, count = network(3, bias), 5_000
    sampler = measured(model, Classes(), temperature=temperature, prediction_samples=count)
    exact = temperature * np.linalg.inv(dense(model, softmax_hessian) + N * DECAY * np.eye(15 if bias else 12))
    draws = [tensors for name, tensors in sampler.draws() if name == "theta"]
    assert len(draws) == count == LastLayerLaplace.variables({"prediction_samples": count})["theta"]
    assert all(t[0] is model[0].weight and t[1] is model[0].bias for t in draws)

    def flat(tensors: list[Tensor]) -> Tensor:
        return torch.cat([t.detach().reshape(3, -1) for t in tensors[2:]], dim=1).flatten()

    away = (torch.stack([flat(t) for t in draws]) - flat(list(model.parameters()))).numpy()
    assert np.abs(away.mean(0) / np.sqrt(np.diag(exact) / count)).max() < 5
    products = away[:, :, None] * away[:, None, :]
    assert np.abs((products.mean(0) - exact) / (products.std(0) / math.sqrt(count))).max() < 5


def test_weight_and_bias_may_have_priors_of_their_own() -> None:
    model = network(3)
    body, (weight, bias) = list(model[:2].parameters()), (model[2].weight, model[2].bias)
    groups = [{"params": body}, {"params": [bias], "weight_decay": 1e6}, {"params": [weight]}]
    sampler = LastLayerLaplace(groups, lr=0.1, num_data=N, weight_decay=1e-3, seed=0, prediction_samples=50)
    with torch.no_grad():
        sampler.measure(model[2], model[:2](inputs()), Classes().fisher(model, model(inputs())))
    spread = [torch.stack([t[i] for _, t in sampler.draws()]).std() for i in (2, 3)]
    assert torch.stack([t[2] - bias for _, t in sampler.draws()]).abs().max() < 2e-3
    assert spread[1] > 0.5


def test_at_temperature_0_it_is_sgdm_and_above_it_nothing_moves() -> None:
    paths = []
    for kind in (LastLayerLaplace, SGDM):
        theta = torch.linspace(-1, 1, 6, dtype=torch.float64).requires_grad_()
        sampler = kind([theta], lr=0.1, momentum=0.8, num_data=3, weight_decay=0.01, temperature=0.0)
        path = []
        for k in range(20):
            theta.grad = theta.detach() + math.sin(k)
            sampler.step()
            path.append(theta.detach().clone())
        paths.append(path)
        if kind is LastLayerLaplace:
            sampler.param_groups[0]["temperature"] = 1.0
            sampler.step()
            assert torch.equal(theta, path[-1]) and sampler.kinetic() is None and sampler.effective_noise_std() == 0
    assert all(torch.equal(a, b) for a, b in zip(*paths, strict=True))


def test_part_of_the_data_stands_for_all_and_no_example_counts_twice() -> None:
    """Half of N examples give the Gaussian of each twice; those after N nothing; a step at temperature 0 forgets
    them."""
    model = network(3)
    sampler = measured(model, Classes(), n=7, prediction_samples=1)
    ((_, half),) = sampler.draws()
    twice = measured(model, Classes(), n=7, num_data=7, weight_decay=2 * DECAY, prediction_samples=1)
    state = twice.state[model[2].weight]
    state["precision"] = 2 * state["precision"]  # with Nλ as it was
    ((_, whole),) = twice.draws()
    assert torch.equal(half[2], whole[2])
    full, more = measured(model, Classes()), measured(model, Classes())
    with torch.no_grad():
        more.measure(model[2], model[:2](inputs()), Classes().fisher(model, model(inputs())))
    assert torch.equal(*(s.state[model[2].weight]["precision"] for s in (full, more)))
    crossed, once = (measured(model, Classes(), n=N, num_data=N - k, prediction_samples=1) for k in (2, 0))
    crossed.num_data = N  # as if its last batch had gone two beyond N
    crossed.state[model[2].weight]["measured"] = 2 * N
    crossed.state[model[2].weight]["precision"] *= 2
    assert torch.equal(*(next(iter(s.draws()))[1][2] for s in (crossed, once)))
    more.param_groups[0]["temperature"] = 0.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    more.step()
    assert all(a is b for _, t in more.draws() for a, b in zip(t, model.parameters(), strict=True))
    assert "precision" not in more.state[model[2].weight]


def test_drawing_moves_nothing_can_be_repeated_and_is_another_after_a_step() -> None:
    model = network(3)
    sampler = measured(model, Classes(), prediction_samples=3)
    before = [p.detach().clone() for p in model.parameters()]
    one, two = ([t[2] for _, t in sampler.draws()] for _ in range(2))
    sampler.step()
    three = [t[2] for _, t in sampler.draws()]
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert len({float(t.sum()) for t in one + three}) == 6
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_what_cannot_be_measured_is_refused() -> None:
    model, x = network(3), inputs()
    fisher = Classes().fisher(model, model(x))
    sampler = sampler_of(model)
    with refused("layer", "weight", "bias"):
        sampler.measure(network(3)[2], model[:2](x), fisher)
    with refused("features", "[n, inputs]"):
        sampler.measure(model[2], x, fisher)
    with refused("at most", f"{LARGEST:,}"):
        sampler.measure(nn.Linear(LARGEST, 1), x, fisher)
    sampler.measure(model[2], model[:2](x), fisher)
    with refused("layer", "another"):
        sampler.measure(model[0], x, torch.ones(N, 4, 4))
    with refused("weight_decay", "above 0"):
        list(measured(model, Classes(), weight_decay=0.0).draws())
    with refused("prediction_samples"):
        sampler_of(model, prediction_samples=0)
