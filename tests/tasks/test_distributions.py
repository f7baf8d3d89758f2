"""Likelihoods that are torch distributions: log p as SciPy has it, posteriors by quadrature, the predictive end to
end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from scipy import stats
from torch import Tensor, distributions, nn

import raychains as rc
from raychains.core.errors import UserError
from raychains.evaluation.distributed import Distributed as Split
from raychains.inference import requests
from raychains.tasks import likelihoods
from raychains.tasks.likelihoods import NAMED, Distributed
from tests.checks import refused

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
N = 200
X = torch.from_numpy(RNG.normal(size=(N, 3))).float()
SIGNAL = X[:, 0].double().numpy()


def softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0, x))


def binomial(outputs: Array, y: Array) -> Array:
    mean, r = np.exp(outputs[:, :2]), softplus(outputs[:, 2:]) + 1e-6
    return np.asarray(stats.nbinom.logpmf(y, r, r / (r + mean)).sum(1))


ORACLES: dict[str, tuple[int, Array, Callable[[Array, Array], Array]]] = {
    "bernoulli": (2, RNG.integers(0, 2, (N, 2)), lambda f, y: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-f))).sum(1)),
    "poisson": (2, RNG.poisson(2.0, (N, 2)), lambda f, y: stats.poisson.logpmf(y, np.exp(f)).sum(1)),
    "negative-binomial": (4, RNG.negative_binomial(2, 0.4, (N, 2)), binomial),
    "student-t": (
        4,
        RNG.standard_t(3, (N, 2)),
        lambda f, y: stats.t.logpdf(y, 4.0, f[:, :2], softplus(f[:, 2:]) + 1e-6).sum(1),
    ),
}
"""By the loss's name: the width of the outputs of two targets, targets, and log p of outputs [n, width]."""


def task(loss: Any, y: Array, width: int, *, train: int = 150, **settings: Any) -> Any:
    targets = torch.from_numpy(np.asarray(y, dtype=np.float32))
    parts = (X[:train], targets[:train]), (X[train:], targets[train:])
    return rc.Task.from_module(lambda: nn.Linear(3, width), *parts, loss=loss, **settings)


