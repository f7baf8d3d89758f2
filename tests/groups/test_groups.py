"""Chains of several workers on Ray: the samples of a single process, through a mistake, a stop, a death and a wait."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from raychains.coordination import failure
from raychains.core.errors import Interrupted
from raychains.orchestration.run import resource_wait
from raychains.planning.events import ChainBegan, ChainFailed, Tick, WorkerLost
from tests.checks import refused
from tests.groups.tasks import Mistaken
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import RAYCHAINS, ROOT, outside
from tests.sweeps.worlds import attempts_of

pytestmark = pytest.mark.usefixtures("ray_session")

SETTINGS: dict[str, Any] = {
    "task": "digits", "sampler": "csghmc", "epochs": 150, "cycles": 2, "chains": 2, "batch_size": 50, "micro_batch": 25,
    "repeats": 1, "checkpoint_every": 0.3, "evaluators": 1,
}  # fmt: skip


class Killing:
    """Signals a process, by default SIGKILL to that of rank 1, once the chain has come so far; notes what the run
    said."""

    def __init__(self, at: int, found: Callable[[], int] | None = None, number: int = signal.SIGKILL) -> None:
        self.at, self.found, self.gone, self.killed, self.number = at, found or rank_1, list[str](), 0, number

    def on(self, event: Any) -> None:
        if isinstance(event, WorkerLost):
            self.gone.append(event.reason)
        if isinstance(event, Tick) and event.running and event.running[0].step >= self.at and not self.killed:
            self.killed = self.found()
            os.kill(self.killed, self.number)


def process_of(part: str) -> int:
    """The process of the living actor whose name has this part."""
    from ray._private.state import actors

    (pid,) = (t["Pid"] for t in actors().values() if part in (t.get("Name") or "") and t["State"] == "ALIVE")
    return int(pid)


def rank_1() -> int:
    return process_of(".1-")


class Watching:
    """Notes why a chain failed, and asks for a stop, as Ctrl-C does, once the next one began."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def on(self, event: Any) -> None:
        if isinstance(event, ChainFailed):
            self.failed.append(event.reason)
        elif isinstance(event, ChainBegan) and self.failed:
            os.kill(os.getpid(), signal.SIGINT)


def mistaken(**settings: Any) -> dict[str, Any]:
    """Options of a run of 120 steps a chain on digits with a mistake."""
    given = tuple(f"{name}={value}" for name, value in settings.items())
    return {**SETTINGS, "epochs": 60, "task": "tests.groups.tasks:Mistaken", "task_settings": given, "name": "pair"}


@pytest.mark.long
def test_a_pair_through_a_mistake_and_a_stop_ends_as_one(store: str, tmp_path: Path) -> None:
    """A mistake on rank 1 ends its chain alone; another number of workers goes on with what a pair began."""
    settings = {"marker": str(tmp_path / "marker"), "rank": 1, "step": 12, "pause": 0.005}
    given = {**mistaken(**settings), "store": store}
    watching = Watching()
    with pytest.raises(Interrupted, match="go on from their last checkpoints"):
        rc.run(**given, workers_per_chain=2, callback=watching)
    (reason,) = watching.failed
    assert reason.startswith("rank 1: Traceback") and reason.endswith("ZeroDivisionError: rank 1's own mistake")
    assert 'tests/groups/tasks.py", line' in reason
    result = rc.run(**given, workers_per_chain=1, resume=True)

    alone = undisturbed_hashes(result.comparison, Mistaken(**{**settings, "pause": 0.0}))
    assert stored_hashes(store, result.comparison) == alone and len(alone) == 2 * 6
    failed, other = (attempts_of(store, digest) for digest in result.comparison.chains())
    assert failed[0]["pid"] == other[0]["pid"], "the group does not go on with the next chain"
    assert [t["workers"] for t in failed] == [t["workers"] for t in other] == [2, 1]
    assert failed[0]["from_step"] == 0 <= failed[1]["from_step"] < 12
    assert other[0]["from_step"] == 0 < other[1]["from_step"] < 120
    assert result.table(full=True)["error"].notna().all()


