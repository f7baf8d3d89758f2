"""Sweeps of tests: their settings, what the store holds of them, and drivers in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from raychains.report import run_page
from raychains.store import ChainStore, Storage, SweepStore
from tests.processes import RAYCHAINS, ROOT, outside

KEEPER = ROOT / "tests" / "jobs" / "keeper.py"
TASK = "tests.sweeps.tasks:Guarded"


class Diary:
    """A listener that remembers, and may do something about it."""

    def __init__(self, react: Callable[[Any], Any] = lambda _: None) -> None:
        self.told: list[Any] = []
        self._react = react

    def on(self, event: Any) -> None:
        """Remember, then react."""
        self.told.append(event)
        self._react(event)

    def of(self, kind: type) -> list[Any]:
        """What came of one kind."""
        return [h for h in self.told if isinstance(h, kind)]


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Have pages written without their figures in the body: those take most of the time of a report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_page, "render", lambda drawing: (b"<svg/>", b"png"))
        yield


def hashes(store: str, digest: str) -> dict[tuple[str, int], str]:
    """sha256 of a chain's samples by variable and index."""
    return {(r.meta.variable, r.meta.index): r.sha256 for r in ChainStore(Storage(store), digest).records()}


def attempts_of(store: str, digest: str) -> list[dict[str, Any]]:
    """Records of all attempts of a chain, in order."""
    chain = ChainStore(Storage(store), digest)
    return [chain.attempt(n) for n in range(1, chain.last_attempt() + 1)]


def settled(table: pd.DataFrame) -> pd.DataFrame:
    """A table without what depends on the machine."""
    return table.drop(columns=["seconds"], errors="ignore")


def reports(store: str, name: str, digests: list[str]) -> dict[str, list[dict[str, Any]]]:
    """What chains reported so far."""
    folder = SweepStore(Storage(store), name)
    return {digest: folder.reports(digest) for digest in digests}


def command(options: Mapping[str, Any], store: str, name: str, *more: str) -> list[str]:
    """A sweep's command line."""
    words = [*RAYCHAINS, "sweep", "--store", store, "--name", name]
    for key, value in options.items():
        words += [f"--{key.replace('_', '-')}", *(value if isinstance(value, tuple) else (str(value),))]
    return [*words, *more]


@contextlib.contextmanager
def driver(words: list[str], store: str) -> Iterator[Callable[[], None]]:
    """A command in a process and with a Ray of its own, of which nothing is left; yields what kills the sweep's driver
    by SIGKILL, and nothing else."""

    def kill() -> None:
        entries = []
        for file in Path(store, "drivers").glob("[0-9a-f]*.json"):
            with contextlib.suppress(FileNotFoundError):  # a trial that ended meanwhile
                entries.append(json.loads(file.read_text()))
        [pid] = [entry["pid"] for entry in entries if entry["run"].startswith("sweep:")]
        os.kill(pid, signal.SIGKILL)

    log, piped = Path(store, "driver.log"), subprocess.PIPE
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder, log.open("wb") as out:
        own = {"RAY_TMPDIR": folder, "TMPDIR": folder, "RAY_BACKEND_LOG_LEVEL": "fatal"}
        how: Any = {"cwd": ROOT, "env": outside() | own, "stdin": piped, "stdout": out, "stderr": subprocess.STDOUT}
        with subprocess.Popen([sys.executable, str(KEEPER), *words], **how):
            yield kill
    assert log.read_text().splitlines()[-1] == "[]", "processes are left"
