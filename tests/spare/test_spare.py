"""A process is kept ready for a lost worker's successor: it is used, and changes neither threads nor samples."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from raychains.orchestration import chain_workers, ray_private, session
from raychains.orchestration.ray_workers import RayWorkers
from raychains.orchestration.resource_config import ResourceConfig
from raychains.orchestration.run import driver_of
from raychains.planning import events
from raychains.store import ChainStore, Storage
from raychains.tasks.mixture import Mixture25
from tests.orchestration.tasks import Slowing
from tests.orchestration.worlds import Diary, comparison, stored_hashes, undisturbed_hashes
from tests.processes import json_of, until


@pytest.fixture
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Ray of the test's own, with one CPU: all of it is a chain's."""
    assert not ray.is_initialized()
    made = session.connect("local", object_store_memory=200_000_000, temp_dir="/tmp", cpus=1)
    yield
    made.close()


def test_where_another_raychains_is_installed_nothing_is_preloaded_and_ray_goes_on() -> None:
    """Ray's processes pass an ImportError over and end with any other; of the wrong package nothing stays imported."""
    tried = "import json, sys\ntry:\n import raychains.orchestration.preload\nexcept ImportError:\n pass\n"
    found = json_of("-c", tried + "print(json.dumps([name for name in sys.modules if name.startswith('raychains')]))")
    assert found == []


def idle() -> set[int]:
    """Processes of this process's Ray that wait for an actor, and have torch."""
    return {pid for pid in ours() if title(pid).startswith("ray::IDLE") and "libtorch" in mapped(pid)}


def ours() -> set[int]:
    """Processes whose raylet has this process's Ray."""
    raylets = {p.process.pid for p in ray._private.worker._global_node.all_processes["raylet"]}
    return {int(p.name) for p in Path("/proc").glob("[0-9]*") if parent(int(p.name)) in raylets}


def text_of(pid: int, file: str) -> str:
    try:
        return (Path("/proc") / str(pid) / file).read_text(errors="replace")
    except OSError:
        return ""


def parent(pid: int) -> int:
    return int(text_of(pid, "stat").rpartition(")")[2].split()[1:2][0] or 0) if text_of(pid, "stat") else 0


def title(pid: int) -> str:
    return text_of(pid, "cmdline")


def mapped(pid: int) -> str:
    return text_of(pid, "maps")


class Killing(Diary):
    """Kills the worker once a process is ready, which it waits for."""

    def __init__(self, root: Storage, digest: str, go: Path) -> None:
        super().__init__()
        self.store, self.go = ChainStore(root, digest), go
        self.ready: set[int] = set()
        self.killed: int | None = None

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.Tick) and event.running and self.killed is None and (ready := idle()):
            self.ready, self.killed = ready, self.pid(1)
            os.kill(self.killed, signal.SIGKILL)
            self.go.touch()

    def pid(self, attempt: int) -> int:
        return int(self.store.attempt(attempt)["pid"])


@pytest.mark.usefixtures("connected")
def test_a_lost_worker_s_successor_runs_in_the_process_that_was_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_workers, "SPARE_AFTER", 1.0)
    plan, root = comparison(Slowing(str(tmp_path / "go"), 5), chains=1), Storage(tmp_path / "store")
    [digest] = plan.chains()
    diary = Killing(root, digest, tmp_path / "go")
    outcome = driver_of(plan, root, ResourceConfig(evaluate=False, checkpoint_every=0.2), diary).run()
    assert not outcome.failed and len(diary.of(events.WorkerLost)) == 1
    assert {diary.pid(2)} == diary.ready and diary.pid(2) != diary.killed
    assert stored_hashes(root, plan) == undisturbed_hashes(plan)


class Asked:
    """What a process has of threads."""

    def __init__(self) -> None:
        import numpy as np  # noqa: F401
        import torch
        from threadpoolctl import threadpool_info

        torch.set_num_threads(1)
        self.found = {
            "torch": torch.get_num_threads(),
            "pools": sorted((p["internal_api"], p["num_threads"]) for p in threadpool_info()),
            "cores": os.environ["OMP_NUM_THREADS"],
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }

    def tell(self) -> tuple[int, dict[str, Any]]:
        return os.getpid(), self.found


@pytest.mark.usefixtures("connected")
def test_a_process_that_was_ready_has_the_threads_of_a_new_one() -> None:
    kind = ray.remote(num_cpus=1)(Asked)
    first = kind.remote()
    pid, found = ray.get(first.tell.remote())
    assert found["cores"] == "1" and all(threads == 1 for _, threads in found["pools"])
    workers = RayWorkers()
    workers.spare()
    workers.spare()  # nothing more while it waits
    until(idle, "a process with its imports", every=0.25)
    [ready] = idle()
    ray.kill(first)
    assert ray.get(kind.remote().tell.remote()) == (ready, found) and ready != pid


@pytest.mark.usefixtures("connected")
def test_a_short_run_starts_no_further_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_private, "start_spare", lambda: pytest.fail("a process was made ready"))
    plan, root = comparison(Mixture25(), chains=1), Storage(tmp_path / "store")
    assert not driver_of(plan, root, ResourceConfig(evaluate=False), Diary()).run().failed


def test_none_is_left_once_ray_is_closed() -> None:
    made = session.connect("local", object_store_memory=200_000_000, temp_dir="/tmp", cpus=1)
    RayWorkers().spare()
    until(lambda: any(title(pid).startswith("ray::IDLE") for pid in ours()), "a process", every=0.25)
    processes = ours()
    made.close()
    until(lambda: not any(title(pid) for pid in processes), "their end", every=0.25)
