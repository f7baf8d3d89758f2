"""Diagnostics of finished chains against processes of known autocorrelation, and numbers of networks against
formulas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from raychains.core.sample import Sample
from raychains.evaluation import mcmc_diagnostics
from raychains.evaluation.evaluation import Array
from raychains.evaluation.vectors import flat, projections
from raychains.measures import Context, named
from raychains.measures.diagnostics import POINTS, by_cycle, correlated, diagnosed, lags_of, traced
from raychains.measures.draws import COORDINATES, SHOWN, Followed, labels_of, of_density, predicted_numbers, read
from raychains.schedules import Constant, Cyclical
from raychains.store import ChainStore, Storage
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.mixture import AXIS, VARIANCE, Mixture25
from raychains.tasks.two_modes import TwoModes
from tests.evaluation.test_diagnostics import ar1
from tests.measures.densities import stored
from tests.measures.made import Made, N, classifier, data, drawn
from tests.measures.predicted import labelled, outside, sample
from tests.orchestration.worlds import chain_spec, meta


def followed(values: Array, cycle: Array | None = None) -> Followed:
    cycle = np.zeros(values.shape[:2], dtype=int) if cycle is None else cycle
    return Followed(variable="theta", values={"x": values}, cycle=cycle, chains=tuple(range(len(values))))


def rows(values: Array, schedule: Any = None, cycle: Array | None = None) -> list[dict[str, Any]]:
    spec = type("Spec", (), {"schedule": (schedule or Constant(lr=0.1, steps=10)).part()})
    return diagnosed(followed(values, cycle), spec, {"arm": "a", "group": 1}, 6)  # type: ignore[arg-type]


# Numbers of known processes


def test_an_autoregressions_rows_hold_its_known_ess_and_error() -> None:
    """A sum over about 15 lags has the relative standard error √(2·31/n) = 4.4 %: 4 of them."""
    first, second = rows(ar1(np.random.default_rng(0), 0.6, (4, 8000, 2)))
    exact = 32_000 * 0.4 / 1.6
    for row in (first, second):
        assert row["bulk_ess"] == pytest.approx(exact, rel=0.18)
        assert row["ess_per_draw"] == row["bulk_ess"] / 32_000
        assert row["mcse"] == pytest.approx(1 / np.sqrt(exact), rel=0.1)
        assert abs(row["mean"]) < 4 * row["mcse"]
        assert (row["chains"], row["draws"], row["unit"], row["notice"]) == (4, 32_000, "chain", "")
    assert (first["repeat"], second["repeat"]) == (6, 7) and first["bulk_ess"] != second["bulk_ess"]


def test_r_hat_is_one_for_independent_draws_and_large_for_chains_that_lie_apart() -> None:
    """Of m halves of n draws R̂² − 1 has the standard deviation √(2/(m−1))/n; R̂ half of it, 2.7e-4 here."""
    same = np.random.default_rng(1).normal(size=(4, 2000, 1))
    (row,) = rows(same)
    assert abs(row["r_hat"] - 1) < 6 * np.sqrt(2 / 7) / 1000 / 2 + 1e-3  # the rank-normalised one of two is the larger
    (apart,) = rows(same[:2] + np.array([0.0, 6.0]).reshape(2, 1, 1))
    assert apart["r_hat"] > 1.5
    assert apart["bulk_ess"] < 10, "two modes that are never left are two draws, not 4,000"


@pytest.mark.parametrize(
    ("chains", "draws", "words", "lacks"),
    [(2, 3, "3 draws a chain: at least 4", "r_hat"), (1, 1, "1 draw a chain", "bulk_ess"), (1, 7, "7 draws", "r_hat")],
)
def test_too_few_draws_are_said_and_not_faked(chains: int, draws: int, words: str, lacks: str) -> None:
    values = np.random.default_rng(0).normal(size=(chains, draws, 1))
    (row,) = rows(values)
    assert words in row["notice"] and "\n" not in row["notice"]
    assert np.isnan(row[lacks]) and np.isnan(row["r_hat"])
    assert row["mean"] == pytest.approx(values.mean())


def test_what_never_moves_has_no_effective_draws() -> None:
    (row,) = rows(np.full((2, 50, 1), 3.0))
    assert row["notice"] == "it never moves" and row["mean"] == 3
    assert all(np.isnan(row[name]) for name in ("mcse", "bulk_ess", "tail_ess", "ess_per_draw", "r_hat"))


def test_halves_of_a_few_draws_have_an_r_hat_but_no_effective_sample_size() -> None:
    """ArviZ's sum over lags is empty below 10 draws a chain, and two chains that never meet would count as n·log10
    n."""
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(2, 9, 1)) + np.array([0.0, 50.0]).reshape(2, 1, 1)
    (row,) = rows(apart)
    assert row["r_hat"] > 1.5 and np.isnan(row["bulk_ess"]) and np.isnan(row["mcse"])
    assert row["notice"] == "9 draws a chain: effective sample sizes need 10"
    (enough,) = rows(rng.normal(size=(2, 10, 1)) + np.array([0.0, 50.0]).reshape(2, 1, 1))
    assert 1 < enough["bulk_ess"] < 8 and enough["notice"] == ""


# Cycles


def test_cycles_that_land_in_different_modes_disagree_although_each_mixes() -> None:
    """Two chains, both in mode 0 in the first cycle and in mode 5 in the second: chains agree, cycles do not."""
    rng = np.random.default_rng(3)
    cycle = np.repeat([[0, 1], [0, 1]], 400, axis=1)
    schedule = Cyclical(lr=0.1, steps=800, cycles=2, exploration=0.0)
    values = rng.normal(size=(2, 800, 1)) + 5.0 * cycle[..., None]
    by_unit = {r["unit"]: r for r in rows(values, schedule, cycle)}
    assert "stationary" in by_unit["chain"]["notice"] and by_unit["cycle"]["notice"] == ""
    assert by_unit["cycle"]["chains"] == 4 and by_unit["cycle"]["draws"] == by_unit["chain"]["draws"] == 1600
    assert by_unit["cycle"]["r_hat"] > 1.5
    stacked = values[..., 0].reshape(4, 400)
    assert by_unit["cycle"]["r_hat"] == pytest.approx(float(mcmc_diagnostics.r_hat(stacked)))
    agreeing = {r["unit"]: r for r in rows(rng.normal(size=(2, 800, 1)), schedule, cycle)}
    assert agreeing["cycle"]["r_hat"] < 1.02


def test_cycles_of_unequal_length_count_with_their_last_draws() -> None:
    values = np.arange(10.0).reshape(1, 10, 1)
    parts = by_cycle(values, np.array([[0, 0, 0, 0, 2, 2, 2, 5, 5, 5]]))
    assert parts is not None and parts[..., 0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert by_cycle(values, np.zeros((1, 10), dtype=int)) is None


def test_an_optimisers_path_is_not_passed_off_as_draws() -> None:
    (row,) = rows(np.random.default_rng(0).normal(size=(2, 50, 1)), Constant(lr=0.1, steps=10, temperature=0.0))
    assert "optimiser" in row["notice"]


# Traces and autocorrelation


def test_traces_are_thinned_evenly_and_keep_both_ends() -> None:
    values = np.arange(3 * 2500.0).reshape(3, 2500, 1)
    found = traced(followed(values), {"arm": "a"})
    assert len(found) == 3 * POINTS
    assert all(r["value"] == values[r["chain"], r["draw"], 0] for r in found)
    mine = [r["draw"] for r in found if r["chain"] == 1]
    assert mine[0] == 0 and mine[-1] == 2499 and set(np.diff(mine)) <= {2, 3}
    assert [r["draw"] for r in traced(followed(values[:, :7]), {}) if r["chain"] == 0] == list(range(7))


def test_autocorrelation_is_the_mean_over_chains_about_their_own_means() -> None:
    values = ar1(np.random.default_rng(0), 0.8, (2, 4000, 1)) + np.array([0.0, 50.0]).reshape(2, 1, 1)
    found = {r["lag"]: r["value"] for r in correlated(followed(values), {"arm": "a"})}
    assert found[0] == 1
    each = mcmc_diagnostics.autocorrelation(values[..., 0], max(found))
    assert each.mean(0)[list(found)] == pytest.approx(list(found.values()), abs=1e-10)
    assert correlated(followed(values[:, :3]), {}) == [] and correlated(followed(np.ones((1, 9, 1))), {}) == []


@pytest.mark.parametrize("draws", [4, 5, 7, 30, 1000, 100_000])
def test_lags_rise_and_stay_where_there_are_pairs_enough(draws: int) -> None:
    lags = lags_of(draws)
    assert lags[0] == 0 and lags[1] == 1 and (np.diff(lags) > 0).all() and len(lags) <= 61
    assert lags[-1] <= draws - 1 and (draws <= 6 or lags[-1] <= draws / 3)


# Densities out of a store


def test_a_densitys_coordinates_and_log_density_are_followed(tmp_path: Path) -> None:
    task = Gaussian(covariance=[[2.0, -0.6], [-0.6, 0.5]], mean=[1.0, -2.0])
    rng = np.random.default_rng(0)
    chains = [rng.multivariate_normal(task.mean, task.covariance, size=(700, 2)) for _ in range(3)]
    context = stored(tmp_path, task, chains)
    tables = named("diagnostics").tables(context)
    found = pd.DataFrame(tables["diagnostics"])
    assert sorted(set(found["quantity"])) == ["log density", "theta[0]", "theta[1]"]
    assert set(found["repeat"]) == {0, 1} and (found["chains"] == 3).all() and (found["draws"] == 2100).all()
    values = np.stack(chains)
    for lane in (0, 1):
        row = found[(found["quantity"] == "theta[1]") & (found["repeat"] == lane)].iloc[0]
        assert row["mean"] == pytest.approx(values[:, :, lane, 1].mean())
        assert row["bulk_ess"] == pytest.approx(float(mcmc_diagnostics.ess(values[:, :, lane, 1])))
        log = found[(found["quantity"] == "log density") & (found["repeat"] == lane)].iloc[0]
        away = values[:, :, lane] - task.mean
        energy = np.einsum("cdi,ij,cdj->cd", away, np.linalg.inv(task.covariance), away) / 2
        assert log["mean"] == pytest.approx(-energy.mean())
    traces = pd.DataFrame(tables["traces"])
    assert set(traces["repeat"]) == {0} and set(traces["chain"]) == {0, 1, 2}
    assert "modes" not in tables


def test_of_many_coordinates_the_first_and_unit_projections_are_followed(tmp_path: Path) -> None:
    task = Gaussian(dim=COORDINATES + 5, correlation=0.0)
    values = np.eye(COORDINATES + 5)[:, None].repeat(1, axis=1)
    context = stored(tmp_path, task, [values])
    (one,) = of_density(context.store.root, task, context.comparison.arms[0].chains[0], seed=4)
    assert f"theta[{COORDINATES - 1}]" in one.values and f"theta[{COORDINATES}]" not in one.values
    along = [v[0, :, 0] for name, v in one.values.items() if name.startswith("projection")]
    assert len(along) == 4
    for u in along:  # projections of the unit vectors are the direction itself
        assert np.linalg.norm(u) == pytest.approx(1)
    assert abs(along[0] @ along[1]) < 0.6 and len(one.shown) == SHOWN and one.shown[0] == "log density"


def test_other_variables_are_followed_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    theta, anchor = rng.normal(size=(400, 1, 2)), rng.normal(size=(400, 1, 2)) + 9
    context = stored(tmp_path, TwoModes(), [theta], sampler="emcmc", variables={"anchor": [anchor]}, eta=0.5)
    found = pd.DataFrame(named("diagnostics").tables(context)["diagnostics"])
    assert set(found[found["variable"] == "anchor"]["quantity"]) == {"anchor[0]", "anchor[1]"}
    row = found[found["quantity"] == "anchor[1]"].iloc[0]
    assert row["mean"] == pytest.approx(anchor[..., 1].mean())


def test_chains_that_were_dropped_are_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    context = stored(tmp_path, Gaussian(), [rng.normal(size=(600, 1, 2)) for _ in range(3)])
    gone = context.comparison.arms[0].chains[0][1]
    for file in (tmp_path / "chains" / gone.digest / "samples").iterdir():
        file.unlink()
    tables = named("diagnostics").tables(context)
    assert {r["chains"] for r in tables["diagnostics"]} == {2}
    assert {r["chain"] for r in tables["traces"]} == {0, 2}, "chains keep their place in the arm"


# Masses of modes


def exact_mixture(rng: np.random.Generator, weights: Sequence[float], n: int) -> Array:
    """Draws of the 25 Gaussians with other weights, [n, 1, 2]."""
    centres = np.array(list(itertools.product(AXIS, AXIS)))
    return (centres[rng.choice(25, size=n, p=weights)] + np.sqrt(VARIANCE) * rng.normal(size=(n, 2)))[:, None]


def test_masses_of_modes_are_the_shares_of_the_draws(tmp_path: Path) -> None:
    """Within 4 standard errors √(w(1−w)/n) of the weights that the draws were made with."""
    rng = np.random.default_rng(0)
    weights = np.arange(25) / 300
    context = stored(tmp_path, Mixture25(), [exact_mixture(rng, weights.tolist(), 3000) for _ in range(2)])
    found = named("diagnostics").tables(context)["modes"]
    shares = np.array([r["share"] for r in found])
    assert shares.sum() == pytest.approx(1) and {r["exact"] for r in found} == {0.04}
    assert (abs(shares - weights) <= 4 * np.sqrt(weights * (1 - weights) / 6000) + 1e-12).all()
    assert found[1]["mode"] == "(-4, -2)" and found[5]["mode"] == "(-2, -4)" and found[0]["draws"] == 6000


def test_masses_are_not_known_away_from_temperature_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    context = stored(tmp_path, TwoModes(), [rng.normal(size=(300, 1, 2)) + 1], temperature=0.5)
    sharp, flat_ = named("diagnostics").tables(context)["modes"]
    assert np.isnan(sharp["exact"]) and flat_["share"] > 0.9 and flat_["mode"] == "flat"


# Networks


@pytest.fixture
def networks(tmp_path: Path) -> Made:
    task = classifier()
    return Made(tmp_path, task, [(c, k, "theta", drawn(20 * c + k, task)) for k in range(12) for c in range(2)])


def test_networks_are_followed_by_projections_and_by_what_they_predict(networks: Made) -> None:
    context = networks.context()
    tables = named("diagnostics").tables(context)
    found = pd.DataFrame([r for r in tables["diagnostics"] if r["unit"] == "chain"]).set_index("quantity")
    samples = [[drawn(20 * c + k, networks.task) for k in range(12)] for c in range(2)]
    assert found.loc["norm", "mean"] == pytest.approx(
        np.mean([np.linalg.norm(flat(s, s)) for ch in samples for s in ch])
    )
    along = np.array([[projections(s, s)["projection 3"] for s in chain] for chain in samples])
    assert found.loc["projection 3", "bulk_ess"] == pytest.approx(float(mcmc_diagnostics.ess(along)))
    x, y = data(1)
    labels = (y > 0).long() + (y > 1).long()
    log_p = torch.stack(
        [torch.log_softmax(x @ s["weight"].T + s["bias"], -1) for chain in samples for s in chain]
    ).double()
    of_label = log_p[:, torch.arange(N), labels]
    assert found.loc["mean p(label)", "mean"] == pytest.approx(float(of_label.exp().mean()), rel=1e-5)
    assert found.loc["mean entropy", "mean"] == pytest.approx(float(-(log_p.exp() * log_p).sum(-1).mean()), rel=1e-5)
    examples = [q for q in found.index if q.startswith("log p(label) of example ")]
    assert len(examples) == 5
    for name in examples:
        i = int(name.split()[-1])
        assert found.loc[name, "mean"] == pytest.approx(float(of_label[:, i].mean()), rel=1e-4)
    assert "train NLL" not in found.index, "these samples have none"


def test_other_examples_are_chosen_by_another_seed(networks: Made) -> None:
    def chosen(context: Context) -> set[str]:
        found = named("diagnostics").tables(context)["diagnostics"]
        return {r["quantity"] for r in found if "example" in r["quantity"]}

    assert chosen(networks.context()) == chosen(networks.context(seed=0)) != chosen(networks.context(seed=1))


def test_a_split_without_labels_has_entropies_alone() -> None:
    split = outside(0, 30)
    block = split.predict(sample(0, 2.0), 0)
    assert labels_of(split, block) is None
    found = predicted_numbers(block, labels_of(split, block))
    p = np.exp(block.astype(float))
    assert found == {"mean entropy": pytest.approx(-(p * np.log(p)).sum(1).mean())}
    known = labelled(0, 30)
    assert labels_of(known, known.predict(sample(0, 2.0), 0)).tolist() == known._labels.tolist()


def test_tables_are_written_and_read_as_they_are(networks: Made) -> None:
    context = networks.context()
    for name, found in named("diagnostics").tables(context).items():
        context.store.write_table(name, found)
        table = context.store.table(name)
        assert table is not None and table.num_rows == len(found)
        assert table.to_pylist()[0].keys() == found[0].keys()


class Named(Gaussian):
    """A density whose model has two parameters, in another order than that of their names."""

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        return nn.ParameterDict([(name, torch.zeros(lanes, 1)) for name in ("width", "height")])


def test_parameters_of_a_density_lie_side_by_side_in_the_models_order(tmp_path: Path) -> None:
    spec = chain_spec(Named(), "sgld", Constant(lr=0.1, steps=3), {}, lanes=2, block_draws=3)
    store = ChainStore(Storage(tmp_path), spec.digest)
    store.begin(spec, 1, {})
    block = {name: torch.full((3, 2, 1), value) for name, value in (("width", 1.0), ("height", 2.0))}
    about = meta(store.digest, 0, variable="theta", epoch=0, step=3, draws=3)
    store.publish_sample(Sample(meta=about, tensors=block), 1, {})
    assert read(Storage(tmp_path), spec).values.tolist() == [[[1.0, 2.0]] * 2] * 3
