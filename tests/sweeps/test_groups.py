"""Chains of a sweep that two processes run together have the samples and reports of chains of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from raychains.planning import events
from tests.orchestration import trials
from tests.sweeps.worlds import Diary, attempts_of, hashes, reports, undrawn


@pytest.mark.usefixtures("ray_session")
def test_a_sweep_of_groups_of_which_one_loses_a_worker_is_that_of_single_processes(tmp_path: Path) -> None:
    """Ranks wait, too, while the trial waits for Tune; each trial has processes of its own."""
    (tmp_path / "die").touch()
    diary, store, one = Diary(), str(tmp_path / "store"), tmp_path / "one"
    options: dict[str, Any] = {"epochs": 6, "micro_batch": 23, "sampler": "csgld", "cycles": 3}
    options |= {"task": "tests.sweeps.tasks:DyingRank", "task_settings": (f"folder={tmp_path}",)}
    with undrawn():
        several = {"grid": {"exploration": [0.5, 0.25]}, "workers_per_chain": 2, "callback": diary}
        table = rc.sweep(store=store, name="s", **options, **several).table(full=True)
    [ready] = diary.of(events.Ready)
    attempts = [attempts_of(store, digest) for digest in table["digest"]]
    assert ready.slots == 1 and sorted(map(len, attempts)) == [1, 2]
    assert {attempt["workers"] for each in attempts for attempt in each} == {2}
    [died] = tmp_path.glob("died-*")
    assert died.name.partition("-")[2] not in {str(a["pid"]) for each in attempts for a in each}, (
        "it was a trial itself"
    )
    for digest, exploration in zip(table["digest"], table["exploration"], strict=True):
        alone = trials.reports(trials.trial(one, {"exploration": exploration}, **options))
        assert digest == alone[-1]["digest"] and hashes(store, digest) == hashes(str(one), digest)
        told = [report["metrics"] for report in reports(store, "s", [digest])[digest]]
        assert told == [{name: report[name] for name in told[0]} for report in alone]
        assert "nll" in told[0] and len(told) == 3
