"""A chain of a sweep that two processes run together has the samples and reports of a chain of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import raychains as rc
from tests.orchestration import trials
from tests.sweeps.worlds import TASK, Diary, attempts_of, events, hashes, reports, undrawn


@pytest.mark.usefixtures("ray_session")
def test_a_sweep_of_groups_is_that_of_single_processes(tmp_path: Path) -> None:
    diary, store, options = Diary(), str(tmp_path / "store"), {"epochs": 6, "micro_batch": 23, "sampler": "csgld"}
    several = {"grid": {"cycles": [3]}, "workers_per_chain": 2, "callback": diary}
    with undrawn():
        [digest] = rc.sweep(task=TASK, store=store, name="s", **options, **several).table(full=True)["digest"]
    [ready] = diary.of(events.Ready)
    assert ready.slots == 1 and {r["workers"] for r in attempts_of(store, digest)} == {2}
    one = tmp_path / "one"
    alone = trials.reports(trials.trial(one, {"cycles": 3}, task=TASK, **options))
    assert digest == alone[-1]["digest"] and hashes(store, digest) == hashes(str(one), digest)
    told = [r["metrics"] for r in reports(store, "s", [digest])[digest]]
    assert (
        told == [{name: report[name] for name in told[0]} for report in alone] and "nll" in told[0] and len(told) == 3
    )
