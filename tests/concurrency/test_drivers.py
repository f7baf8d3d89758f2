"""Real drivers on one store: one name has one driver, a killed one is followed at once, shared chains run once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import raychains as rc
from raychains import cli
from raychains.core.errors import UserError
from raychains.orchestration import lease
from raychains.store import ChainStore, Storage
from tests.concurrency.test_lease import plant
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.pool import unpaged
from tests.processes import RAYCHAINS, SECONDS, kill_session, sessions, until

COMMAND = (
    "run --task mixture25 --sampler sghmc --schedule cyclical --repeats 4 --steps 20000 --cycles 3 "
    "--checkpoint-every 0.5"
)
MEMORY = ("--object-store-memory", "100000000")
"""Of a Ray that a command starts."""


class Driver:
    """A ``raychains run`` in a session of its own, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for ``condition`` while the process runs."""

        def holds() -> bool:
            assert self.process.poll() is None, self.said
            return condition()

        until(holds, "the driver")

    def end(self) -> int:
        status = self.process.wait(timeout=SECONDS)
        self._reader.join()
        return status


@pytest.mark.long
def test_one_driver_a_name_a_killed_one_is_followed_at_once_and_shared_chains_have_one_set_of_samples(
    ray_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"

    def here(*more: str) -> tuple[int, str]:
        """The same command in this process: its exit status, and what it says."""
        return cli.main([*COMMAND.split(), "--store", str(store), *more]), capsys.readouterr().err

    with sessions(stdout=subprocess.DEVNULL) as start, unpaged():
        command = [*RAYCHAINS, *COMMAND.split(), *MEMORY, "--store", str(store)]
        begun = followed(lambda *more: Driver(start(*command, *more)), here, store)

    plans = {name: rc.load(str(store / "runs" / name)).comparison for name in "rs"}
    chains = {name: plan.chains() for name, plan in plans.items()}
    assert len(chains["r"]) == 2 and len(chains["s"]) == 3 and chains["r"].keys() < chains["s"].keys()
    assert stored_hashes(store, plans["s"]) == undisturbed_hashes(plans["s"])
    for chain in (ChainStore(Storage(store), d) for d in chains["s"]):
        assert chain.last_attempt() == (2 if chain.digest in begun else 1)  # nobody ran what another one did
        assert all(len(chain.attempt(n)["driver_id"]) == 32 for n in range(1, chain.last_attempt() + 1))
    assert list((store / "drivers").iterdir()) == []
    for name in "rs":
        assert len(rc.load(str(store / "runs" / name)).results()) > 0


def followed(drive: Callable[..., Driver], here: Callable[..., tuple[int, str]], store: Path) -> set[str]:
    """A driver stands still and is killed, one shares its chains, this process has its name: the chains that it
    began."""
    first = drive("--name", "r", "--chains", "2")
    begun: set[str] = set()

    def halted() -> bool:
        """Workers halt in the midst of their chains, each for itself; the driver lives on."""
        for digest in {sample.parents[1].name for sample in store.glob("chains/*/samples/*")} - begun:
            os.kill(ChainStore(Storage(str(store)), digest).attempt(1)["pid"], signal.SIGSTOP)
            begun.add(digest)
        return len(begun) == 2

    first.until(halted)
    assert not list(store.glob("chains/*/samples.parquet")), "a chain was through before it was halted"

    wider = drive("--name", "s", "--chains", "3")  # shares both chains
    status, said = here("--name", "r", "--chains", "2", "--resume")
    assert status == 2
    (line,) = [t for t in said.splitlines() if t.startswith("raychains: ")]
    assert f"pid {first.process.pid} on " in line and "last heard of" in line and "Traceback" not in said

    wider.until(lambda: "are left to it" in wider.said)
    assert first.process.poll() is None
    for digest in begun:
        assert ChainStore(Storage(str(store)), digest).last_attempt() == 1
    first.process.kill()
    kill_session(first.process.pid)
    first.process.wait()
    status, said = here("--name", "r", "--chains", "2", "--resume")
    assert status == 0, said
    assert "waiting until" not in said  # a killed driver of this machine is known to be dead
    assert wider.end() == 0, wider.said
    return begun


@pytest.mark.usefixtures("ray_session")
def test_a_driver_that_finds_an_older_one_stops_with_checkpoints_and_says_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "FIRST_RENEWALS", (0.1,) * 10_000)
    store, settings = tmp_path / "store", {"task": "mixture25", "sampler": "sghmc", "repeats": 1}

    def appear_late() -> None:
        until(lambda: list(store.glob("chains/*/samples/*")), "a sample")
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