@pytest.mark.long
def test_a_pair_whose_driver_is_killed_and_one_of_which_is_stopped_goes_on_as_another_pair(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 waits in a collective for the other's gradient, and its process answers."""
    monkeypatch.setattr(failure, "SLOWEST", 5.0)  # its first steps take long
    settings = {"marker": str(tmp_path / "marker"), "step": -1, "pause": 0.03}
    given = {**mistaken(**settings), "chains": 1, "store": store}
    kill_a_driver(given)
    stopping = Killing(20, number=signal.SIGSTOP)
    result = rc.run(**given, workers_per_chain=2, stall_timeout=1.0, callback=stopping, resume=True)
    assert stopping.killed and stopping.gone[0].startswith("it makes no step for ")
    alone = undisturbed_hashes(result.comparison, Mistaken(**{**settings, "pause": 0.0}))
    assert stored_hashes(store, result.comparison) == alone and len(alone) == 6
    (digest,) = result.comparison.chains()
    first, *others = attempts_of(store, digest)
    assert first["from_step"] == 0 < min(other["from_step"] for other in others) and len(others) == 2


def kill_a_driver(given: dict[str, Any]) -> None:
    """SIGKILL to the command of a run by pairs, on this session's Ray, once a chain has a checkpoint."""
    import ray

    words = []
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", *(value if isinstance(value, tuple) else [str(value)])]
    words += ["--workers-per-chain", "2", "--address", ray.get_runtime_context().gcs_address]
    # This session has the loopback address, for which Ray would put another one of this machine.
    environment = {**outside(), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    checkpoints = partial(Path(given["store"]).glob, "chains/*/checkpoints/*.safetensors")
    with subprocess.Popen(
        [*RAYCHAINS, "run", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as driver:
        try:
            while not any(checkpoints()):
                assert driver.poll() is None, driver.stdout.read().decode() if driver.stdout else ""
                time.sleep(0.02)
        finally:
            driver.kill()


def test_a_group_waits_whole_while_others_hold_part_of_the_cluster(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(resource_wait, "HELD_AFTER", 0.5)

    @ray.remote(num_cpus=1)
    class Other:
        def here(self) -> None:
            """It is up."""

    other = Other.remote()
    try:
        ray.get(other.here.remote())
        while ray.available_resources().get("CPU") != 1:  # it is told of late
            time.sleep(0.05)
        with refused("nothing could be placed", "others hold the room", "2 workers of 1 CPU", "`resume=True`"):
            rc.run(**SETTINGS, workers_per_chain=2, slot_timeout=2.0, store=store, callback=Free())
        assert Free.least == 1, "half a group was reserved"
    finally:
        ray.kill(other)


class Free:
    least = 2.0

    def on(self, event: Any) -> None:
        import ray

        if isinstance(event, Tick):
            Free.least = min(Free.least, ray.available_resources().get("CPU", 0.0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"workers_per_chain": 3}, ("workers_per_chain must be at most the micro-batches of a batch (2)", "got 3")),
        ({"workers_per_chain": 0}, ("workers_per_chain must be an integer of at least 1", "got 0")),
        (
            {"workers_per_chain": 2, "micro_batch": 50},
            ("workers_per_chain", "the micro-batches of a batch (1)", "got 2"),
        ),
        ({"micro_batch": 51}, ("micro_batch must be an integer from 1 to the batch size (50)", "got 51")),
        (
            {"micro_batch": 10, "workers_per_chain": 4},
            ("workers_per_chain", "what the cluster holds (2)", "got 4"),
        ),  # on two CPUs
        ({"workers_per_chain": 2, "cpus_per_chain": 2}, ("workers_per_chain", "what the cluster holds (1)", "got 2")),
        (
            {"workers_per_chain": 2, "gpus_per_chain": 0.5},
            ("gpus_per_chain must be 0 or 1 for each of several workers", "got 0.5"),
        ),
        ({"gpus_per_chain": 2}, ("gpus_per_chain must be at most the cluster's GPUs (0)", "got 2")),
        ({"workers_per_chain": 2, "sampler": "bsam"}, ("micro_batch must be left out", "m_sharpness", "got 25")),
        (
            {"workers_per_chain": 2, "gpus_per_chain": 4},
            ("workers_per_chain must be left out or 4 beside `gpus_per_chain=4`", "got 2"),
        ),
        (
            {"task": "gaussian", "epochs": None, "batch_size": None, "micro_batch": None, "workers_per_chain": 2},
            ("workers_per_chain must be left out for task gaussian", "it is a density"),
        ),
    ],
)
def test_wrong_numbers_are_refused(store: str, given: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        rc.run(**{**SETTINGS, **given}, store=store)
