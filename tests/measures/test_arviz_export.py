"""The ArviZ export holds the draws that were stored, and ArviZ's statistics on it are ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import arviz_stats
import numpy as np
import pytest

import raychains
from raychains.api import arviz_export
from raychains.api.arviz_export import to_arviz
from raychains.core.spec import digest_of
from raychains.evaluation import mcmc_diagnostics
from raychains.measures import Context
from raychains.schedules import Constant, Cyclical
from raychains.store.caches import Predictions
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.two_modes import TwoModes
from tests.checks import refused
from tests.measures.densities import stored
from tests.measures.made import Made, N, classifier, data, drawn, linear, regression

TASK = Gaussian(covariance=[[2.0, -0.6], [-0.6, 0.5]], mean=[1.0, -2.0])


def of_density(context: Context, *arm: str, **given: Any) -> Any:
    return to_arviz(context.store.root, context.comparison, context.task, *arm, **given)


def of_network(run: Made, predicted: bool = False, **given: Any) -> Any:
    """A made run's samples, with what they predict of the test split."""
    if predicted:
        given |= {"predictions": run.predictions(0, 0), "evaluation": run.task.splits()["test"]}
    return to_arviz(run.root, run.comparison, run.task, selection=run.select(0, 0), **given)


def test_a_densitys_draws_come_back_with_their_diagnostics(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chains = [rng.normal(size=(650, 1, 2)).cumsum(0) / 9 for _ in range(3)]
    context = stored(tmp_path, TASK, chains, schedule=Constant(lr=0.25, steps=650))
    found = of_density(context)
    theta = found.posterior["theta"]
    assert theta.dims == ("chain", "draw", "coordinate")
    values = np.stack(chains)[:, :, 0]
    assert np.array_equal(theta.values, values)
    ess, r_hat = arviz_stats.ess(found), arviz_stats.rhat(found)
    assert ess["theta"].values == pytest.approx(mcmc_diagnostics.ess(values))
    assert r_hat["theta"].values == pytest.approx(mcmc_diagnostics.r_hat(values))
    away = values - TASK.mean
    energy = np.einsum("cdi,ij,cdj->cd", away, np.linalg.inv(TASK.covariance), away) / 2
    assert found.sample_stats["lp"].values == pytest.approx(-energy)
    assert (found.sample_stats["lr"] == 0.25).all() and found.sample_stats["step"].values[1, 649] == 650
    assert found.attrs["task"] == "gaussian" and found.attrs["arm"] == "arm"
    assert found.attrs["task_digest"] == digest_of(TASK.spec().to_json())
    assert found.attrs["created_by"] == f"raychains {raychains.__version__}"
    assert found.attrs["chains"].split() == [s.digest for s in context.comparison.arms[0].chains[0]]


def test_lanes_are_repeats_and_cycles_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    schedule = Cyclical(lr=0.1, steps=80, cycles=4, exploration=0.5)
    theta, anchor = rng.normal(size=(40, 2, 2)), rng.normal(size=(40, 2, 2))
    context = stored(
        tmp_path, TwoModes(), [theta], schedule=schedule, sampler="emcmc", variables={"anchor": [anchor]}, eta=0.5
    )  # fmt: skip
    found = of_density(context)
    assert found.posterior["theta"].dims == ("chain", "draw", "repeat", "coordinate")
    assert found.sample_stats["lp"].dims == ("chain", "draw", "repeat")
    assert found.sample_stats["cycle"].values[0].tolist() == np.repeat(range(4), 10).tolist()
    other = of_density(context, variable="anchor")
    assert np.array_equal(other.posterior["anchor"].values[0], anchor) and "lp" not in other.sample_stats
    with refused("variable", "anchr", "anchor"):
        of_density(context, variable="anchr")
    with refused("arm", "other"):
        of_density(context, "other")
    with refused("group", "0"):
        of_density(context, group=1)


def test_networks_come_as_numbers_with_the_likelihood_of_every_example(tmp_path: Path) -> None:
    task = classifier()
    run = Made(tmp_path, task, [(c, k, "theta", drawn(20 * c + k, task)) for k in range(12) for c in range(2)])
    evaluation = task.splits()["test"]
    found = of_network(run, predicted=True)
    assert found.posterior["projection"].dims == ("chain", "draw", "direction")
    log_p = found.log_likelihood["log_p_label"]
    assert log_p.dims == ("chain", "draw", "example") and log_p.shape == (2, 12, N)
    mine = np.concatenate([evaluation.predict(drawn(23, task), s) for s in range(evaluation.shards)])
    labels = found.observed_data["label"].values
    assert log_p.values[1, 3] == pytest.approx(mine[np.arange(N), labels], rel=1e-6)
    assert found.posterior["p_label"].values == pytest.approx(np.exp(log_p.values).mean(-1))
    assert found.sample_stats["step"].values.tolist() == [list(range(12))] * 2
    assert found.sample_stats["cycle"].values.tolist() == [list(range(12))] * 2
    assert arviz_stats.ess(found)["norm"].item() == pytest.approx(
        float(mcmc_diagnostics.ess(found.posterior["norm"].values))
    )
    alone = of_network(run)
    assert set(alone.children) == {"posterior", "sample_stats"} and "p_label" not in alone.posterior
    assert np.array_equal(alone.posterior["projection"].values, found.posterior["projection"].values)
    with refused("selection", "network"):
        to_arviz(run.root, run.comparison, task)


def test_a_run_gives_the_likelihood_where_predictions_are_kept_or_asked_for(tmp_path: Path) -> None:
    task = classifier()
    run = Made(tmp_path, task, [(0, k, "theta", drawn(k, task)) for k in range(50)])
    store, split = run.context().store, task.splits()["test"]
    store.write_plan({"comparison": run.comparison.to_json()})
    result = raychains.load(store.location(), task)
    assert "log_likelihood" not in result.to_arviz().children
    predicted = result.to_arviz(predict=True).log_likelihood["log_p_label"].values
    assert predicted.shape == (1, 50, N)
    cache = Predictions(run.root, run.comparison.task_spec, split.fingerprint, split.shards)
    for _, record in run.select(0, 0).records:
        blocks = [split.predict(drawn(record.meta.index, task), shard) for shard in range(split.shards)]
        cache.write(record.sha256, blocks)
    assert np.array_equal(result.to_arviz().log_likelihood["log_p_label"].values, predicted)


def test_parameters_come_by_name_with_their_dims(tmp_path: Path) -> None:
    task = classifier(batchnorm=True)
    drawn_of = {(c, k): drawn(20 * c + k, task) for k in range(6) for c in range(2)}
    run = Made(tmp_path, task, [(c, k, "theta", tensors) for (c, k), tensors in drawn_of.items()])
    found = of_network(run, predicted=True, parameters=["2.*", "0.bias"])
    assert set(found.posterior) == {"2.weight", "2.bias", "0.bias"}
    weight = found.posterior["2.weight"]
    assert weight.dims[:2] == ("chain", "draw") and weight.shape == (2, 6, 3, 6)
    for (c, k), tensors in drawn_of.items():
        assert np.array_equal(weight.values[c, k], tensors["2.weight"].numpy())
    assert found.sample_stats["step"].values.tolist() == [list(range(6))] * 2
    as_before = of_network(run, predicted=True)
    before = as_before.log_likelihood["log_p_label"].values
    assert found.log_likelihood["log_p_label"].values == pytest.approx(before, rel=1e-6)
    assert np.array_equal(found.observed_data["label"], as_before.observed_data["label"])
    assert "posterior_predictive" not in as_before.children and set(as_before.posterior) > {"norm", "projection"}
    alone = of_network(run, parameters="0.bias")
    assert set(alone.children) == {"posterior", "sample_stats"}
    assert arviz_stats.rhat(found)["2.weight"].shape == (3, 6)


def test_targets_are_drawn_with_the_samples_probabilities(tmp_path: Path) -> None:
    """The same sample 400 times: the share of each class is its probability, within four standard errors."""
    task, draws = classifier(), 400
    tensors = drawn(0, task)
    run = Made(tmp_path, task, [(0, k, "theta", tensors) for k in range(draws)])
    split = task.splits()["test"]
    labels = of_network(run, predicted=True, parameters="bias").posterior_predictive["label"]
    assert labels.dims == ("chain", "draw", "example") and labels.shape == (1, draws, N)
    p = np.exp(np.concatenate([split.predict(tensors, s) for s in range(split.shards)]).astype(float))
    shares = np.stack([(labels.values[0] == c).mean(0) for c in range(3)], axis=1)
    assert (np.abs(shares - p) <= 4 * np.sqrt(p * (1 - p) / draws) + 1e-12).mean() > 0.99
    assert shares.mean(0) == pytest.approx(p.mean(0), abs=4 * np.sqrt(0.25 / (draws * N)))


def test_a_regressions_targets_and_likelihood(tmp_path: Path) -> None:
    task, draws = regression(), 300
    run = Made(tmp_path, task, [(0, k, "theta", linear(1.0, 2.0)) for k in range(draws)])
    found = of_network(run, predicted=True, parameters="*")
    assert set(found.posterior) == {"weight", "bias"} and found.posterior["weight"].shape == (1, draws, 1, 4)
    x, y = (t.double().numpy() for t in data(1))
    mean = x @ linear(1.0, 2.0)["weight"].double().numpy()[0]
    log_p = -((y - mean) ** 2) / 2 - np.log(2 * np.pi) / 2
    assert found.log_likelihood["log_p"].values[0, 7] == pytest.approx(log_p, rel=1e-4)
    assert found.observed_data["target"].values == pytest.approx(y)
    z = found.posterior_predictive["target"].values[0] - mean
    assert abs(z.mean()) < 4 / np.sqrt(z.size) and abs(z.var() - 1) < 4 * np.sqrt(2 / z.size)


def test_patterns_that_match_nothing_or_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = classifier()
    run = Made(tmp_path, task, [(0, k, "theta", drawn(k, task)) for k in range(9)])
    with refused("parameters", "wieght*", "did you mean 'weight'"):
        of_network(run, parameters=["bias", "wieght*"])
    with refused("parameters", "match"):
        of_network(run, parameters=[])
    with refused("variable", "anchor", "theta"):
        of_network(run, parameters="*", variable="anchor")
    monkeypatch.setattr(arviz_export, "MOST", 100)
    with refused("parameters", "at most 100 numbers", "108"):  # 9 draws of 4 × 3
        of_network(run, parameters="weight")
    assert of_network(run, parameters="bias").posterior["bias"].size == 27
    context = stored(tmp_path / "density", TASK, [np.zeros((9, 1, 2))])
    with refused("parameters", "density"):
        of_density(context, parameters="theta")


def test_arviz_draws_a_runs_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    task = classifier()
    run = Made(tmp_path, task, [(c, k, "theta", drawn(50 * c + k, task)) for k in range(50) for c in range(2)])
    store = run.context().store
    store.write_plan({"comparison": run.comparison.to_json()})
    draws = raychains.load(store.location(), task).to_arviz(parameters=["bias"], predict=True)
    import arviz_plots

    assert {"posterior", "log_likelihood", "posterior_predictive", "observed_data"} <= set(draws.children)
    plot = arviz_plots.plot_forest(draws, backend="matplotlib")
    plot.savefig(tmp_path / "forest.png")
    assert (tmp_path / "forest.png").read_bytes().startswith(b"\x89PNG")
    assert arviz_stats.loo(draws).elpd < 0


def test_without_the_extra_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = stored(tmp_path, TASK, [np.zeros((9, 1, 2))])
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with refused("arviz", "pip install 'raychains"):
        of_density(context)
