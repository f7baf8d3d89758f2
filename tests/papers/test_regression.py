"""Regression tables: published numbers and their units, and chains of the methods at as many gradient evaluations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from raychains import papers as rp
from raychains import samplers, schedules, tasks
from raychains.evaluation.regression import reduce_regression
from raychains.papers.regression import bde_table, uci_table
from raychains.papers.regression.regression_methods import EQUAL_COST, LABELS, MORE
from raychains.papers.study import OURS, PUBLISHED
from raychains.planning import gradient_evaluations
from tests.papers.planned import chains, every, needs_data, planned

BDE = {
    ("airfoil", "bde-ensemble"): ((0.3650, 0.0038), (0.1760, 0.0043)),
    ("airfoil", "bde"): ((0.1215, 0.0042), (-0.9126, 0.0131)),
    ("bikesharing", "bde-ensemble"): ((0.2880, 0.0052), (-0.4550, 0.0173)),
    ("bikesharing", "bde"): ((0.2261, 0.0016), (-0.7315, 0.0098)),
}
"""RMSE and NLL by (part, row), mean and standard deviation over 5 seeds."""
DROPOUT = {"concrete": (4.81, -2.94), "energy": (1.09, -1.72), "yacht": (0.72, -1.38), "protein": (4.27, -2.87)}
NAMES = ("bde-table", "uci-table")


def test_bdes_numbers_are_the_published_ones_with_standard_errors() -> None:
    known = {(v.part, v.row, v.column): v.summary for v in every()["bde-table"].values}
    for (part, row), both in BDE.items():
        for column, (mean, sd) in zip(("rmse", "nll"), both, strict=True):
            found = known[part, row, column]
            assert (found.mean, found.n) == (mean, 5) and found.se * math.sqrt(5) == pytest.approx(sd)
    assert known["airfoil", "tabpfn", "nll"].mean == -0.9338 and math.isnan(known["airfoil", "tabpfn", "nll"].se)
    assert {k[1]: v.mean for k, v in known.items() if k[1] in ("tabpfn", "xgboost", "forest") and k[2] == "rmse"} == {
        "tabpfn": 0.1359,
        "xgboost": 0.2025,
        "forest": 0.2560,
    }


def test_seeds_and_splits_are_published_where_there_are_as_many_as_published() -> None:
    for name, setting in (("bde-table", "seeds"), ("uci-table", "random splits of a data set")):
        found = {scale: every()[name].settings(scale) for scale in ("cpu", "gpu", "paper")}
        marks = {scale: one.origin for scale, listed in found.items() for one in listed if one.name == setting}
        assert marks == {"cpu": OURS, "gpu": OURS, "paper": PUBLISHED}


def test_mc_dropouts_numbers_are_the_published_ones() -> None:
    known = {(v.part, v.column): v.summary for v in every()["uci-table"].values if v.row == "dropout"}
    assert {part: (known[part, "rmse"].mean, known[part, "log_likelihood"].mean) for part in DROPOUT} == DROPOUT
    assert known["protein", "rmse"].n == 5 and known["yacht", "rmse"].n == 20


def test_figures_of_standardised_targets_are_turned_into_the_targets_unit() -> None:
    rng, sd, shift = np.random.default_rng(3), 6.5, 120.0
    z, mean, sigma = rng.standard_normal(50), rng.standard_normal(50), rng.uniform(0.1, 2, 50)
    nll = -stats.norm.logpdf(z, mean, sigma).mean()
    y, centre = sd * z + shift, sd * mean + shift
    own = stats.norm.logpdf(y, centre, sd * sigma).mean()
    assert uci_table.log_likelihood_in_unit(nll, sd) == pytest.approx(own, rel=1e-12)
    rows = reduce_regression([np.column_stack([mean, sigma])], z[:, None], scale=sd).rows
    assert (rows["log_p"] - np.log(rows["scale"])).mean() == pytest.approx(own, rel=1e-12)  # as nll_original has it


@needs_data
def test_airfoils_published_numbers_are_in_the_unit_of_bdes_training_targets() -> None:
    task = tasks.make("uci-airfoil")
    assert getattr(task, "scale") == pytest.approx(uci_table.AIRFOIL_SD, abs=5e-5)  # noqa: B009


def sizes(name: str, scale: str) -> dict[str, rp.Size]:
    table = bde_table if name == "bde-table" else uci_table
    return dict(table.SIZES[scale])


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", NAMES)
def test_methods_take_as_many_gradients_and_keep_as_many_draws(name: str) -> None:
    """Exactly as many, of a start's most epochs and a chain together; only the deep ensembles may take fewer."""
    for part, one in planned(name, "smoke").items():
        size, made = sizes(name, "smoke")[part], chains(one)
        assert set(made) == set(LABELS)
        for method in EQUAL_COST:
            specs = [spec for group in made[method] for spec in group]
            if method == MORE:
                assert specs[0].early_stop is not None and specs[0].steps == size.start * specs[0].steps_per_epoch
                most = size.epochs * size.chains * len(made[method])
                assert most - size.start * size.chains < len(specs) * size.start <= most
                continue
            assert len(specs) == size.chains * len(made[method])
            for spec in specs:
                own = spec.steps * samplers.gradients_per_step(spec.sampler) / spec.steps_per_epoch
                started = size.start if spec.start_chain is not None else 0
                assert own + started == size.epochs and (started > 0) == (method == "mile")
                assert gradient_evaluations(spec) == own * spec.sampler.settings["num_data"]
                assert schedules.build(spec.schedule).kept == size.draws


@needs_data
@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("bde-table", "cpu"),
        ("uci-table", "gpu"),
        *(pytest.param("bde-table", scale, marks=pytest.mark.long) for scale in ("gpu", "paper")),
        *(pytest.param("uci-table", scale, marks=pytest.mark.long) for scale in ("cpu", "paper")),
    ],
)
def test_every_scale_can_be_planned_on_the_real_data(name: str, scale: str) -> None:
    for part, one in planned(name, scale).items():
        assert not one.refused and not one.lacks
        size = sizes(name, scale)[part]
        for sampled, made in one.comparisons[:1]:
            for variant, arm in zip(sampled.preset.variants, made.comparison.arms, strict=True):
                spec = arm.chains[0][0]
                kept = 1 if spec.early_stop is not None else size.draws
                assert schedules.build(spec.schedule).kept == kept, (part, variant.name)


def test_miles_published_numbers_are_judged_at_the_published_size_alone() -> None:
    judged = {c.name: c for c in every()["bde-table"].claims if "as-published" in c.name}
    assert {c.scales for c in judged.values()} == {("paper",)} and len(judged) == 4
    assert judged["mile-nll-as-published-airfoil"].right == -0.9126
    assert judged["mile-nll-as-published-airfoil"].tolerance == pytest.approx(0.0131)
    for size in bde_table.SIZES["paper"].values():
        assert (size.chains, size.repeats, size.draws, size.start) == (10, 5, 100, 1200)
        assert size.own["mile"] == {"epochs": 102_000, "sampler_settings": ("tune=50000",), "thinning": 10}
