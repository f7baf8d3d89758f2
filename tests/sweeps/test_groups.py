"""Chains of a sweep that two processes run together have the samples and reports of chains of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import raychains as rc
from tests.sweeps.worlds import TASK, Diary, attempts_of, events, hashes, reports


@pytest.mark.usefixtures("ray_session")
def test_a_sweep_of_groups_is_that_of_single_processes(tmp_path: Path) -> None:
    slots = {}
    for workers in (1, 2):
        diary, store = Diary(), str(tmp_path / str(workers))
        options = {"epochs": 6, "micro_batch": 23, "grid": {"cycles": [2, 3]}, "workers_per_chain": workers}
        table = rc.sweep(task=TASK, store=store, name="s", callback=diary, **options).table(full=True)
        [ready] = diary.of(events.Ready)
        slots[workers] = ready.slots
        digests = sorted(table["digest"])
        assert {r["workers"] for d in digests for r in attempts_of(store, d)} == {workers}
    assert slots == {1: 2, 2: 1} and len(digests) == 2
    one, two = (str(tmp_path / str(workers)) for workers in (1, 2))
    assert [hashes(one, d) for d in digests] == [hashes(two, d) for d in digests]
    assert [[r["metrics"] for r in reports(one, "s", digests)[d]] for d in digests] == [
        [r["metrics"] for r in reports(two, "s", digests)[d]] for d in digests
    ]
