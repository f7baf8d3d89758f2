"""A run under a plan of deaths, from the driver in this process, with everything that must hold afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raychains.inference import results
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.planning import Comparison, events
from raychains.store import RunStore, Storage
from raychains.tasks import Task
from tests.chaos import plans, tally, worlds
from tests.orchestration.worlds import Diary

FAILURES = 30
"""More than a chain is killed."""


def run_and_check(
    folder: Path, comparison: Comparison, deaths: plans.Plan, clean: Task, cadence: float = worlds.CADENCE
) -> Diary:
    """Run ``comparison``, whose task's folder is ``folder / "deaths"``, and compare with ``clean``, the immortal
    task."""
    root, diary = Storage(folder / "store"), Diary()
    plans.write(folder / "deaths", deaths)
    resources = ResourceConfig(checkpoint_every=cadence, max_failures=FAILURES)
    outcome = run_chains(comparison, root, resources, diary, lease=Lease(root))
    assert not outcome.failed and not outcome.stopped
    store = RunStore(root, "chaos")
    results.write(store, comparison, outcome.views, outcome.seconds)
    tensors = check(folder, comparison, clean)
    worlds.check_results(store.table("results"), worlds.expected_results(comparison, clean, tensors))
    return diary


def check(folder: Path, comparison: Comparison, clean: Task) -> dict[Any, Any]:
    """Every planned death came where it was planned, and the samples are those of undisturbed chains, which are
    returned."""
    where = folder / "deaths"
    markers = plans.achieved(where)
    assert len(markers) == plans.planned(where), [m["where"] for m in markers]
    for marker in markers:
        plans.check_where_it_hit(marker)
    tally.add(markers)
    hashes, tensors = worlds.undisturbed(comparison.chains(), clean)
    worlds.check_samples(Storage(folder / "store"), hashes)
    work = worlds.check_work(where, comparison.chains())
    tally.LINES.append(f"{folder.name}: {work}")
    return tensors


def lost_slots(diary: Diary) -> int:
    return len(diary.of(events.WorkerLost))
