"""The ArviZ export holds the draws that were stored, and ArviZ's statistics on it are ours."""

from __future__ import annotations

import sys
from pathlib import Path

import arviz_stats
import numpy as np
import pytest

import raychains
from raychains.api.arviz_export import to_arviz
from raychains.core.spec import digest_of
from raychains.evaluation import diagnostics
from raychains.schedules import Constant, Cyclical
from raychains.store.caches import Predictions
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.two_modes import TwoModes
from tests.checks import refused
from tests.measures.densities import stored
from tests.measures.made import Made, N, classifier, drawn

TASK = Gaussian(covariance=[[2.0, -0.6], [-0.6, 0.5]], mean=[1.0, -2.0])


def test_a_densitys_draws_come_back_with_their_diagnostics(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chains = [rng.normal(size=(650, 1, 2)).cumsum(0) / 9 for _ in range(3)]
    context = stored(tmp_path, TASK, chains, schedule=Constant(lr=0.25, steps=650))
    found = to_arviz(context.store.root, context.comparison, TASK)
    theta = found.posterior["theta"]
    assert theta.dims == ("chain", "draw", "coordinate")
    values = np.stack(chains)[:, :, 0]
    assert np.array_equal(theta.values, values)
    ess, r_hat = arviz_stats.ess(found), arviz_stats.rhat(found)
    assert ess["theta"].values == pytest.approx(diagnostics.ess(values))
    assert r_hat["theta"].values == pytest.approx(diagnostics.r_hat(values))
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
    found = to_arviz(context.store.root, context.comparison, context.task)
    assert found.posterior["theta"].dims == ("chain", "draw", "repeat", "coordinate")
    assert found.sample_stats["lp"].dims == ("chain", "draw", "repeat")
    assert found.sample_stats["cycle"].values[0].tolist() == np.repeat(range(4), 10).tolist()
    other = to_arviz(context.store.root, context.comparison, context.task, variable="anchor")
    assert np.array_equal(other.posterior["anchor"].values[0], anchor) and "lp" not in other.sample_stats
    with refused("variable", "anchr", "anchor"):
        to_arviz(context.store.root, context.comparison, context.task, variable="anchr")
    with refused("arm", "other"):
        to_arviz(context.store.root, context.comparison, context.task, "other")
    with refused("group", "0"):
        to_arviz(context.store.root, context.comparison, context.task, group=1)


def test_networks_come_as_numbers_with_the_likelihood_of_every_example(tmp_path: Path) -> None:
    task = classifier()
    run = Made(tmp_path, task, [(c, k, "theta", drawn(20 * c + k, task)) for k in range(12) for c in range(2)])
    evaluation = task.splits()["test"]
    found = to_arviz(
        run.root, run.comparison, task, selection=run.select(0, 0), predictions=run.predictions(0, 0), evaluation=evaluation
    )  # fmt: skip
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
        float(diagnostics.ess(found.posterior["norm"].values))
    )
    alone = to_arviz(run.root, run.comparison, task, selection=run.select(0, 0))
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


def test_without_the_extra_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = stored(tmp_path, TASK, [np.zeros((9, 1, 2))])
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with refused("arviz", "pip install 'raychains"):
        to_arviz(context.store.root, context.comparison, TASK)
