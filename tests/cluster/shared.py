"""Runs on one cluster whose nodes come and go: a script, since Ray connects once. Prints what it saw as JSON.

Two nodes of one CPU. A run's chains land on both; a second run, of the same name, finds no room and says so; one node
leaves, a larger one joins, and the second run is over before the first, which then has a GPU shared, a type of GPU that
is not there, a slot that nobody has and a worker of another version behind it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray

from raychains.core.errors import UserError
from raychains.orchestration.cluster import session
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run import chain_workers, resource_wait
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from raychains.store import Storage
from tests.cluster import machines
from tests.cluster.tasks import Gated, places
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes
from tests.processes import ROOT, SECONDS, until

STEPS, BLOCK, AT = 600, 50, 400
RUN = "two-of-a-name"


def main(folder: Path, temporary: str) -> dict[str, Any]:
    (folder / "first").mkdir()
    resource_wait.HELD_AFTER = 1.0
    found: dict[str, Any] = {}
    with machines.cluster(temporary) as made:
        machines.add(made, num_cpus=1)
        leaving = machines.add(made, num_cpus=1)
        assert session.connect(made.address).ours
        found["grows"], found["room"] = RayWorkers().grows(), ResourceConfig().slots(RayWorkers()).room()
        found["refused"] = [said(cpus_per_chain=2), said(gpus_per_worker=0.5), said(accelerator_type="A100")]
        with ThreadPoolExecutor() as pool:  # nodes are started in the main thread
            found |= come_and_go(folder, made, leaving, pool)
            found["gpu"] = share(folder, made, pool)
        found["refused"].append(said(accelerator_type="A10"))
        found["ended"] = [ended(folder, cpus_per_chain=5, concurrent=1, slot_timeout=0.5)]
        chain_workers.__version__ = "0.0.1"  # this driver's
        found["ended"].append(ended(folder, concurrent=1))
    return found


def come_and_go(folder: Path, made: Any, leaving: Any, pool: ThreadPoolExecutor) -> dict[str, Any]:
    """A run that loses a node and is given a larger one; a second one waits for room meanwhile, and finds it there,
    too."""
    task, diary = Gated(str(folder / "first"), AT), Diary()
    plan, first = comparison(task, chains=3, steps=STEPS, block=BLOCK), Storage(folder / "first" / "store")
    with Lease(first, RUN) as lease:
        resources = ResourceConfig(checkpoint_every=0.05)
        running = pool.submit(run_chains, plan, first, resources, diary, lease=lease)
        until(lambda: len({p["node"] for p in places(folder / "first")}) == 2, "chains on both nodes")
        titles = [Path(f"/proc/{p['pid']}/cmdline").read_text().rstrip("\0 ") for p in places(folder / "first")]
        other = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.second", made.address, str(folder / "second"), RUN],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        until((folder / "second" / "waits").exists, "the second run to find no room")
        until(lambda: list((folder / "first").glob("store/chains/*/checkpoints/*")), "a checkpoint")
        made.remove_node(leaving, allow_graceful=False)
        machines.add(made, num_cpus=3)  # two for the chains of the first run that wait, one for the second run
        second = json.loads(other.communicate(timeout=SECONDS)[0].splitlines()[-1])
        early = not running.done()
        until(lambda: len({p["node"] for p in places(folder / "first")}) == 3, "a chain on the node that joined")
        (folder / "first" / "go").touch()
        outcome = running.result(timeout=SECONDS)
    return {
        "lost": [h.reason for h in diary.of(events.WorkerLost)],
        "failed": outcome.failed,
        "same": stored_hashes(first, plan) == undisturbed_hashes(plan, task),
        "samples": outcome.samples,
        "nodes": len({p["node"] for p in places(folder / "first")}),
        "actors": [p["actor"] for p in places(folder / "first")],
        "titles": titles,
        "second": second | {"over first": early, "status": other.returncode},
        "driver": lease.driver_id,
    }


def share(folder: Path, made: Any, pool: ThreadPoolExecutor) -> dict[str, Any]:
    """Two chains at once on the one GPU, on the one node that has its type."""
    (folder / "gpu").mkdir()
    machines.add(made, num_cpus=4, num_gpus=1, accelerator="A100")
    node = next(n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("GPU"))
    plan = comparison(Gated(str(folder / "gpu"), AT), chains=3, steps=STEPS, block=BLOCK)
    placement = ResourceConfig(gpus_per_worker=0.5, accelerator_type="A100", evaluate=False)
    held = root(folder / "gpu")
    running = pool.submit(run_chains, plan, held, placement, Diary(), lease=Lease(held))
    until(lambda: len(places(folder / "gpu")) == 2, "two chains at once")
    here = places(folder / "gpu")
    (folder / "gpu" / "go").touch()
    outcome = running.result(timeout=SECONDS)
    return {
        "slots": placement.slots(RayWorkers()).count,
        "there": all(p["node"] == node for p in places(folder / "gpu")),
        "gpus": [p["gpus"] for p in here],
        "processes": len({p["pid"] for p in here}),
        "finished": len(outcome.seconds),
    }


def said(**settings: Any) -> str:
    try:
        ResourceConfig(**settings).slots(RayWorkers())
    except UserError as error:
        return str(error)
    return ""


def ended(folder: Path, **placement: Any) -> str:
    """The one line with which a run ends of which no chain could run."""
    plan = comparison(Gated(str(folder / "first"), AT), chains=1, steps=STEPS)
    try:
        never, resources = root(folder / "never"), ResourceConfig(evaluate=False, **placement)
        run_chains(plan, never, resources, Diary(), lease=Lease(never))
    except UserError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"  # a node is killed on purpose
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        result = main(Path(sys.argv[1]), temporary)
        print(json.dumps(result | {"left": machines.left(temporary)}))
