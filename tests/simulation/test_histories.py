"""Hundreds of histories hold what must hold, and drivers that are broken on purpose do not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.mutations import EVERY, Patch, broken
from tests.simulation.world import World

CHUNK = 100
FIRSTS = [*range(0, 200, CHUNK), *(pytest.param(first, marks=pytest.mark.long) for first in range(200, 500, CHUNK))]
FOUND = (2881, 2898)
"""Later seeds of which something was learned: docs/reliability/simulation.md."""


@pytest.fixture(autouse=True, scope="module")
def on_one_cpu() -> Iterator[None]:
    """A history's threads take turns, and a turn that changes the CPU costs as much as it does."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    yield
    os.sched_setaffinity(0, cpus)


@dataclass(frozen=True)
class Told:
    """A history's violations and its whole trace."""

    violations: list[str]
    trace: str


@cache
def history(seed: int) -> Told:
    """Return the history of a seed, which the tests of this file run once."""
    machine = World(seed).run().machine
    return Told(machine.violations, "\n".join(machine.trace))


@pytest.mark.parametrize("first", FIRSTS)
def test_whatever_goes_wrong_every_run_ends_with_the_samples_of_undisturbed_chains(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert history(seed).violations == [], f"python -m tests.simulation {seed}"


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_stays_mended(seed: int) -> None:
    assert history(seed).violations == []


def test_a_seed_tells_one_history() -> None:
    traces = [World(31).run().machine.trace for _ in range(2)]
    assert traces[0] == traces[1] and len(traces[0]) > 50
    assert World(32).run().machine.trace != traces[0]


def test_things_do_go_wrong() -> None:
    never = {
        "is killed", "is lost", "is cut off", "counts as dead", "stops for", "asked to stop", "between two changes",
        "storage is "
        "away", "ENOSPC", "EROFS", "Stalled", "WorkerLost", "ChainRestarted", "run2", "TornCheckpoint", "Preempted",
    }  # fmt: skip
    for seed in range(300):
        never = {what for what in never if what not in history(seed).trace}
        if not never:
            break
    assert never == set()


@pytest.mark.parametrize(("how", "seed"), EVERY.items(), ids=[how.__name__ for how in EVERY])
def test_what_is_broken_is_noticed(how: Callable[[], Patch], seed: int) -> None:
    assert history(seed).violations == []
    with broken(how):
        assert World(seed).run().machine.violations, how.__doc__


COUNTING = """
import sys
sys.modules["ray"] = None
from tests.simulation.__main__ import main
print(main(), main())
"""


def test_the_command_counts_on_from_where_it_stopped_and_needs_no_ray(tmp_path: Path) -> None:
    to = tmp_path / "counted.json"
    command = [sys.executable, "-c", COUNTING, "--count", "4", "--to", str(to)]
    said = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True).stdout
    assert [line.partition(",")[0] for line in said.splitlines()] == ["4 histories", "8 histories", "False False"]
    assert '"histories": 8' in to.read_text()
