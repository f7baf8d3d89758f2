"""Fixtures for tests that need Ray, and how several processes share the suite."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from ray._common.utils import get_default_ray_temp_dir

from tests.chaos import tally
from tests.fuzz import tally as fuzzed
from tests.processes import PATIENT_RAY

os.environ.update({**PATIENT_RAY, "RAY_USAGE_STATS_ENABLED": "0", **os.environ})
os.environ.pop("COLUMNS", None)  # pytest-xdist's workers have one: what goes to a pipe would be wrapped
torch.set_num_threads(1)
gc.set_threshold(100_000, 20, 20)  # collecting tests, too, makes objects that stay
if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # a shell starts what it sends to the background so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
# ray.cluster_utils.Cluster writes its address there and does not make the folder.
os.makedirs(get_default_ray_temp_dir(), exist_ok=True)
settings.load_profile("ci")  # the same examples in every run, however long each takes
if fuzzed.TIMES <= 1:
    # Hypothesis also draws constants of the modules that are loaded by then: other examples in every order of tests.
    providers.is_local_module_file = lambda path: False


def pytest_collection_finish() -> None:
    """Collect no garbage among what is there by now: with the threshold above that saves a tenth of the time of tests
    in this process."""
    gc.freeze()


@pytest.fixture(scope="package")
def ray_session() -> Iterator[None]:
    """Ray on this machine with two CPUs, in a short temporary folder (socket paths are limited).

    A package's fixture lives as long as the package that defines it: one session serves all folders.
    """
    import ray

    from raychains.orchestration.cluster.session import connect

    assert not ray.is_initialized(), "another folder's Ray session is still there"
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        session = connect("local", object_store_memory=200_000_000, temp_dir=folder, cpus=2)
        assert session.ours
        yield
        session.close()
    assert not ray.is_initialized()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """An empty run store."""
    return str(tmp_path / "store")


LONG_FIRST = (
    "chaos",
    "jobs",
    "cluster",
    "end_to_end",
    "papers",
    "orchestration",
    "sweeps",
    "train",
    "compatibility",
    "concurrency",
    "callbacks",
    "examples",
)
"""Folders that mostly wait for other processes: whatever comes last runs alone, so these begin."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which pytest-xdist hands out files.

    The Rays that tests end come before the Ray session that the other tests of a process share until its end.
    """
    items.sort(key=lambda item: (*LONG_FIRST, item.path.parent.name).index(item.path.parent.name))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a process of pytest-xdist killed and tried to the one that prints."""
    gc.unfreeze()  # libraries look at the end for what is left
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["chaos"] = [dict(tally.KILLS), tally.LINES]
        session.config.workeroutput["fuzz"] = {kind: asdict(tried) for kind, tried in fuzzed.TRIED.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what that process killed and tried; one that broke down has nothing to say."""
    output = getattr(node, "workeroutput", {})
    kills, lines = output.get("chaos", ({}, []))
    tally.KILLS.update(kills)
    tally.LINES += lines
    for kind, tried in output.get("fuzz", {}).items():
        fuzzed.TRIED.setdefault(kind, fuzzed.Tried()).add(fuzzed.Tried(**tried))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was achieved."""
    if tally.KILLS:
        kinds = ", ".join(f"{n} {what}" for what, n in sorted(tally.KILLS.items()))
        terminalreporter.write_line(f"chaos: {tally.KILLS.total()} processes killed ({kinds})")
    for line in tally.LINES:
        terminalreporter.write_line(f"chaos: {line}")
    for line in fuzzed.lines():
        terminalreporter.write_line(f"fuzz: {line}")
