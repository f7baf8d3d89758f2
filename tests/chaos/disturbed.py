"""A run under a plan of deaths, from the driver in this process, with everything that must hold afterwards."""

from __future__ import annotations

from pathlib import Path

from raychains.inference import results
from raychains.orchestration.resource_config import ResourceConfig
from raychains.orchestration.run import run_chains
from raychains.planning import Comparison, events
from raychains.store import RunStore, Storage
from raychains.tasks import Task
from tests.chaos import plans, tally, worlds
from tests.orchestration.worlds import Diary


def run_and_check(folder: Path, comparison: Comparison, deaths: plans.Plan, clean: Task) -> Diary:
    """Run ``comparison``, whose task's folder is ``folder / "deaths"``, and compare with ``clean``, the immortal task."""
    where, root, diary = folder / "deaths", Storage(folder / "store"), Diary()
    plans.write(where, deaths)
    outcome = run_chains(comparison, root, ResourceConfig(checkpoint_every=worlds.CADENCE, max_failures=10), diary)
    assert not outcome.failed and not outcome.stopped
    store = RunStore(root, "chaos")
    results.write(store, comparison, outcome.views, outcome.seconds)

    markers = plans.achieved(where)
    assert len(markers) == plans.planned(where), [m["where"] for m in markers]
    for marker in markers:
        plans.check_where_it_hit(marker)
    tally.add(markers)
    hashes, tensors = worlds.undisturbed(comparison.chains(), clean)
    worlds.check_samples(root, hashes)
    work = worlds.check_work(where, comparison.chains())
    tally.LINES.append(f"{folder.name}: {work}")
    worlds.check_results(store.table("results"), worlds.expected_results(comparison, clean, tensors))
    return diary


def lost_slots(diary: Diary) -> int:
    return len(diary.of(events.WorkerLost))