@pytest.mark.parametrize("name", NAMED)
def test_log_p_is_scipys_for_one_network_and_for_a_pack(name: str) -> None:
    width, y, log_p = ORACLES[name]
    outputs = torch.from_numpy(RNG.normal(size=(N, width)))
    targets, likelihood = torch.from_numpy(np.asarray(y, dtype=np.float64)), NAMED[name]()
    expected = log_p(outputs.numpy(), y)
    loss = likelihood.loss(nn.Identity(), outputs, targets)
    assert float(loss) == pytest.approx(-expected.mean(), abs=1e-6)
    each = likelihood.each({}, torch.stack([outputs, outputs.flip(0)]), torch.stack([targets, targets.flip(0)]))
    np.testing.assert_allclose(each[0].numpy(), -expected, atol=1e-6)
    np.testing.assert_allclose(each[1].numpy(), -expected[::-1], atol=1e-6)
    alone = likelihood.loss(nn.Identity(), outputs[:, : width // 2], targets[:, 0]) if width == 4 else None
    if alone is not None:  # one target is [n] as well as [n, 1]
        assert alone == likelihood.loss(nn.Identity(), outputs[:, : width // 2], targets[:, :1])


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "negative-binomial", "student-t"])
def test_a_predictive_is_the_mixture_by_hand(name: str) -> None:
    width, y, log_p = ORACLES[name]
    split = task(name, y, width).splits()["test"]
    assert isinstance(split, Split)
    samples = [{"weight": torch.randn(width, 3), "bias": torch.randn(width)} for _ in range(3)]
    blocks, weights = [split.predict(s, 0) for s in samples], [0.5, 0.2, 0.3]
    found = split.reduce(blocks, 0, weights)
    x, test = X[150:], y[150:]
    outputs = [(x @ s["weight"].T + s["bias"]).double() for s in samples]
    each = np.stack([log_p(f.numpy(), test) for f in outputs])
    np.testing.assert_allclose(found.rows["log_p"], np.log(np.exp(each).T @ weights), atol=1e-5)
    laws = [NAMED[name]().distribution(f) for f in outputs]
    means, squares = (
        np.stack([m.numpy() for m in t]) for t in zip(*((d.mean, d.variance + d.mean**2) for d in laws), strict=True)
    )
    mean = np.tensordot(weights, means, 1)
    np.testing.assert_allclose(found.rows["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found.rows["std"] ** 2, np.tensordot(weights, squares, 1) - mean**2, rtol=1e-4)
    (metrics,) = split.summarise([found])
    assert metrics["nll"] == pytest.approx(-found.rows["log_p"].mean())
    if name == "bernoulli":
        assert metrics["label_error"] == pytest.approx(((mean > 0.5) != test).mean())
        assert metrics["brier"] == pytest.approx(((mean - test) ** 2).mean())
    else:
        assert metrics["rmse"] == pytest.approx(((mean - test) ** 2).mean() ** 0.5)
    assert len(found.curves["nll"]) == 3 and found.curves["nll"][-1] / len(test) == pytest.approx(metrics["nll"])


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "student-t"])
def test_a_posterior_of_one_number_is_quadratures(name: str, tmp_path: Path) -> None:
    """The network is a single number; of Student's t its scale is known by a likelihood of one's own."""
    y = {"bernoulli": RNG.random(40) < 0.7, "poisson": RNG.poisson(1.5, 40), "student-t": 1 + RNG.standard_t(4, 40)}[
        name
    ]
    targets = torch.from_numpy(np.asarray(y, dtype=np.float32))
    likelihood = Located() if name == "student-t" else NAMED[name]()
    ones = torch.ones(40, 1)
    made = rc.Task.from_module(lambda: nn.Linear(1, 1, bias=False), (ones, targets), (ones, targets), likelihood)
    settings = {"sampler": "sghmc", "schedule": "constant", "lr": 0.02, "weight_decay": 1 / 40, "burn_in": 0}
    result = rc.run(
        task=made, **settings, epochs=4000, batch_size=40, chains=2, thinning=20, schedule_settings={"warm_up": 0.1},
        backend="process", progress=False, store=str(tmp_path), pack="auto",
    )  # fmt: skip
    grid = np.linspace(-4, 4, 4001)
    with torch.no_grad():
        log_p = [
            -40 * float(likelihood.loss(nn.Identity(), torch.full((40, 1), g).double(), targets)) - g**2 / 2
            for g in grid
        ]
    p = np.exp(np.array(log_p) - max(log_p))
    p /= p.sum()
    mean = (p * grid).sum()
    variance = (p * (grid - mean) ** 2).sum()
    posterior = result.posterior()
    draws = posterior.outputs(torch.ones(1, 1))[1].detach().double().numpy().reshape(2, -1)
    assert draws.shape[1] == 180
    ess = float(array_stats.ess(draws, chain_axis=0, draw_axis=1))
    assert ess > 100
    assert abs(draws.mean() - mean) < 3 * (variance / ess) ** 0.5
    assert abs(draws.var() - variance) < 3 * variance * (2 / ess) ** 0.5 + 0.05 * variance  # and the step's own bias


class Located(Distributed):
    """Student's t of four degrees of freedom around the output: a likelihood of one's own, in full."""

    name = "located"

    def distribution(self, outputs: Tensor) -> distributions.Distribution:
        each = distributions.StudentT(4.0, outputs, torch.ones_like(outputs), validate_args=False)
        return distributions.Independent(each, 1, validate_args=False)


def test_results_predictions_exports_and_answers_are_the_same_numbers(tmp_path: Path) -> None:
    width, y, _ = ORACLES["bernoulli"]
    made = task("bernoulli", y, width)
    result = rc.run(
        task=made,
        epochs=8,
        chains=2,
        backend="process",
        progress=False,
        store=str(tmp_path),
        name="labels",
        pack="auto",
    )
    assert {"label_error", "nll", "brier"} <= set(result.table(full=True).columns)
    x = X[150:]
    p = result.predict(x)
    assert p.shape == (50, 2) and ((p > 0) & (p < 1)).all()
    mean, sd = result.predictive().mean_and_std(x)
    np.testing.assert_allclose(sd**2, mean * (1 - mean), rtol=1e-6)  # a mixture of Bernoullis is one
    loaded = rc.PosteriorPredictive.load(
        result.export(str(tmp_path / "whole.safetensors")).path, model=nn.Linear(3, width)
    )
    for posterior in (loaded, result.posterior()):
        out = posterior(x)
        np.testing.assert_allclose(out.mean.detach().numpy(), p, atol=1e-6)
        np.testing.assert_allclose(out.variance.detach().numpy(), sd**2, atol=1e-6)
    [answer] = requests.answer(loaded, [requests.Question(inputs=x)])
    assert not isinstance(answer, requests.Refused)
    np.testing.assert_allclose(answer["mean"], p, atol=1e-6)
    for asked in (lambda: result.predictive().quantiles(x, [0.5]), lambda: loaded.gaussians(x)):
        with pytest.raises(UserError, match=r"regression"):
            asked()


def test_a_likelihood_of_ones_own_is_one_class(tmp_path: Path) -> None:
    made = task(Located(), SIGNAL, 1)
    result = rc.run(task=made, epochs=8, chains=1, backend="process", progress=False, store=str(tmp_path))
    assert result.table(full=True)["rmse"].iloc[0] > 0
    posterior, x = result.posterior(), X[150:]
    np.testing.assert_allclose(posterior(x).mean.detach().numpy()[:, 0], result.predict(x), atol=1e-6)
    with refused("task must have a likelihood of raychains to be written to a file", "Located"):
        result.export(str(tmp_path / "own.safetensors"))


@pytest.mark.parametrize(
    ("loss", "y", "width", "words"),
    [
        (
            "bernoulli",
            RNG.integers(0, 2, (N, 3)),
            2,
            ("model_fn must give 3 outputs for each example under loss bernoulli", "got 2"),
        ),
        ("bernoulli", np.empty((N, 0)), 2, ("loss bernoulli needs real targets", "[4, 0]")),
        (
            "bernoulli",
            np.full((N, 2), 0.5),
            2,
            ("targets of train_set must be 0 or 1", "bernoulli", "[0.5, 0.5]"),
        ),
        (
            "poisson",
            -RNG.poisson(2.0, N) - 1,
            1,
            ("targets of train_set must be whole numbers", "at index 0"),
        ),
        ("poisson", np.where(np.arange(N) == 7, np.nan, 1), 1, ("train_set", "nan", "index 7")),
        ("student-t", SIGNAL, 3, ("model_fn must give 2 outputs", "loss student-t, df 4.0", "got 3")),
        ("negative-binomial", RNG.poisson(2.0, N), 1, ("model_fn must give 2 outputs", "negative-binomial", "got 1")),
        ("bernouli", SIGNAL, 1, ("loss must be", "'student-t'", "bernouli", "did you mean 'bernoulli'?")),
    ],
)
def test_targets_and_outputs_that_do_not_fit_are_one_line(
    loss: str, y: Array, width: int, words: tuple[str, ...]
) -> None:
    with refused(*words):
        task(loss, y, width)


@pytest.mark.parametrize("kind", [likelihoods.Bernoulli, likelihoods.Poisson])
def test_the_fisher_information_is_the_hessian(kind: Any) -> None:
    """Of both it is the same for all targets, so that it needs no average."""
    outputs, y = torch.from_numpy(RNG.normal(size=(4, 3))), torch.ones(4, 3).double()
    found = kind().fisher(nn.Identity(), outputs)
    for i in range(4):
        hessian = torch.func.hessian(lambda f, i=i: kind().loss(nn.Identity(), f[None], y[i : i + 1]))(outputs[i])
        torch.testing.assert_close(found[i], hessian)


def test_a_distribution_of_another_shape_is_one_line() -> None:
    class Wrong(Located):
        def distribution(self, outputs: Tensor) -> distributions.Distribution:
            return distributions.Normal(outputs, 1.0)

    with refused("loss located must return a distribution with the batch [n] and the event [1]", "the batch [4, 1]"):
        task(Wrong(), SIGNAL, 1)


def test_a_file_states_a_likelihood_and_nothing_else() -> None:
    for name, kind in NAMED.items():
        stated = likelihoods.distributed_to_json(kind())
        assert stated["name"] == name and type(likelihoods.distributed_from_json(stated)) is kind
    assert likelihoods.distributed_from_json({"name": "student-t", "df": 7}).name == "student-t, df 7.0"
    for wrong in (None, {"name": "cauchy"}, {"name": "poisson", "df": 3}):
        with refused("likelihood must"):
            likelihoods.distributed_from_json(wrong)
    with refused("df must be a finite number above 0", "0"):
        likelihoods.StudentT(0)
