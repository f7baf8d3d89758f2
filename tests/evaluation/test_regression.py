"""The mixture of Gaussians of a regression, and the averaged likelihoods of a given loss, against scipy's densities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import nn

from raychains.evaluation.evaluation import SHARD, Reduced
from raychains.evaluation.regression import OutputNoise, Pointwise, Regression, crps, gaussians, reduce_regression
from raychains.tasks.likelihoods import LOG_NOISE

SAMPLES = 5


class Sine(nn.Module):
    """A network of [n, k] outputs with something nonlinear in it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.linear(x))


def case(n: int, k: int, learned: bool) -> tuple[Regression, list[dict[str, torch.Tensor]], torch.Tensor, np.ndarray]:
    """A split of n examples with k targets, samples, inputs and targets."""
    g = torch.Generator().manual_seed(n + k)
    x, y = torch.randn(n, 3, generator=g), torch.randn(n, k, generator=g).double().numpy()
    model = Sine(3, k)
    if learned:
        model.register_parameter("log_noise", nn.Parameter(torch.zeros(1)))
    samples = [
        {name: torch.randn(t.shape, generator=g) for name, t in model.state_dict().items()} for _ in range(SAMPLES)
    ]
    split = Regression(model=model, inputs=x, targets=y, noise=None if learned else 0.7, fingerprint="f")
    return split, samples, x, y


