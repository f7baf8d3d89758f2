"""Points that Optuna chooses: by the results so far, none that does not fit, none twice after a resume."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Repeater

import raychains as rc
from raychains.api import plans
from raychains.core.config import Sweep
from raychains.core.errors import UserError
from raychains.orchestration.tune.optuna_search import OptunaSearch
from raychains.planning import events
from raychains.store import load_sweep
from tests.sweeps.worlds import TASK, Diary, undrawn

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

    def __init__(self, asked: list[dict[str, Any]]) -> None:
        planned = plans.sweep(Sweep(epochs=40, optuna=30, space=ENTRIES))
        self.make, self.asked = planned.points.make, list(asked)
        self.search = OptunaSearch(planned, "nll", asked=asked, choose=self.choose)

    def choose(self, values: Mapping[str, Any]) -> None:
        assert self.make(len(self.asked), values).specs[0].schedule.settings["cycles"] == values["cycles"]
        self.asked.append(dict(values))

    def run(self, trials: int) -> list[dict[str, Any]]:
        """Suggest and end so many; their values."""
        found = []
        for n in range(trials):
            found.append(values := self.search.suggest(f"t{n}"))
            value = (math.log10(values["lr"]) + 2) ** 2 + values["cycles"] / 100
            self.search.on_trial_complete(f"t{n}", {"nll": value})
        return found


def test_it_learns_from_results_those_of_earlier_drivers_too_and_asks_for_no_point_twice() -> None:
    first = Bowl([])
    first.run(15)
    second = Bowl(first.asked)
    assert second.run(30) == second.asked and second.asked[:15] == first.asked
    seen = [tuple(sorted(values.items())) for values in second.asked]
    assert len(set(seen)) == 30
    away = [(math.log10(values["lr"]) + 2) ** 2 for values in second.asked]
    assert sum(away[15:]) < 0.5 * sum(away[:15]), "one of 34 random searches does as well"


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_it_goes_on_where_chains_are_lost_and_learns_the_mean_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    entries = (*ENTRIES, "sampler=csgld,csghmc")
    planned = plans.sweep(Sweep(epochs=40, optuna=12, space=entries, repeats=2))
    asked: list[Any] = []

    def choose(values: Mapping[str, Any]) -> None:
        asked.append(planned.points.make(len(asked), values))

    search = OptunaSearch(planned, "nll", asked=[], choose=choose)
    trials = Repeater(search, repeat=2)
    ends = [0.5, 0.7, None, None, 1e30, 1e30, None, 0.25]
    for n in range(24):
        values = trials.suggest(f"t{n}")
        assert values == {**asked[-1].values, "__trial_index__": n % 2} and len(asked) == n // 2 + 1
        value = ends[n % len(ends)]
        trials.on_trial_complete(f"t{n}", None if value is None else {"nll": value}, error=value is None)
    assert not caplog.records, "Optuna took each end as it was"
    learnt = [trial.value for trial in search._ot_study.trials if trial.state.name != "FAIL"]
    assert learnt == [0.6, 1e30, 0.25] * 3


def test_without_optuna_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"optuna must be installed for `optuna`: pip install 'raychains\[optuna\]'"):
        rc.sweep(task="digits", optuna=4, space={"lr": "log:1e-3:1"}, store=str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
