"""Calls whose Ray loses processes, each resumed by the next: a script. Prints as JSON what was told, by kinds of calls.

`python -m tests.chaos.dying_ray FOLDER KIND …` does those of some `KINDS` one after another.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import raychains as rc
from raychains.core.config import Reproduce
from raychains.core.errors import RayLost
from raychains.orchestration.cluster import ray_watch
from raychains.papers.reproduce import plan
from raychains.planning import events
from raychains.planning.methods import resolve
from raychains.tasks.linear_regression import LinearRegression
from tests.chaos import worlds
from tests.chaos.tasks import MortalRegression
from tests.orchestration.worlds import Diary, stored_hashes, undisturbed_hashes

GCS, RAYLET = "gcs_server", "raylet"
STOPPED = f"{GCS} stopped"
KINDS = {"run": [GCS, RAYLET, STOPPED], "sweep": [GCS], "reproduce": [RAYLET], "foreign": [GCS]}
"""The victims of each."""
PATIENCE = ray_watch.ANSWER_WITHIN
PAUSE = 0.05
"""Seconds of a step at least: Ray takes five to leave a dead GCS, and its workers go on meanwhile."""


class Killer(Diary):
    """Ends the next victim among Ray's processes in each life of Ray, once two chains step, or before any does."""

    def __init__(self, victims: list[str], early: bool) -> None:
        super().__init__()
        self.victims, self.early, self.lives, self.kills = victims, early, 0, 0
        self.node: Any = None

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.Ready):
            self.lives += 1
            ray_watch.ANSWER_WITHIN = 5.0 if self.victims[self.kills :][:1] == [STOPPED] else PATIENCE
        far = isinstance(event, events.Tick) and [c.step > 10 * self.lives for c in event.running] == [True, True]
        if (far or (self.early and isinstance(event, events.Ready))) and self.kills < min(
            self.lives, len(self.victims)
        ):
            node = self.node or ray._private.worker._global_node
            victim, _, stopped = self.victims[self.kills].partition(" ")
            [started] = node.all_processes[victim]
            self.kills += 1
            os.kill(started.process.pid, signal.SIGSTOP if stopped else signal.SIGKILL)


def run(folder: Path, diary: Killer, **more: Any) -> None:
    """Run chains to their end, two at a time, and compare them with undisturbed ones."""
    (folder / "deaths").mkdir(exist_ok=True)
    sys.modules[resolve.__module__].BLOCK_DRAWS = worlds.BLOCK  # type: ignore[attr-defined]
    result = rc.run(
        task=MortalRegression(str(folder / "deaths"), PAUSE),
        store=str(folder / "store"),
        name="r",
        steps=300,
        cycles=4,
        sampler="sghmc",
        schedule="cyclical",
        exploration=0.5,
        checkpoint_every=0.2,
        callback=diary,
        progress=False,
        **{"chains": 2, **more},
    )
    clean = LinearRegression(num_data=100)
    hashes, tensors = worlds.undisturbed(result.comparison.chains(), clean)
    worlds.check_samples(result.store.root, hashes)
    worlds.check_results(result.store.table("results"), worlds.expected_results(result.comparison, clean, tensors))


def sweep(folder: Path, diary: Killer, resume: bool) -> None:
    """The same of a sweep's chains."""
    store = str(folder / "store")
    rc.sweep(
        task="tests.sweeps.tasks:Guarded", task_settings=["pause=0.2"], store=store, name="s", epochs=24, val_split=40,
        samples_per_cycle=1, thinning=1, exploration=0.5, cycles=4, grid=["lr=.05,.1"], checkpoint_every=0.2,
        callback=diary, progress=False, resume=resume,
    )  # fmt: skip
    planned = diary.of(events.SweepPlanned)[-1]
    chains = {spec.digest: spec for point in planned.plan.points for spec in point.specs}
    assert stored_hashes(store, chains) == undisturbed_hashes(chains)


def reproduce(folder: Path, diary: Killer) -> None:
    """The same of a published table's chains."""
    store, asked = str(folder / "store"), {"names": ("table4",), "scale": "smoke"}
    chains = {d: s for part in plan(Reproduce(store=store, **asked)).parts for d, s in part.chains().items()}
    [done] = rc.reproduce(**asked, store=store, checkpoint_every=0.2, callback=diary, progress=False)
    assert done.failed == [] and stored_hashes(store, chains) == undisturbed_hashes(chains)


def foreign(folder: Path, temporary: str, diary: Killer) -> None:
    """The same on a cluster that the run only joins: it cannot go on."""
    ray_watch.AWAY_FOR = 5.0
    head = {"num_cpus": 2, "include_dashboard": False, "include_log_monitor": False, "temp_dir": temporary}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "object_store_memory": 100_000_000})
    diary.node = cluster.head_node
    try:
        run(folder, diary, address=cluster.address)
    finally:
        cluster.shutdown()


def call(folder: Path, kind: str, temporary: str, diary: Killer, resume: bool) -> None:
    if kind == "sweep":
        sweep(folder, diary, resume)
    elif kind == "reproduce":
        reproduce(folder, diary)
    elif kind == "foreign":
        foreign(folder, temporary, diary)
    else:  # the third chain needs an answer of Ray
        run(folder, diary, chains=3, concurrent=2, resume=resume)


def told(folder: Path, kind: str, temporary: str) -> dict[str, Any]:
    """Call as often as Ray is lost, and once more."""
    victims, lost = KINDS[kind], []
    diary = Killer(victims, early=kind == "reproduce")
    folder.mkdir()
    for resume in [False] if kind == "foreign" else [False, *[True] * len(victims)]:
        try:
            call(folder, kind, temporary, diary, resume)
        except RayLost as error:
            lost.append(f"{error.exit_status}: {error}")
    found: dict[str, Any] = {"lost": lost, "connected": ray.is_initialized(), "lives": diary.lives}
    return found | {"began": [event.step for event in diary.of(events.ChainBegan)]}


def main(folder: Path, kinds: list[str]) -> None:
    found = {}
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp", ignore_cleanup_errors=True) as temporary:
            os.environ.pop("RAY_TMPDIR", None)
            if kind != "foreign":  # a cluster is given its folder
                os.environ["RAY_TMPDIR"] = temporary
            found[kind] = told(folder / kind, kind, temporary)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
