"""Distances to HMC's draws: all methods, and ways to spend a budget, at as many gradient evaluations; the claims."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from raychains import samplers, schedules
from raychains.core.spec import ChainSpec
from raychains.papers.fidelity import hmc_cifar10 as hmc
from raychains.papers.fidelity import posterior_budgets as budgets
from raychains.papers.fidelity import true_posterior as posterior
from raychains.planning.ensemble_start import METHOD as ENSEMBLE
from tests.papers.planned import chains, every, needs_data, planned

ROOT = Path(__file__).resolve().parents[2]
SMOKE_AND_CPU = ("smoke", pytest.param("cpu", marks=needs_data))


def groups_of(name: str, scale: str) -> Iterator[tuple[str, str, list[ChainSpec], float, list[int]]]:
    """Part, row, chains of a repeat, the epochs of gradients that these take, and how many draws each keeps."""
    for part, made in planned(name, scale).items():
        for row, groups in chains(made).items():
            for group in groups:
                spent = sum(s.steps * samplers.gradients_per_step(s.sampler) / s.steps_per_epoch for s in group)
                yield part, row, group, spent, [schedules.build(s.schedule).kept for s in group]


def temperatures(group: list[ChainSpec]) -> set[float]:
    return {schedules.build(s.schedule).temperature for s in group}


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    "scale",
    [*SMOKE_AND_CPU, *(pytest.param(s, marks=[needs_data, pytest.mark.long]) for s in ("gpu", "paper"))],
)
def test_methods_on_cifar_take_as_many_gradients(scale: str) -> None:
    size, rows = hmc.SIZES[scale], []
    for _, row, group, spent, kept in groups_of("hmc-cifar10", scale):
        point = row in hmc.POINTS
        assert spent == size.epochs * size.chains and len(group) == (1 if row == "sgd" else size.chains)
        assert set(kept) == {1 if point else size.draws} and temperatures(group) == {0.0 if point else 1.0}
        assert not any(s.sampler.settings.get("weight_decay") for s in group)
        rows.append(row)
    assert rows == [row for row in (hmc.ON_CPU if scale == "cpu" else hmc.LABELS) for _ in range(size.repeats)]


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("scale", SMOKE_AND_CPU)
def test_methods_beside_true_posteriors_take_as_many_gradients(scale: str) -> None:
    size, examples = posterior.SIZES[scale], posterior.SMOKE_EXAMPLES if scale == "smoke" else posterior.EXAMPLES
    rows: dict[str, list[str]] = {}
    for part, row, group, spent, kept in groups_of("true-posterior", scale):
        point = row in ("sgd", ENSEMBLE)
        # MILE's members count with their most epochs, although they stop early.
        spent += size.start * len(group) if row == "mile" else 0
        assert spent == pytest.approx(size.epochs * size.chains, rel=1e-3), (part, row)
        if point or scale != "smoke":  # MILE keeps few of a handful of steps
            few, many = (1, 1) if point else (0.9 * size.draws, 1.1 * size.draws)
            assert all(few <= k <= many for k in kept), row
        assert temperatures(group) == {0.0 if point else 1.0}
        priors = {s.sampler.settings["weight_decay"] for s in group}
        assert priors == {1e-3 if part == "digits" else 1 / examples}
        rows.setdefault(part, []).append(row)
    assert all(mine == [row for row in posterior.LABELS for _ in range(size.repeats)] for mine in rows.values())


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("scale", ["smoke", pytest.param("cpu", marks=[needs_data, pytest.mark.long])])
def test_ways_to_spend_a_budget_cost_as_much(scale: str) -> None:
    ways = {way.name: way for way in budgets.ways(scale)}
    for part, row, group, spent, each in groups_of("posterior-budgets", scale):
        way = ways.get(row, budgets.base(scale))
        budget, kept = budgets.epochs_of(way.budget, part), sum(each)
        if way.method == "mile":  # members count with their most epochs, although they stop early
            spent += sum(max(2, 2 * (budget // way.chains // 10)) for _ in group)
        assert len(group) == way.chains and {s.steps_per_epoch == 1 for s in group} == {way.method == "mile"}, row
        assert 0.97 * budget <= spent <= budget, (part, row)
        if way.method == ENSEMBLE:
            assert kept == way.chains
        elif scale != "smoke":  # of few steps fewer are kept
            assert kept in _kept(row, way, part), (part, row)


def _kept(row: str, way: budgets.Way, part: str) -> tuple[int, ...]:
    """Return the draws of all chains together, as the page says."""
    if way.method != "mile":
        return (64,) if row == "cycles-16" else (96,)
    if part == "digits":
        return {256: (5, 6), 1024: (20, 24), 4096: (80, 82)}[way.budget]
    return (26,) if way.budget == 256 else (102, 103, 104)


def test_settings_change_one_at_a_time() -> None:
    start = budgets.variant(budgets.base("cpu"), "digits", "cpu")
    changed = {one.name: one.options for one in budgets.changed("digits", "cpu")}
    for name, (_, given) in budgets.SETTINGS.items():
        options = changed[name]
        other = {key for key in options if options[key] != start.options.get(key)}
        assert other - {"thinning", "samples_per_cycle"} == set(given), name
        expected = {**given, **({"lr": start.options["lr"] * given["lr"]} if "lr" in given else {})}
        assert {key: options[key] for key in given} == expected


def test_step_sizes_are_the_nearest_of_the_committed_grid() -> None:
    rows = list(csv.DictReader((ROOT / "docs/results/posterior-settings.csv").open()))
    assert set(posterior.LR) == set(posterior.NAMES)
    for part, known in posterior.LR.items():
        assert set(known) == {*posterior.LABELS, "psgld"} - {"mile"}
        for method, lr in known.items():
            mine = [r for r in rows if (r["part"], r["method"]) == (part, method)]
            assert lr == float(min(mine, key=lambda r: float(r["total_variation"]))["lr"]), (part, method)


def test_claims_are_families_of_pairs_and_the_papers_scale_has_all_of_them() -> None:
    near, spent = every()["true-posterior"], every()["posterior-budgets"]
    assert near.family and spent.family and len(near.claims) == len(posterior.NAMES) * len(posterior.PAIRS)
    assert len({frozenset(pair) for pair in posterior.PAIRS}) == len(posterior.PAIRS)
    assert sum("sgd" in pair for pair in posterior.PAIRS) == 2
    assert (hmc.SIZES["paper"].epochs, hmc.SIZES["paper"].chains) == (200, 12)
    judged = {scale: sum(scale in c.scales for c in every()["hmc-cifar10"].claims) for scale in hmc.SIZES}
    assert judged == {"smoke": 0, "cpu": 12, "gpu": 20, "paper": 20}


def test_cells_are_of_all_samples_in_per_cent() -> None:
    about = {"group": 0, "repeat": 0, "chains": 1, "total_variation_low": 0.0}
    growth = [
        {**about, "arm": a, "samples": n, "agreement": v, "total_variation": v / 10, "agreement_low": v - 0.1,
         "agreement_high": v + 0.1, "total_variation_high": v}
        for a, n, v in (("first", 1, 0.2), ("first", 2, 0.4), ("second", 1, 0.3))
    ]  # fmt: skip
    seen = []

    def cells(rows: tuple[str, ...], columns: tuple[str, ...], table: pd.DataFrame | None = None) -> list[str]:
        seen.append((columns, None if table is None else table.set_index("arm")["agreement"].to_dict()))
        return []

    arms = dict(zip(hmc.ON_CPU, ("first", "second", "x", "y"), strict=True))
    run = SimpleNamespace(
        scale="cpu", part=hmc.PART, table=lambda name: pd.DataFrame(growth), cells=cells,
        arm=lambda row: SimpleNamespace(name=arms[row]),
    )  # fmt: skip
    found = hmc.tables(run)  # type: ignore[arg-type]
    assert seen[0] == (("agreement", "total_variation"), {"first": 40.0, "second": 30.0}) and seen[1][0] == ("error",)
    assert [r["row"] for r in found["growth"]] == ["sgd", "sgd", "ensemble"]
    ends = [(r["agreement_low"], r["total_variation_high"]) for r in found["growth"]]
    assert ends == [pytest.approx(p) for p in ((0.1, 0.2), (0.3, 0.4), (0.2, 0.3))]
