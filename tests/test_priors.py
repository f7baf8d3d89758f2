"""Priors against torch.distributions, closed-form gradients and numerical integration; coverage and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor, distributions

from raychains.core.errors import UserError
from raychains.models import ResNetPlus
from raychains.priors import (
    Factor,
    Flat,
    Gaussian,
    GroupLaplace,
    Laplace,
    Prior,
    Product,
    UnitNorm,
    from_json,
    resnet_plus_prior,
)
from tests.checks import refused

FACTORS: list[Factor] = [
    Gaussian(std=0.3, match="a.*"),
    Laplace(scale=2),
    GroupLaplace(scale=0.7, match="*.weight"),
    UnitNorm(std=0.01, match="*direction"),
    Flat(match="b"),
]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def f64(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def sphere_area(d: int) -> float:
    """Surface of the unit sphere from A(1) = 2, A(2) = 2π, A(d) = A(d−2)·2π/(d−2)."""
    area = {1: 2.0, 2: 2 * math.pi}
    for k in range(3, d + 1):
        area[k] = area[k - 2] * 2 * math.pi / (k - 2)
    return area[d]


def log_p(prior: Prior, w: Tensor) -> float:
    return float(prior.log_density({"w": w}))


def close(a: float, b: float, tolerance: float = 1e-12) -> None:
    assert abs(a - b) <= tolerance * max(1.0, abs(b)), (a, b)


# Densities


@pytest.mark.parametrize("shape", [(), (4,), (3, 2, 5)])
def test_gaussian_and_laplace_are_torchs(shape: tuple[int, ...]) -> None:
    w = normal(*shape)
    close(log_p(Gaussian(std=0.3), w), float(distributions.Normal(0.0, f64(0.3)).log_prob(w).sum()))
    close(log_p(Laplace(scale=2), w), float(distributions.Laplace(0.0, f64(2.0)).log_prob(w).sum()))


def test_gaussian_is_weight_decay_up_to_a_constant() -> None:
    """λ of weight_decay on N data is std = 1/√(Nλ): differences of log p are those of −N·½λ‖w‖²."""
    n, decay, a, b = 50_000, 5e-4, normal(6), normal(6, seed=1)
    prior = Gaussian(std=1 / math.sqrt(n * decay))
    close(log_p(prior, a) - log_p(prior, b), n * decay / 2 * float((b * b).sum() - (a * a).sum()))


@pytest.mark.parametrize(
    ("shape", "d"), [((5, 1), 1), ((5,), 1), ((), 1), ((3, 2), 2), ((4, 3, 2, 2), 12), ((1, 80), 80)]
)
def test_group_laplace_is_a_gamma_radius_times_a_uniform_direction(shape: tuple[int, ...], d: int) -> None:
    w, b = normal(*shape), 0.7
    radii = w.reshape(-1, d).norm(dim=1)
    radius = distributions.Gamma(f64(d), f64(1 / b))
    expected = radius.log_prob(radii) - math.log(sphere_area(d)) - (d - 1) * radii.log()
    close(log_p(GroupLaplace(scale=b), w), float(expected.sum()))


def test_group_laplace_of_single_weights_is_laplace() -> None:
    close(log_p(GroupLaplace(scale=0.4), normal(7)), log_p(Laplace(scale=0.4), normal(7)))


@pytest.mark.parametrize("std", [0.01, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("d", [1, 2, 3, 27, 288, 1152, 4608])
def test_unit_norms_normaliser_equals_numerical_integration(d: int, std: float) -> None:
    """The density times the shell's area integrates to 1 over the radius; the shells' mode is r(r−1) = (d−1)σ²."""
    mode = (1 + math.sqrt(1 + 4 * (d - 1) * std**2)) / 2
    log_area = math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)  # the area itself underflows

    def shell(r: float) -> float:
        v = torch.zeros(1, d, dtype=torch.float64)
        v[0, 0] = r
        return math.exp(log_p(UnitNorm(std=std), v) + log_area + (d - 1) * math.log(r))

    low, high = max(1e-12, mode - 12 * std), mode + 12 * std
    total, _ = quad(shell, low, high, points=[mode], epsabs=1e-11, limit=200)
    close(total, 1.0, 1e-9)


def test_unit_norm_depends_on_the_norm_alone_and_prefers_1() -> None:
    prior, v = UnitNorm(std=0.05), normal(1, 6)
    v /= v.norm()
    close(log_p(prior, v) - log_p(prior, 1.1 * v), 0.01 / (2 * 0.05**2), 1e-9)
    close(log_p(prior, v) - log_p(prior, 0.9 * v), 0.01 / (2 * 0.05**2), 1e-9)
    close(log_p(prior, v), log_p(prior, v.flip(1)))


# Gradients


def gradient(prior: Prior, w: Tensor) -> Tensor:
    w = w.clone().requires_grad_()
    prior.log_density({"w": w}).backward()
    assert w.grad is not None
    return w.grad


CLOSED_FORMS: list[tuple[Prior, Callable[[Tensor, Tensor], Tensor]]] = [
    (Gaussian(std=0.3), lambda w, r: -w / 0.09),
    (Laplace(scale=2), lambda w, r: -w.sign() / 2),
    (GroupLaplace(scale=0.7), lambda w, r: -w / r / 0.7),
    (UnitNorm(std=0.2), lambda w, r: -(r - 1) * w / r / 0.04),
    (Flat(), lambda w, r: torch.zeros_like(w)),
]


@pytest.mark.parametrize(("prior", "expected"), CLOSED_FORMS, ids=[type(p).__name__ for p, _ in CLOSED_FORMS])
def test_gradients_are_the_closed_forms(prior: Prior, expected: Callable[[Tensor, Tensor], Tensor]) -> None:
    w = normal(4, 3, 2)
    r = w.square().sum(dim=(1, 2), keepdim=True).sqrt()
    torch.testing.assert_close(gradient(prior, w), expected(w, r), rtol=1e-12, atol=1e-12)


def test_gradients_at_zero_are_finite() -> None:
    for prior in (Laplace(scale=1), GroupLaplace(scale=1), UnitNorm(std=0.1)):
        assert gradient(prior, torch.zeros(2, 3)).abs().max() == 0


def test_single_precision_parameters_lose_nothing_in_the_sum() -> None:
    """A million terms: float32 sums would be off by far more than the float64 sum of the same float32 values."""
    w = normal(1000, 1000).float()
    got = Gaussian(std=1).log_density({"w": w})
    expected = -0.5 * float((w.double() ** 2).sum()) - 1e6 * 0.5 * math.log(2 * math.pi)
    assert got.dtype == torch.float64
    close(float(got), expected, 1e-9)
    assert gradient(Gaussian(std=1), w).dtype == torch.float32


def test_half_precision_parameters_are_widened_first() -> None:
    v = normal(3, 500).bfloat16()
    close(log_p(UnitNorm(std=0.01), v), log_p(UnitNorm(std=0.01), v.float()))


# Names


PARAMETERS = {"a.weight": normal(3, 2), "a.bias": normal(3), "b.weight": normal(1, 3)}


def test_a_factor_takes_the_parameters_that_its_pattern_matches() -> None:
    got = float(Gaussian(std=1, match="*.weight").log_density(PARAMETERS))
    close(got, log_p(Gaussian(std=1), PARAMETERS["a.weight"]) + log_p(Gaussian(std=1), PARAMETERS["b.weight"]))
    with refused("gaussian", "*.wieght"):
        Gaussian(std=1, match="*.wieght").log_density(PARAMETERS)


def test_a_product_adds_its_factors_layer_by_layer() -> None:
    prior = Product([Gaussian(std=1, match="a.weight"), Laplace(scale=2, match="b.*"), Flat(match="a.bias")])
    expected = log_p(Gaussian(std=1), PARAMETERS["a.weight"]) + log_p(Laplace(scale=2), PARAMETERS["b.weight"])
    close(float(prior.log_density(PARAMETERS)), expected)


def test_a_product_covers_every_parameter_exactly_once() -> None:
    with refused("a.bias", "none", "Flat"):
        Product([Gaussian(std=1, match="*.weight")]).log_density(PARAMETERS)
    with refused("a.weight", "gaussian", "laplace"):
        Product([Gaussian(std=1), Laplace(scale=1, match="a.w*")]).log_density(PARAMETERS)
    with refused("laplace", "c.*"):
        Product([Gaussian(std=1), Laplace(scale=1, match="c.*")]).log_density(PARAMETERS)


# JSON


@pytest.mark.parametrize("prior", [*FACTORS, Product(FACTORS), resnet_plus_prior()], ids=lambda p: p.kind)
def test_json_round_trip(prior: Prior) -> None:
    again = from_json(json.loads(json.dumps(prior.to_json())))
    assert again == prior and hash(again) == hash(prior) and again.to_json() == prior.to_json()
    assert Laplace(scale=2).to_json() == Laplace(scale=2.0).to_json()
    assert json.dumps(Laplace(scale=2).to_json()) == json.dumps(Laplace(scale=2.0).to_json())


def test_bad_settings_and_bad_json_are_one_line() -> None:
    for make in (
        lambda: Gaussian(std=0),
        lambda: Laplace(scale=-1),
        lambda: GroupLaplace(scale=float("nan")),
        lambda: UnitNorm(std=True),
        lambda: Gaussian(std=1, match=""),
        lambda: Product([]),
        lambda: Product([1]),  # type: ignore[list-item]
        lambda: Product(Gaussian(std=1)),  # type: ignore[arg-type]
        lambda: resnet_plus_prior(bias_std=0),
    ):
        with pytest.raises(UserError) as caught:
            make()
        assert "\n" not in str(caught.value)
    with refused("prior", "gausian", "gaussian"):
        from_json({"kind": "gausian", "revision": 1})
    with refused("gaussian", "revision", "2"):
        from_json({"kind": "gaussian", "revision": 2, "std": 1.0})
    with refused("gaussian", "std"):
        from_json({"kind": "gaussian", "revision": 1})
    with refused("gaussian", "width"):
        from_json({"kind": "gaussian", "revision": 1, "std": 1.0, "width": 2})
    with refused("factors", "5"):
        from_json({"kind": "product", "revision": 1, "factors": 5})
    with refused("prior", "5"):
        from_json({"kind": "product", "revision": 1, "factors": [5]})


# ResNet++


def test_resnet_plus_prior_covers_the_network_and_is_the_sum_of_its_three_factors() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ResNetPlus(depth=8, width=4)
    named = dict(model.named_parameters())
    prior = resnet_plus_prior(scale=0.5, std=0.02, bias_std=0.8)
    expected = 0.0
    for name, p in named.items():
        w = p.detach().double()
        if name.endswith("direction"):
            expected += log_p(UnitNorm(std=0.02), w)
        elif name.endswith("scale"):
            expected += float(distributions.Laplace(0.0, 0.5).log_prob(w).sum())
        else:
            expected += float(distributions.Normal(0.0, 0.8).log_prob(w).sum())
    close(float(prior.log_density(named).detach()), expected, 1e-6)
    prior.log_density(named).backward()
    stem = model.stem
    assert stem.scale.grad is not None and stem.direction.grad is not None
    torch.testing.assert_close(stem.scale.grad, torch.full_like(stem.scale, -1 / 0.5))  # pulls a feature's norm to 0
    assert stem.direction.grad.abs().max() < 1e-2  # at ‖v‖ = 1 the direction feels nothing
