"""Ensembles of other tasks' samples: images that are prepared, regressions, likelihoods of somebody's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import raychains as rc
from raychains.core.config import Run
from raychains.core.errors import UserError
from raychains.data import sets
from raychains.inference import file, networks
from raychains.inference.predictive import select
from raychains.inference.requests import Question, Refused, answer
from tests.checks import refused
from tests.inference.runs import finished
from tests.tasks import made_images


@pytest.mark.parametrize("task", ["mnist-cnn", "fashion-mnist-mlp"])
def test_images_are_prepared_as_their_task_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    made_images.use(monkeypatch)
    options = Run(task=task, sampler="sgld", epochs=2, chains=1, repeats=1, lr=0.01, batch_size=80)
    result = finished(tmp_path / "store", options)
    exported = result.export(str(tmp_path / "p"))
    about = file.describe(exported.path)
    assert about["preparation"]["kind"] == "normalise" and about["network"] == networks.named(rc.make_task(task))
    images = made_images.made(made_images.NETWORKS[task], "test").images[:20]
    wanted = result.predict(images)
    by_sample = torch.from_numpy(result.predictive().outputs(images)).softmax(-1)
    np.testing.assert_allclose(by_sample.mean(0), wanted, rtol=0, atol=1e-6)
    monkeypatch.setattr(sets, "load", None)  # the file needs no data
    loaded = rc.PosteriorPredictive.load(exported.path)
    assert len(loaded) == exported.samples > 0
    assert wanted.std(0).max() > 1e-3
    np.testing.assert_allclose(loaded(images).probabilities, wanted, rtol=0, atol=1e-6)
    prepared = (images / 255 - about["preparation"]["mean"][0]) / about["preparation"]["std"][0]
    np.testing.assert_allclose(loaded(prepared).probabilities, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("noise", [0.3, "learned"])
def test_a_regression_splits_its_variance(tmp_path: Path, noise: Any) -> None:
    g = torch.Generator().manual_seed(4)
    x = torch.randn(60, 3, generator=g)
    y = torch.stack([x.sum(1), 100 + x[:, 0]], 1) + 0.1 * torch.randn(60, 2, generator=g)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    task = rc.Task.from_module(make, (x[:40], y[:40]), (x[40:], y[40:]), loss="gaussian", noise=noise, name="regress")
    schedule = {"epochs": 6, "cycles": 2, "samples_per_cycle": 2, "exploration": 0.5}
    options = Run(task="regress", sampler="csghmc", chains=1, lr=1e-4, batch_size=20, **schedule)
    result = finished(tmp_path / "store", options, task=task)
    exported = result.export(str(tmp_path / "p"))
    assert exported.samples == 4
    means, variances = [], []
    for tensors in select(result.store.root, result.comparison).stored():
        network = make()
        network.load_state_dict({n: t for n, t in tensors.items() if n != "log_noise"})
        with torch.no_grad():
            means.append(network(x).double().numpy())
        variances.append(np.exp(2 * tensors["log_noise"].double().item()) if noise == "learned" else noise**2)
    wanted = {"mean": np.mean(means, 0), "epistemic": np.var(means, 0)}
    wanted["aleatoric"] = np.full_like(wanted["mean"], np.mean(variances))
    wanted["variance"] = wanted["aleatoric"] + wanted["epistemic"]
    assert len({round(v, 12) for v in variances}) == (4 if noise == "learned" else 1)
    for posterior in (rc.PosteriorPredictive.load(exported.path, make()), result.posterior()):
        for chunk in (1, 3, 4):
            posterior.chunk = chunk
            found = posterior(x)
            for name, value in wanted.items():
                np.testing.assert_allclose(getattr(found, name).detach(), value, rtol=1e-5, atol=1e-6, err_msg=name)
    mean, std = result.predictive().mean_and_std(x)
    np.testing.assert_allclose(mean, wanted["mean"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std**2, wanted["variance"], rtol=1e-5, atol=1e-6)
    with refused("model", "must be given"):
        rc.PosteriorPredictive.load(exported.path)


def test_a_network_that_gives_its_noise_goes_through_ensembles_files_and_quantiles(tmp_path: Path) -> None:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
    y = x[:, 0] + 0.1 * x[:, 1].exp()
    task = rc.Task.from_module(
        lambda: nn.Linear(3, 2), (x[:40], y[:40]), (x[40:], y[40:]), loss="heteroscedastic", name="noisy"
    )
    options = Run(task="noisy", sampler="sgld", epochs=8, chains=2, lr=1e-3, batch_size=10)
    result = finished(tmp_path / "store", options, task=task)
    exported = result.export(str(tmp_path / "p"))
    raw = []
    for tensors in select(result.store.root, result.comparison).stored():
        raw.append(x.double().numpy() @ tensors["weight"].double().numpy().T + tensors["bias"].double().numpy())
    means, sigmas = np.stack(raw)[..., 0], np.log1p(np.exp(np.stack(raw)[..., 1])) + 1e-6
    wanted = {"mean": means.mean(0), "epistemic": means.var(0), "aleatoric": (sigmas**2).mean(0)}
    for posterior in (rc.PosteriorPredictive.load(exported.path, nn.Linear(3, 2)), result.posterior()):
        for chunk in (1, 3):
            posterior.chunk = chunk
            found = posterior(x)
            for name, value in wanted.items():
                np.testing.assert_allclose(getattr(found, name)[:, 0].detach(), value, rtol=1e-5, atol=1e-6)
        with refused("noises", "gaussians"):
            posterior.noises()
    mean, sd = result.predictive().mean_and_std(x)
    np.testing.assert_allclose(mean, wanted["mean"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sd**2, wanted["epistemic"] + wanted["aleatoric"], rtol=1e-5)
    levels = [0.05, 0.5, 0.9]
    found = result.predictive().quantiles(x, levels)
    assert found.shape == (60, 3)
    for i, q in enumerate(levels):  # the mixture's distribution function at its quantile
        np.testing.assert_allclose(norm.cdf(found[:, i], means, sigmas).mean(0), q, rtol=1e-5)
    (served,) = answer(result.posterior(), [Question(inputs=x, quantiles=tuple(levels))])
    assert not isinstance(served, Refused)
    np.testing.assert_allclose(served["quantiles"], found, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(served["sd"], sd, rtol=1e-4)
    with refused("levels", "1.5"):
        result.predictive().quantiles(x, [1.5])
    with refused("noise", "positive"):
        rc.PosteriorPredictive(nn.Linear(3, 2), [nn.Linear(3, 2).state_dict()], kind="regression", noise={"kind": "x"})


def test_a_small_spread_around_large_means_keeps_its_digits() -> None:
    network = nn.Linear(1, 1)
    means = [10_000.25, 10_000.5, 10_000.0, 10_000.75]  # exact in float32, their squares are not
    states = [{"weight": torch.zeros(1, 1), "bias": torch.tensor([m])} for m in means]
    for chunk in (1, 3, 4):
        found = rc.PosteriorPredictive(network, states, kind="regression", noise=0.5, chunk=chunk)(torch.zeros(2, 1))
        np.testing.assert_allclose(found.epistemic.detach(), np.full((2, 1), np.var(means)), rtol=1e-6)
        np.testing.assert_allclose(found.variance.detach(), np.full((2, 1), np.var(means) + 0.25), rtol=1e-6)
        np.testing.assert_allclose(found.mean.detach(), np.full((2, 1), np.mean(means)), rtol=1e-7)


def test_a_likelihood_of_ones_own_has_no_ensemble(tmp_path: Path) -> None:
    x = torch.randn(20, 3)
    task = rc.Task.from_module(
        lambda: nn.Linear(3, 1), (x, x[:, :1]), (x, x[:, :1]), loss=lambda f, y: (f - y).abs().mean(), name="own"
    )
    result = finished(
        tmp_path / "store", Run(task="own", sampler="sgld", epochs=2, chains=1, lr=1e-3, batch_size=10), task=task
    )
    with refused("task", "outputs"):
        result.export(str(tmp_path / "p"))
    with pytest.raises(UserError):
        result.posterior()