def by_hand(samples: list[dict[str, torch.Tensor]], x: torch.Tensor, learned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Means [S, n, k] and σ [S], in double precision."""
    xs = x.double().numpy()
    weights = [(s["linear.weight"].double().numpy(), s["linear.bias"].double().numpy()) for s in samples]
    means = np.stack([np.sin(xs @ w.T + b) for w, b in weights])
    sigma = np.array([math.exp(float(s["log_noise"])) if learned else 0.7 for s in samples])
    return means, sigma


def integrated_crps(means: np.ndarray, sigma: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∫(F(t) − 1[t ≥ y])² dt by Simpson's rule on either side of y, [n, k]; means [S, n, k], σ [S, n]."""
    out = np.zeros_like(y)
    for i, o in np.ndindex(*y.shape):
        m, s = means[:, i, o, None], sigma[:, i, None]
        far = np.abs(m - y[i, o]).max() + 10 * s.max()
        for end, above in ((y[i, o] - far, 0.0), (y[i, o] + far, 1.0)):
            t = np.linspace(min(end, y[i, o]), max(end, y[i, o]), 4001)
            out[i, o] += integrate.simpson((special.ndtr((t - m) / s).mean(0) - above) ** 2, x=t)
    return out


def evaluated(split: Regression | Pointwise, samples: list[dict[str, torch.Tensor]]) -> list[Reduced]:
    return [split.reduce([split.predict(s, shard) for s in samples], shard) for shard in range(split.shards)]


@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
@pytest.mark.parametrize("k", [1, 3])
def test_rows_and_metrics_are_those_of_scipys_mixture(k: int, learned: bool) -> None:
    split, samples, x, y = case(40, k, learned)
    means, sigma = by_hand(samples, x, learned)
    (part,) = evaluated(split, samples)
    each = np.stack(
        [stats.multivariate_normal.logpdf(y - m, cov=s**2 * np.eye(k)) for m, s in zip(means, sigma, strict=True)]
    )
    log_p = special.logsumexp(each, axis=0) - math.log(SAMPLES)
    np.testing.assert_allclose(part.rows["log_p"], log_p, rtol=1e-4, atol=1e-5)
    pit = stats.norm.cdf(y, means, sigma[:, None, None]).mean(0)
    np.testing.assert_allclose(part.rows["pit"].reshape(40, k), pit, atol=1e-5)
    mean = means.mean(0)
    # E[y²] − E[y]² of the mixture.
    std = np.sqrt((means**2 + sigma[:, None, None] ** 2).mean(0) - mean**2)
    np.testing.assert_allclose(part.rows["mean"].reshape(40, k), mean, atol=1e-5)
    np.testing.assert_allclose(part.rows["std"].reshape(40, k), std, rtol=1e-4)
    (found,) = split.summarise([part])
    assert found["rmse"] == pytest.approx(np.sqrt(((y - mean) ** 2).mean()), rel=1e-5)
    assert found["nll"] == pytest.approx(-log_p.mean(), rel=1e-5)
    inside = (pit >= 0.05) & (pit <= 0.95)
    assert found["coverage_error"] == pytest.approx(abs(inside.mean() - 0.9), abs=1e-12)
    for level in (0.5, 0.9, 0.95):
        inside = (pit >= (1 - level) / 2) & (pit <= (1 + level) / 2)
        assert found[f"coverage_{100 * level:.0f}"] == pytest.approx(inside.mean(), abs=1e-12)
    each_sigma = np.broadcast_to(sigma[:, None], (SAMPLES, 40))
    assert found["crps"] == pytest.approx(integrated_crps(means, each_sigma, y).mean(), rel=1e-4)
    assert list(found) == [m.name for m in split.metrics]
    assert part.rows["mean"].shape == ((40,) if k == 1 else (40, k))


def test_the_curve_of_the_first_samples_is_the_metric_of_those_samples() -> None:
    split, samples, _, _ = case(30, 2, True)
    (curve,) = split.curve(evaluated(split, samples))
    for s in range(1, SAMPLES + 1):
        (found,) = split.summarise(evaluated(split, samples[:s]))
        assert curve["rmse"][s - 1] == pytest.approx(found["rmse"], rel=1e-12)
        assert curve["nll"][s - 1] == pytest.approx(found["nll"], rel=1e-12)


def test_shards_add_up_to_the_whole_split() -> None:
    split, samples, x, y = case(SHARD + 7, 1, False)
    parts = evaluated(split, samples[:2])
    assert len(parts) == 2 and len(parts[1].rows["log_p"]) == 7
    means, sigma = by_hand(samples[:2], x, False)
    each = stats.norm.logpdf(y[None], means, sigma[:, None, None]).sum(-1)
    (found,) = split.summarise(parts)
    assert found["nll"] == pytest.approx(-(special.logsumexp(each, axis=0) - math.log(2)).mean(), rel=1e-5)
    (curve,) = split.curve(parts)
    assert curve["rmse"][-1] == pytest.approx(found["rmse"], rel=1e-12)


def test_a_given_loss_is_averaged_as_the_likelihood_that_it_is() -> None:
    split, samples, x, y = case(SHARD + 3, 1, False)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Mean NLL under σ = .7."""
        return -torch.distributions.Normal(output, 0.7).log_prob(target).sum(1).mean()

    other = Pointwise(model=Sine(3, 1), inputs=x, targets=torch.from_numpy(y).float(), loss=loss, fingerprint="f")
    mine, known = evaluated(other, samples), evaluated(split, samples)
    for a, b in zip(mine, known, strict=True):
        np.testing.assert_allclose(a.rows["log_p"], b.rows["log_p"], rtol=1e-4, atol=1e-5)
    assert other.summarise(mine)[0]["nll"] == pytest.approx(split.summarise(known)[0]["nll"], rel=1e-5)
    assert other.curve(mine)[0]["nll"] == pytest.approx(split.curve(known)[0]["nll"], rel=1e-5)


# The continuous ranked probability score


def mixture(samples: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, n, k)), rng.uniform(0.2, 2, (samples, n)), 1.5 * rng.normal(size=(n, k))


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_crps_equals_its_integral(samples: int) -> None:
    means, sigmas, y = mixture(samples, 5, 2, seed=samples)
    np.testing.assert_allclose(crps(means, sigmas, y), integrated_crps(means, sigmas, y), rtol=1e-6)


def test_crps_of_sharp_samples_is_the_ensembles_energy_form() -> None:
    """Mean |x_s − y| − ½ mean |x_s − x_t| over all pairs: what narrow Gaussians come to."""
    means, _, y = mixture(9, 40, 3)
    away = np.abs(means - y).mean(0) - 0.5 * np.abs(means[:, None] - means[None]).mean((0, 1))
    np.testing.assert_allclose(crps(means, np.full((9, 40), 1e-7), y), away, atol=1e-6)


def pairwise_crps(means: np.ndarray, sigmas: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Σ_s w_s E|X_s − y| − ½ Σ_s Σ_t w_s w_t E|X_s − X_t| by the folded normal's mean; one output, [n]."""

    def distance(m: np.ndarray, v: np.ndarray) -> np.ndarray:
        return stats.foldnorm.mean(np.abs(m) / np.sqrt(v), scale=np.sqrt(v))

    m, v = means[..., 0], sigmas**2
    each = w @ distance(m - y[:, 0], v)
    return each - 0.5 * np.einsum("s,t,stn->n", w, w, distance(m[:, None] - m, v[:, None] + v))


@pytest.mark.parametrize("apart", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0])
def test_crps_of_many_samples_equals_its_pairwise_form(apart: float, spread: float) -> None:
    """By pairs or by quadrature, as their number of terms decides for each example."""
    rng = np.random.default_rng(1)
    means, sigmas = apart * rng.normal(size=(150, 6, 1)), np.exp(spread * rng.normal(size=(150, 6)))
    y, w = 2 * rng.normal(size=(6, 1)), rng.dirichlet(np.ones(150))
    found = crps(means, sigmas, y, w)[:, 0]
    np.testing.assert_allclose(found, pairwise_crps(means, sigmas, y, w), rtol=0, atol=1e-9 * sigmas.max())


