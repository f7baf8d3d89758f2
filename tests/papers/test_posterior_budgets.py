"""Ways to spend gradients on a posterior: each budget's arms cost as much, and settings change one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from raychains import samplers, schedules
from raychains.data import standins
from raychains.data.root import rooted
from raychains.papers.fidelity import posterior_budgets as study
from raychains.planning.ensemble_start import METHOD as ENSEMBLE
from tests.papers.planned import chains, every, planned


@pytest.fixture
def root(tmp_path: Path) -> Iterator[None]:
    with rooted(str(standins.make(tmp_path / "data", corruptions=1))):
        yield


def counted(scale: str) -> None:
    for part, made in planned("posterior-budgets", scale).items():
        arms = chains(made)
        ways = {way.name: way for way in study.ways(scale)}
        for row, groups in arms.items():
            way = ways.get(row, study.base(scale))
            budget = study.epochs_of(way.budget, part)
            for group in groups:
                spent = sum(s.steps * samplers.gradients_per_step(s.sampler) / s.steps_per_epoch for s in group)
                if way.method == "mile":  # members count with their most epochs, although they stop early
                    spent += sum(max(2, 2 * (budget // way.chains // 10)) for _ in group)
                assert len(group) == way.chains
                full = {s.steps_per_epoch == 1 for s in group}
                assert full == {way.method == "mile"}, row
                assert 0.97 * budget <= spent <= budget, (part, row)
                kept = sum(schedules.build(s.schedule).kept for s in group)
                if way.method == ENSEMBLE:
                    assert kept == way.chains
                elif scale != "smoke":  # of few steps fewer are kept
                    assert kept in _kept(row, way, part), (part, row)


def _kept(row: str, way: study.Way, part: str) -> tuple[int, ...]:
    """Return the draws of all chains together, as the page says."""
    if way.method != "mile":
        return (64,) if row == "cycles-16" else (96,)
    if part == "digits":
        return {256: (5, 6), 1024: (20, 24), 4096: (80, 82)}[way.budget]
    return (26,) if way.budget == 256 else (102, 103, 104)


@pytest.mark.usefixtures("root")
def test_ways_to_spend_a_budget_cost_as_much_on_stand_ins() -> None:
    counted("smoke")


@pytest.mark.long
@pytest.mark.skipif("RAYCHAINS_DATA" not in os.environ, reason="RAYCHAINS_DATA is not set: it names the data root")
def test_ways_to_spend_a_budget_cost_as_much_at_the_scale_that_is_committed() -> None:
    counted("cpu")


def test_settings_change_one_at_a_time() -> None:
    start = study.variant(study.base("cpu"), "digits", "cpu")
    dependent = {"thinning", "samples_per_cycle"}
    changed = {one.name: one for one in study.changed("digits", "cpu")}
    for name, (_, given) in study.SETTINGS.items():
        options = changed[name].options
        other = {key for key in options if options[key] != start.options.get(key)} - dependent
        assert other == set(given), name
        expected = {**given, **({"lr": start.options["lr"] * given["lr"]} if "lr" in given else {})}
        assert {key: options[key] for key in given} == expected


def test_claims_compare_rows_that_every_part_has() -> None:
    experiment = every()["posterior-budgets"]
    rows = set(study.labels("cpu"))
    assert experiment.family
    assert {row for claim in experiment.claims for _, row, _ in claim.cells} <= rows
    assert len({claim.name for claim in experiment.claims}) == len(experiment.claims)


def test_ways_are_ranked_by_their_mean_ratio_to_the_nearest_of_each_part() -> None:
    way = {"budget": 8, "chains": 1, "cycles": 1}
    rows = [
        {**way, "part": part, "method": method, "repeat": repeat, study.VARIATION: value}
        for part, method, values in (("a", "x", (1, 3)), ("a", "y", (4, 4)), ("b", "x", (9, 9)), ("b", "y", (2, 4)))
        for repeat, value in enumerate(values)
    ]
    found = study.ranked(pd.DataFrame(rows))
    assert list(found["method"]) == ["y", "x"]
    assert list(found["score"]) == [pytest.approx((2 + 1) / 2), pytest.approx((1 + 3) / 2)]
    assert replace(study.base("cpu"), chains=1).name in {w.name for w in study.ways("cpu")}
