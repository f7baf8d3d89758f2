"""Table 5 in small: steps by rule, rows by plain formulas; a Gaussian whose ratio of spreads is known in closed
form."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import table5 as command
from raychains.evaluation.mcmc_diagnostics import ess
from raychains.papers.csgmcmc import table5
from raychains.papers.csgmcmc.table5 import (
    ARMS,
    BY_SPREAD,
    MATCHED,
    RULES,
    SAME_MEAN,
    SAME_START,
    STRIDE,
    Bench,
    Plan,
    largest,
    log_grid,
    nearest,
)
from raychains.schedules import Constant, Cyclical
from tests.checks import refused
from tests.tasks import made_uci

SMALL = Plan(lanes=3, tuning_lanes=2, steps=240, grid=(1.0, 10.0, 2))
COLUMNS = {"rule", "lane", "lr", "ess", "sd_ratio", "draws"}
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found() -> Any:
    """The rows of a small table on made data by arm, and the bench they are of."""
    with pytest.MonkeyPatch.context() as patch:
        made_uci.use(patch)
        bench = Bench("heart", SMALL)
        matched = bench.matched()
        yield {arm.key: bench.rows(arm, matched) for arm in ARMS}, bench


def steps(rows: Rows, rule: str) -> dict[str, float | None]:
    return {key: next((r["lr"] for r in mine if r["rule"] == rule), None) for key, mine in rows.items()}


def test_every_arm_has_a_row_for_every_lane_and_rule_with_a_step(found: Any) -> None:
    rows, _ = found
    for mine in rows.values():
        assert all(set(row) == COLUMNS for row in mine)
        rules = [rule for rule in RULES if any(r["rule"] == rule for r in mine)]
        assert [(r["rule"], r["lane"]) for r in mine] == [(rule, lane) for rule in rules for lane in range(3)]
        assert {SAME_START, SAME_MEAN} <= set(rules)
    assert json.loads(json.dumps(rows)) == rows


def test_a_rows_figures_are_those_of_fresh_chains_by_plain_formulas(found: Any) -> None:
    rows, bench = found
    for arm in (ARMS[0], ARMS[2]):
        mine = [r for r in rows[arm.key] if r["rule"] == SAME_START]
        draws = bench.draws(arm, mine[0]["lr"], tuning=False)
        assert draws.shape == (200, 3, 4) and {r["draws"] for r in mine} == {200}
        others = bench.draws(arm, mine[0]["lr"], tuning=True)
        assert np.mean(draws[:, :2] == others) < 0.01, "not those the step was chosen on"
        for lane, row in enumerate(mine):
            each = [float(ess(draws[None, :, lane, d])) for d in range(4)]
            r = draws[:, lane].std(0) / bench.reference.sd
            assert row["ess"] == pytest.approx(np.mean([min(e, 200) for e in each]))
            assert row["sd_ratio"] == pytest.approx(np.median(np.maximum(r, 1 / r)))


def test_the_first_rule_takes_the_largest_step_of_the_grid_within_the_limit(found: Any) -> None:
    rows, bench = found
    for arm in ARMS:
        fitting = [lr for lr in log_grid(*SMALL.grid) if bench.spread(arm, lr) <= 1.1]
        assert steps(rows, BY_SPREAD)[arm.key] == (max(fitting) if fitting else None)


def test_the_other_rules_give_every_arm_the_step_that_sgld_was_matched_at(found: Any) -> None:
    rows, bench = found
    (same,) = set(steps(rows, SAME_START).values())
    by_mean = steps(rows, SAME_MEAN)
    assert same in log_grid(*SMALL.grid) and by_mean[MATCHED.key] == pytest.approx(same)
    mean = table5.mean_step(bench.method(MATCHED, same, tuning=False).schedule)
    for arm in ARMS:
        assert table5.mean_step(bench.method(arm, by_mean[arm.key], tuning=False).schedule) == pytest.approx(mean)


def test_the_mean_step_is_that_of_the_kept_draws() -> None:
    assert table5.mean_step(Constant(steps=10, lr=0.3, samples=4)) == pytest.approx(0.3)
    cyclical = Cyclical(steps=4, lr=2.0, cycles=2, exploration=0.5)  # keeps the second step of each, at r = ½
    assert table5.mean_step(cyclical) == pytest.approx(1.0)


def test_too_long_steps_diverge_and_have_no_figures(found: Any) -> None:
    _, bench = found
    arm = ARMS[1]
    assert bench.draws(arm, 1e25, tuning=True) is None and bench.spread(arm, 1e25) == float("inf")
    assert np.isnan(bench.size(arm, 1e25))
    assert [r["rule"] for r in bench.rows(arm, 1e25) if r["rule"] != BY_SPREAD] == []


def test_the_page_has_a_row_for_every_arm_with_the_published_size() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "blr.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in page.splitlines()]
    listed = [tuple(c[:4]) for c in lines if c[0] in table5.DATASETS]
    sizes = {(v.part, v.row): f"{v.summary.mean:.0f}" for v in table5.VALUES}
    constant = {f"{m}-constant": f"{m}-decreasing" for m in ("sgld", "sghmc")}
    assert listed == [
        (d, a.method, a.schedule, sizes[d, constant.get(a.key, a.key)]) for d in table5.DATASETS for a in ARMS
    ]


def test_the_command_prints_every_row_and_the_verdicts_on_the_claims_and_writes_them(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, bench = found
    monkeypatch.setattr(command, "Bench", lambda dataset, plan: bench)
    monkeypatch.setattr(bench, "rows", lambda arm, matched: rows[arm.key])
    for name in ("t.json", "t.parquet"):
        monkeypatch.setattr(sys, "argv", ["table5.py", "--dataset", "heart", "--out", str(tmp_path / name)])
        command.main()
    written = json.loads((tmp_path / "t.json").read_text())
    assert written == pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert written == [{"dataset": "heart", "arm": key, **row} for key, mine in rows.items() for row in mine]
    printed = capsys.readouterr().out
    for arm in ARMS:
        assert f"| {arm.method}, {arm.schedule} |" in printed
    mine = [r for r in rows["sgld-decreasing"] if r["rule"] == SAME_START]
    mean, error = np.mean([r["ess"] for r in mine]), np.std([r["ess"] for r in mine], ddof=1) / 3**0.5
    assert f"| {mine[0]['lr']:.3g} | {mean:.0f} ± {error:.0f} |" in printed
    assert "cSGLD has a larger effective sample size than SGLD at equally right draws (heart): " in printed


# Steps by rule

GRID = log_grid(0.1, 10.0, 10)


def counted(figure: Callable[[float], float]) -> tuple[Callable[[float], float], list[float]]:
    tried: list[float] = []

    def measure(step: float) -> float:
        tried.append(step)
        return figure(step)

    return measure, tried


def test_a_grid_has_its_steps_a_decade_and_both_ends() -> None:
    assert log_grid(0.1, 10.0, 2) == [0.1, 0.316, 1.0, 3.16, 10.0]
    assert len(GRID) == 21 and sorted(set(GRID)) == GRID
    assert log_grid(2.0, 9.0, 3) == [2.15, 4.64] and log_grid(1.0, 1.0, 5) == [1.0]


def test_the_largest_step_within_the_limit_is_found_where_small_ones_are_out_of_it_too() -> None:
    """A ratio of spreads is too large for long steps, and again for those too short to get anywhere."""
    measure, tried = counted(lambda x: max(1 + x / 10, 0.5 / x) if x < 8 else math.nan)
    assert largest(GRID, measure, 1.1) == 1.0
    assert tried == GRID[:9:-1], "none below it is tried"
    assert largest(GRID, lambda x: math.inf, 1.1) is None and largest([], measure, 1.1) is None
    assert largest(GRID, lambda x: 1.1, 1.1) == 10.0, "the limit itself is within"


@pytest.mark.parametrize("target", [3.0, 17.0, 98.0, 1.01])
def test_the_nearest_step_is_that_of_a_full_search(target: float) -> None:
    measure, tried = counted(lambda x: 10 * x)
    assert nearest(GRID, measure, target) == min(GRID, key=lambda x: abs(math.log(10 * x / target)))
    assert len(tried) == len(set(tried)) <= math.ceil(len(GRID) / STRIDE) + STRIDE


def test_without_a_step_that_reaches_it_the_best_below_the_breakdown_is_taken() -> None:
    for limit, best in ((5.0, 3.98), (20.0, 10.0)):
        assert nearest(GRID, lambda x, limit=limit: 10 * x if x < limit else math.nan, 1e6) == best
    assert nearest(GRID, lambda x: 10 * x, 1e-3) == 0.1
    with refused("steps", "break down"):
        nearest(GRID, lambda x: math.nan, 1.0)