def test_a_sigma_that_no_float_holds_is_infinite() -> None:
    """A chain may leave with a finite log σ of any size: its density is 0, and nothing raises."""
    model = nn.Linear(1, 1)
    model.register_parameter(LOG_NOISE, nn.Parameter(torch.zeros(1)))
    for log_sigma, expected in ((709.0, math.exp(709.0)), (800.0, math.inf)):
        tensors = {**model.state_dict(), LOG_NOISE: torch.tensor([log_sigma])}
        block = gaussians(model, tensors, torch.zeros(2, 1), None)
        assert block[:, 1].tolist() == [expected] * 2


def test_crps_of_thousands_of_equal_samples_is_one_gaussians() -> None:
    """σ·(z(2Φ(z) − 1) + 2φ(z) − 1/√π), z = (y − μ)/σ: Gneiting & Raftery 2007, eq. 21; pairs of 60,000 samples would
    take hours."""
    means, sigmas = np.full((60_000, 3, 1), 0.5), np.full((60_000, 3), 0.2)
    z = np.array([-4.0, 0.0, 1.3])
    one = 0.2 * (z * (2 * special.ndtr(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    found = crps(means, sigmas, (0.5 + 0.2 * z)[:, None])[:, 0]
    np.testing.assert_allclose(found, one, rtol=0, atol=1e-10)


def test_weights_count_like_repetitions_of_samples() -> None:
    means, sigmas, y = mixture(3, 20, 2)
    repeated = np.repeat(np.arange(3), [1, 2, 5])
    expected = crps(means[repeated], sigmas[repeated], y)
    np.testing.assert_allclose(crps(means, sigmas, y, np.array([1, 2, 5]) / 8), expected, rtol=1e-10)


# Noise that depends on the input, and scales


def gaussian_case() -> tuple[Regression, list[dict[str, torch.Tensor]], np.ndarray, np.ndarray]:
    """A split whose network gives σ, samples, and their μ and σ, each [S, n], in double precision."""
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(40, 3, generator=g), torch.randn(40, generator=g).double().numpy()
    model = nn.Linear(3, 2)
    states = [{n: torch.randn(t.shape, generator=g) for n, t in model.state_dict().items()} for _ in range(SAMPLES)]
    raw = np.stack([x.double().numpy() @ s["weight"].double().numpy().T + s["bias"].double().numpy() for s in states])
    split = Regression(model=model, inputs=x, targets=y, noise=OutputNoise(floor=0.01), fingerprint="f", scale=7.5)
    return split, states, raw[..., 0], np.log1p(np.exp(raw[..., 1])) + 0.01


def test_a_network_that_gives_its_noise_is_scipys_mixture() -> None:
    split, states, means, sigmas = gaussian_case()
    y = split.targets[:, 0]
    (part,) = evaluated(split, states)
    log_p = special.logsumexp(stats.norm.logpdf(y, means, sigmas), axis=0) - math.log(SAMPLES)
    np.testing.assert_allclose(part.rows["log_p"], log_p, rtol=1e-4, atol=1e-5)
    mean, sd = means.mean(0), np.sqrt((sigmas**2 + means**2).mean(0) - means.mean(0) ** 2)
    np.testing.assert_allclose(part.rows["std"], sd, rtol=1e-4)
    (found,) = split.summarise([part])
    assert found["nll"] == pytest.approx(-log_p.mean(), rel=1e-5)
    assert found["nll_gaussian"] == pytest.approx(-stats.norm.logpdf(y, mean, sd).mean(), rel=1e-5)
    expected = integrated_crps(means[..., None], sigmas, y[:, None]).mean()
    assert found["crps"] == pytest.approx(expected, rel=1e-4)
    pit = stats.norm.cdf(y, means, sigmas).mean(0)
    for level in (0.5, 0.9, 0.95):
        assert found[f"coverage_{100 * level:.0f}"] == np.mean(np.abs(pit - 0.5) <= level / 2)


def test_metrics_on_the_original_scale_are_those_of_predictions_there() -> None:
    split, states, means, sigmas = gaussian_case()
    (found,) = split.summarise(evaluated(split, states))
    y, mu, sd = 7.5 * split.targets + 120, 7.5 * means + 120, 7.5 * sigmas
    blocks = [np.column_stack([m, s]) for m, s in zip(mu, sd, strict=True)]
    rows = reduce_regression(blocks, y).rows
    assert found["rmse_original"] == pytest.approx(math.sqrt(rows["squared_error"].mean()), rel=1e-5)
    assert found["nll_original"] == pytest.approx(-rows["log_p"].mean(), rel=1e-5)
    assert found["crps_original"] == pytest.approx(rows["crps"].mean(), rel=1e-5)
    assert list(found) == [m.name for m in split.metrics]
