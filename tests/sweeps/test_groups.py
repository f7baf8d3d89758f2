"""Chains of a sweep that two processes run together have the samples and reports of chains of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import raychains as rc
from tests.orchestration import trials
from tests.sweeps.worlds import TASK, Diary, attempts_of, events, hashes, reports


@pytest.mark.usefixtures("ray_session")
def test_a_sweep_of_groups_is_that_of_single_processes(tmp_path: Path) -> None:
    diary, store, options = Diary(), str(tmp_path / "store"), {"epochs": 6, "micro_batch": 23, "sampler": "csgld"}
    several = {"grid": {"cycles": [2, 3]}, "workers_per_chain": 2, "callback": diary}
    digests = list(rc.sweep(task=TASK, store=store, name="s", **options, **several).table(full=True)["digest"])
    [ready] = diary.of(events.Ready)
    assert ready.slots == 1 and {r["workers"] for d in digests for r in attempts_of(store, d)} == {2}
    one = tmp_path / "one"
    alone = [trials.reports(trials.trial(one, {"cycles": cycles}, task=TASK, **options)) for cycles in (2, 3)]
    assert digests == [found[-1]["digest"] for found in alone] and len({*digests}) == 2
    assert [hashes(store, d) for d in digests] == [hashes(str(one), d) for d in digests]
    for digest, found in zip(digests, alone, strict=True):
        told = [r["metrics"] for r in reports(store, "s", digests)[digest]]
        assert told == [{name: report[name] for name in told[0]} for report in found] and "nll" in told[0]
