"""Points that Optuna chooses: by the results so far, none that does not fit, none twice after a resume."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from raychains.core.config import Sweep
from raychains.core.errors import UserError
from raychains.orchestration.optuna_search import OptunaSearch
from raychains.planning import search_space, sweep_points
from raychains.store import load_sweep
from tests.sweeps.worlds import TASK, Diary, events, rc, undrawn

SPACE = {"lr": "log:1e-3:.2", "cycles": "int:2:40", "exploration": "uniform:0:.5"}
ENTRIES = tuple(f"{name}={text}" for name, text in SPACE.items())


@pytest.mark.usefixtures("ray_session")
def test_a_sweep_of_three_points(tmp_path: Path) -> None:
    options: dict[str, Any] = {"task": TASK, "val_split": 40, "thinning": 1, "optuna": 3, "space": SPACE, "repeats": 2}
    options |= {"concurrent": 1}
    first = Diary()
    with undrawn():
        result = rc.sweep(store=str(tmp_path), name="three", callback=first, **options)
    table = result.table(full=True)
    values = {(view.arm, view.group): view.metrics[0]["nll"] for view in first.of(events.ViewDone)}
    assert [event.point.number for event in first.of(events.PointChosen)] == [0, 1, 2]
    assert values == {(f"point-{row.point}", row.repeat): row.nll for row in table.itertuples()}
    assert len(table) == 6 and set(table["status"]) == {"finished"} and set(table["repeat"]) == {0, 1}
    assert len({tuple(r) for r in table[["lr", "cycles", "exploration"]].itertuples(index=False)}) == 3
    means = table.groupby("point")["nll"].mean()
    best = table[table["point"] == means.idxmin()].iloc[0]
    assert [result.best[name] for name in SPACE] == [best[name] for name in SPACE]
    diary = Diary()
    with undrawn():
        rc.sweep(store=str(tmp_path), name="three", resume=True, callback=diary, **options)
    assert not diary.of(events.ChainFinished) and len(diary.of(events.ViewDone)) == 6
    assert len(load_sweep(f"{tmp_path}/sweeps/three").asked()) == 3


class Bowl:
    """Values of points without chains: the best has lr near 1e-2 and few cycles."""

    values: ClassVar[dict[str, float]] = {}

    def __init__(self, asked: list[dict[str, Any]], count: int = 30) -> None:
        planned = sweep_points.plan(Sweep(epochs=40, optuna=count, space=ENTRIES))
        self.asked = list(asked)
        self.search = OptunaSearch(
            planned.plan,
            search_space.read_space(ENTRIES),
            make=planned.points.make,
            asked=asked,
            keep=lambda number, values: self.asked.append(dict(values)),
            add=lambda point: [dict(point.values)] if point.specs[0].digest not in self.values else [],
            value=lambda digest: (self.values[digest], True) if digest in self.values else None,
        )

    def run(self, trials: int) -> None:
        """Suggest and end so many."""
        for n in range(trials):
            self.search.suggest(f"t{n}")
            point = self.search.points[-1]
            value = (math.log10(point.values["lr"]) + 2) ** 2 + point.values["cycles"] / 100
            self.values[point.specs[0].digest] = value
            self.search.on_trial_complete(f"t{n}")


def test_it_learns_from_results_those_of_earlier_drivers_too_and_asks_for_no_point_twice() -> None:
    Bowl.values = {}
    first = Bowl([])
    first.run(15)
    second = Bowl(first.asked)
    second.run(15)
    assert second.search.suggest("last") == "FINISHED" and len(second.search.points) == 30
    seen = [tuple(sorted(values.items())) for values in second.asked]
    assert len(set(seen)) == 30
    away = [(math.log10(values["lr"]) + 2) ** 2 for values in second.asked]
    assert sum(away[15:]) < 0.5 * sum(away[:15]), "one of 34 random searches does as well"
    assert all(p.specs[0].schedule.settings["cycles"] == p.values["cycles"] for p in second.search.points)


def test_it_goes_on_where_points_were_stopped_failed_or_are_no_numbers(caplog: pytest.LogCaptureFixture) -> None:
    entries = (*ENTRIES, "sampler=csgld,csghmc")
    plan = sweep_points.plan(Sweep(epochs=40, optuna=25, space=entries, repeats=2))
    ends: list[tuple[float, bool] | None] = [(0.5, True), (0.7, False), None, (math.nan, True), (0.6, True)]
    values: dict[str, tuple[float, bool] | None] = {}
    asked: list[int] = []
    search = OptunaSearch(
        plan.plan,
        plan.ranges,
        make=plan.points.make,
        asked=[],
        keep=lambda number, point: asked.append(number),
        add=lambda point: [dict(point.values)] * 2,
        value=values.get,
    )
    for n in range(50):
        assert {"lr", "cycles", "exploration", "sampler"} == search.suggest(f"t{n}").keys()
        point = search.points[-1]
        values |= dict.fromkeys((spec.digest for spec in point.specs), ends[point.number % len(ends)])
        search.on_trial_complete(f"t{n}", error=point.number == 7)
    assert search.suggest("last") == "FINISHED" and asked == list(range(25))
    assert not caplog.records, "Optuna took each end as it was"


def test_a_point_proposed_again_while_its_chains_run_counts_when_they_end(caplog: pytest.LogCaptureFixture) -> None:
    plan = sweep_points.plan(Sweep(epochs=40, optuna=3, space=("cycles=2",)))
    values: dict[str, tuple[float, bool]] = {}
    taken: set[str] = set()

    def add(point: Any) -> list[dict[str, Any]]:
        known, digest = point.specs[0].digest in taken, point.specs[0].digest
        taken.add(digest)
        values[digest] = (9.0, True)  # of a cycle before the last
        return [] if known else [dict(point.values)]

    search = OptunaSearch(
        plan.plan,
        plan.ranges,
        make=plan.points.make,
        asked=[],
        keep=lambda number, point: None,
        add=add,
        value=values.get,
    )
    search.suggest("t0")
    assert search.suggest("t1") == "FINISHED", "the other two are the first again"
    values[search.points[0].specs[0].digest] = (0.5, True)
    search.on_trial_complete("t0")
    assert [trial.value for trial in search._ot_study.trials] == [0.5] * 3


def test_without_optuna_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"optuna must be installed for `optuna`: pip install 'raychains\[optuna\]'"):
        rc.sweep(task="digits", optuna=4, space={"lr": "log:1e-3:1"}, store=str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
