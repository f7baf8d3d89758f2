"""The command as a real process: Ctrl-C, then kill -9, then the end, with the samples of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import raychains as rc
from raychains.chain import Chain
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Root

COMMAND = [
    "run",
    "--task",
    "mixture25",
    "--sampler",
    "sghmc",
    "--schedule",
    "cyclical",
    "--chains",
    "2",
    "--repeats",
    "4",
    "--steps",
    "60000",
    "--cycles",
    "3",
    "--checkpoint-every",
    "0.5",
    "--name",
    "r",
]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts raychains in a session of its own; whatever is left of it at the end is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "raychains.cli", *COMMAND, "--store", str(tmp_path / "store"), *more],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
            )
        )  # fmt: skip
        return processes[-1]

    yield start
    for process in processes:
        _kill_session(process.pid)


def _kill_session(leader: int) -> None:
    """Kill every process of a session: Ray's own have process groups of their own."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _wait_for_samples(store: Path, n: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while len(list(store.glob("chains/*/samples/*"))) < n:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)


def test_stopped_killed_and_resumed_gives_the_samples_of_an_undisturbed_run(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first = started()
    _wait_for_samples(store, 4, first)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    assert "go on from their last checkpoints" in err and "--resume --name r" in err and "Traceback" not in err + out
    assert list(store.glob("chains/*/checkpoints/*"))
    taken = started()  # the name is taken
    assert taken.wait(timeout=60) == 2 and "continue it with --resume" in (taken.stderr or sys.stdin).read()

    second = started("--resume")
    _wait_for_samples(store, 14, second)
    second.kill()
    second.wait()
    _kill_session(second.pid)

    third = started("--resume")
    out, err = third.communicate(timeout=120)
    assert third.returncode == 0, err
    assert "report:" in out and "4/4" in out

    plan = rc.load(str(store / "runs" / "r")).comparison.chains()
    assert len(plan) == 2
    chains = {d: ChainStore(Root(str(store)), d) for d in plan}
    assert max(c.last_incarnation() for c in chains.values()) == 3
    stored = {(d, r.meta.index): r.sha256 for d, c in chains.items() for r in c.records()}
    undisturbed = {
        (d, e.meta.index): tensors_sha256(e.tensors)
        for d, spec in plan.items()
        for e in Chain(spec)
        if isinstance(e, Sample)
    }
    assert stored == undisturbed
