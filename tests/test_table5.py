"""Table 5 in small: its rows, the same figures by plain formulas, and what is said of the paper's order."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import table5 as command
from raychains.evaluation.diagnostics import ess
from raychains.experiments import table5
from raychains.experiments.table5 import ARMS, BY_SPREAD, MATCHED, RULES, SAME_MEAN, SAME_START, Bench, Plan
from raychains.experiments.tuning import log_grid
from raychains.schedules import Constant, Cyclical
from tests.checks import refused
from tests.tasks import made_uci

SMALL = Plan(lanes=3, tuning_lanes=2, steps=240, grid=(1.0, 10.0, 2))
COLUMNS = {
    "dataset", "method", "arm", "rule", "lr", "ess", "ess_se", "ess_uncapped", "ess_uncapped_se", "sd_ratio", "sd_ratio_se",
    "draws", "published_ess",
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Any:
    """The rows of a small table on made data, the lines told, and the bench they are of."""
    with pytest.MonkeyPatch.context() as patch:
        made_uci.use(patch)
        lines: list[str] = []
        rows = list(table5.rows(["heart"], SMALL, lines.append))
        yield rows, lines, Bench("heart", SMALL)


def test_every_arm_has_a_row_for_every_rule(found: Any) -> None:
    rows, lines, _ = found
    assert [(r["method"], r["arm"], r["rule"]) for r in rows] == [
        (a.method, a.schedule, n) for a in ARMS for n in RULES
    ]
    for row in rows:
        assert set(row) == COLUMNS and row["dataset"] == "heart"
        assert row["published_ess"] == {"SGLD": 2199, "cSGLD": 2541, "SGHMC": 5000, "cSGHMC": 5000}[row["method"]]
    assert json.loads(json.dumps(rows)) == rows
    assert "R-hat" in lines[0] and len(lines) == 1 + len(ARMS)


def test_a_rows_figures_are_those_of_fresh_chains_by_plain_formulas(found: Any) -> None:
    rows, _, bench = found
    for row in (rows[1], rows[7]):
        arm = next(a for a in ARMS if (a.method, a.schedule) == (row["method"], row["arm"]))
        draws = bench.draws(arm, row["lr"], tuning=False)
        assert draws.shape == (200, 3, 4) and row["draws"] == 200
        others = bench.draws(arm, row["lr"], tuning=True)
        assert np.mean(draws[:, :2] == others) < 0.01, "not those the step was chosen on"
        sizes, ratios = [], []
        for lane in range(3):
            each = [float(ess(draws[None, :, lane, d])) for d in range(4)]
            sizes.append(np.mean([min(e, 200) for e in each]))
            r = draws[:, lane].std(0) / bench.reference.sd
            ratios.append(np.median(np.maximum(r, 1 / r)))
        assert row["ess"] == pytest.approx(np.mean(sizes)) and row["sd_ratio"] == pytest.approx(np.mean(ratios))
        assert row["ess_se"] == pytest.approx(np.std(sizes, ddof=1) / 3**0.5)
        assert row["ess_uncapped"] >= row["ess"] - 1e-9


def test_the_first_rule_takes_the_largest_step_of_the_grid_within_the_limit(found: Any) -> None:
    rows, _, bench = found
    steps = log_grid(*SMALL.grid)
    for row in (r for r in rows if r["rule"] == BY_SPREAD):
        arm = next(a for a in ARMS if (a.method, a.schedule) == (row["method"], row["arm"]))
        fitting = [lr for lr in steps if bench.spread(arm, lr) <= 1.1]
        assert row["lr"] == (max(fitting) if fitting else None)
        assert (row["ess"] is None) == (row["lr"] is None)


def test_the_other_rules_give_every_arm_the_step_that_sgld_was_matched_at(found: Any) -> None:
    rows, _, bench = found
    by = {(r["method"], r["arm"], r["rule"]): r["lr"] for r in rows}
    (same,) = {lr for (_, _, rule), lr in by.items() if rule == SAME_START}
    assert same in log_grid(*SMALL.grid) and by[MATCHED.method, MATCHED.schedule, SAME_MEAN] == pytest.approx(same)
    wanted = table5.mean_step(bench.method(MATCHED, same, tuning=False).schedule)
    for arm in ARMS:
        schedule = bench.method(arm, by[arm.method, arm.schedule, SAME_MEAN], tuning=False).schedule
        assert table5.mean_step(schedule) == pytest.approx(wanted)


def test_the_mean_step_is_that_of_the_kept_draws() -> None:
    assert table5.mean_step(Constant(steps=10, lr=0.3, samples=4)) == pytest.approx(0.3)
    cyclical = Cyclical(steps=4, lr=2.0, cycles=2, exploration=0.5)  # keeps the second step of each, at r = ½
    assert table5.mean_step(cyclical) == pytest.approx(1.0)


def test_too_long_steps_diverge_and_have_no_figures(found: Any) -> None:
    _, _, bench = found
    arm = ARMS[1]
    assert bench.draws(arm, 1e25, tuning=True) is None and bench.spread(arm, 1e25) == float("inf")
    assert np.isnan(bench.size(arm, 1e25))
    row = bench.row(arm, BY_SPREAD, 1e25)
    assert set(row) == COLUMNS and row["ess"] is None and row["lr"] == 1e25


def rows_with(**sizes: tuple[float, float]) -> list[dict[str, Any]]:
    arms = {a.method: a.schedule for a in reversed(ARMS)}
    return [
        {
            "dataset": "heart", "rule": "made", "method": m, "arm": arms[m], "ess": s, "ess_se": e,
            "published_ess": table5.PUBLISHED[m]["heart"],
        }
        for m, (s, e) in sizes.items()
    ]  # fmt: skip


def test_verdicts_compare_within_two_standard_errors() -> None:
    rows = rows_with(SGLD=(100, 3), cSGLD=(109, 4), SGHMC=(200, 3), cSGHMC=(150, 4))
    told = {(v["first"], v["second"]): (v["published"], v["found"]) for v in table5.verdicts(rows)}
    assert told == {
        ("cSGLD", "SGLD"): ("more", "the same"),
        ("cSGHMC", "SGHMC"): ("the same", "less"),
        ("SGHMC", "SGLD"): ("more", "more"),
        ("cSGHMC", "cSGLD"): ("more", "more"),
    }
    rows[0] |= {"ess": None, "ess_se": None}
    assert [v["found"] for v in table5.verdicts(rows)] == [None, "less", None, "more"]
    assert table5.verdicts(rows, traditional="constant")[0]["first"] == "cSGHMC", "the others have no such arm here"


def test_the_page_has_a_row_for_every_arm_with_the_published_size() -> None:
    page = (Path(__file__).parents[1] / "docs" / "blr.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in page.splitlines()]
    told = [tuple(c[:4]) for c in lines if c[0] in table5.DATASETS]
    expected = [(d, a.method, a.schedule, str(table5.PUBLISHED[a.method][d])) for d in table5.DATASETS for a in ARMS]
    assert told == expected


def test_unknown_data_are_refused() -> None:
    with refused("dataset", "iris"):
        list(table5.rows(["iris"], SMALL))


def test_the_command_prints_every_row_and_writes_them(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _, _ = found
    monkeypatch.setattr(table5, "rows", lambda datasets, plan, tell: [{**r, "dataset": datasets[0]} for r in rows])
    for name in ("t.json", "t.parquet"):
        monkeypatch.setattr(sys, "argv", ["table5.py", "--dataset", "heart", "--out", str(tmp_path / name)])
        command.main()
    assert json.loads((tmp_path / "t.json").read_text()) == rows == pq.read_table(tmp_path / "t.parquet").to_pylist()
    printed = capsys.readouterr().out
    for arm in ARMS:
        assert f"| {arm.method} | {arm.schedule} | {table5.PUBLISHED[arm.method]['heart']} |" in printed
    shown = rows[1]
    assert f"| {shown['lr']:.3g} | {shown['ess']:.0f} ± {shown['ess_se']:.0f} | {shown['sd_ratio']:.2f} ± " in printed
    assert "| heart | cSGLD against SGLD | more |" in printed
