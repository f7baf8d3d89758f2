"""Real drivers on one store: one name has one driver, a killed one is followed at once, shared chains run once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import raychains as rc
from raychains.chain import Chain
from raychains.errors import UserError
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Root
from tests.concurrency.test_lease import plant

COMMAND = [
    "run", "--task", "mixture25", "--sampler", "sghmc", "--schedule", "cyclical", "--repeats", "4", "--steps", "20000",
    "--cycles", "3", "--checkpoint-every", "0.5", "--object-store-memory", "100000000",
]  # fmt: skip
SECONDS = 240
"""That anything may take before a test gives up."""


class Driver:
    """A ``raychains run`` in a session of its own, and what it says."""

    def __init__(self, store: Path, *more: str) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "raychains.cli", *COMMAND, "--store", str(store), *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
        )  # fmt: skip
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for ``condition`` while the process runs."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def end(self) -> int:
        """Wait for the exit status."""
        status = self.process.wait(timeout=SECONDS)
        self._reader.join(timeout=10)
        return status

    def signal(self, number: int, kind: bytes = b"") -> int:
        """Send a signal to the session's processes whose command begins with ``kind``; how many there are.

        By session, since Ray's own have process groups of their own.
        """
        reached = 0
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = os.getsid(int(entry.name)) == self.process.pid
                if ours and (entry / "cmdline").read_bytes().startswith(kind):
                    os.kill(int(entry.name), number)
                    reached += 1
            except (ProcessLookupError, FileNotFoundError, PermissionError):
                continue
        return reached

    def kill(self) -> None:
        """End the session."""
        self.process.kill()
        self.signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts drivers on one store; whatever is left of them at the end is killed."""
    drivers: list[Driver] = []

    def start(*more: str) -> Driver:
        drivers.append(Driver(tmp_path / "store", *more))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


def undisturbed(plan: dict[str, rc.ChainSpec]) -> dict[tuple[str, int], str]:
    return {
        (d, e.meta.index): tensors_sha256(e.tensors)
        for d, spec in plan.items()
        for e in Chain(spec)
        if isinstance(e, Sample)
    }


def test_one_driver_a_name_a_killed_one_is_followed_at_once_and_shared_chains_have_one_set_of_samples(
    drive: Callable[..., Driver], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first = drive("--name", "r", "--chains", "2")
    first.until(lambda: len(list(store.glob("chains/*/samples/*"))) >= 2)
    assert first.signal(signal.SIGSTOP, b"ray::") >= 2  # its workers halt in the midst of their chains; itself lives on
    begun = {p.parent.parent.name for p in store.glob("chains/*/incarnations/*")}

    wider = drive("--name", "s", "--chains", "3")  # shares both chains
    same = drive("--name", "r", "--chains", "2", "--resume")
    assert same.end() == 2
    (line,) = [t for t in same.said.splitlines() if t.startswith("raychains: ")]
    assert f"pid {first.process.pid} on " in line and "last heard of" in line and "Traceback" not in same.said

    wider.until(lambda: "are left to it" in wider.said)
    assert first.process.poll() is None
    for digest in begun:
        assert ChainStore(Root(str(store)), digest).last_incarnation() == 1
    first.kill()
    again = drive("--name", "r", "--chains", "2", "--resume")
    assert again.end() == 0, again.said
    assert "waiting" not in again.said  # a killed driver of this machine is known to be dead
    assert wider.end() == 0, wider.said

    plans = {name: rc.load(str(store / "runs" / name)).comparison.chains() for name in "rs"}
    assert len(plans["r"]) == 2 and len(plans["s"]) == 3 and plans["r"].keys() < plans["s"].keys()
    chains = {d: ChainStore(Root(str(store)), d) for d in plans["s"]}
    stored = {(d, r.meta.index): r.sha256 for d, c in chains.items() for r in c.records()}
    assert stored == undisturbed(plans["s"])
    for digest, chain in chains.items():
        assert chain.last_incarnation() == (2 if digest in begun else 1)  # nobody ran what another one did
        assert all(len(chain.incarnation(n)["driver_id"]) == 32 for n in range(1, chain.last_incarnation() + 1))
    assert list((store / "drivers").iterdir()) == []
    for name in "rs":
        assert len(rc.load(str(store / "runs" / name)).results()) > 0


@pytest.mark.usefixtures("ray_session")
def test_a_driver_that_finds_an_older_one_stops_with_checkpoints_and_says_who_it_is(tmp_path: Path) -> None:
    store, settings = tmp_path / "store", {"task": "mixture25", "sampler": "sghmc", "repeats": 1}

    def appear_late() -> None:
        deadline = time.monotonic() + SECONDS
        while not list(store.glob("chains/*/samples/*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        plant(store, 1, run="r")

    late = threading.Thread(target=appear_late)
    late.start()
    with pytest.raises(
        UserError, match=r"pid 2 on h1 has run it .*this driver stopped, its chains go on from their last checkpoints"
    ):
        rc.run(**settings, steps=3_000_000, chains=1, store=str(store), name="r")
    late.join()
    assert list(store.glob("chains/*/checkpoints/*"))
    assert [p.stem for p in (store / "drivers").iterdir()] == [f"{1:032x}"]
    assert not (store / "runs" / "r" / "results.parquet").exists()
