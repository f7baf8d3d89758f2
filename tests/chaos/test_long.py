"""The same with other seeds, until 300 processes were killed, with those of `test_long_nodes`: `make test-long`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import plans, test_clock, test_drivers, test_nodes
from tests.chaos import test_workers as workers
from tests.chaos.nodes import Nodes
from tests.chaos.test_long_nodes import CHAIN_KILLS, DRIVERS, NODES

pytestmark = pytest.mark.long
WORKERS, CLOCKS = range(1, 12), range(1, 6)
CLOCK_KILLS = 4


def test_these_kill_at_least_three_hundred_processes() -> None:
    by_workers = len(plans.every_place(random.Random(0))) + len(workers.EVALUATORS)
    by_drivers = len(DRIVERS) * (CHAIN_KILLS + len(test_drivers.OWN))
    planned = len(WORKERS) * by_workers + len(CLOCKS) * CLOCK_KILLS + len(NODES) * test_nodes.KILLS
    assert planned + by_drivers >= 300


@pytest.mark.parametrize("seed", WORKERS)
def test_workers(seed: int, cluster: Nodes, tmp_path: Path) -> None:
    workers.disturb(tmp_path, seed)


@pytest.mark.parametrize("seed", CLOCKS)
def test_workers_by_the_clock(seed: int, cluster: Nodes, tmp_path: Path) -> None:
    test_clock.disturb(tmp_path, seed, CLOCK_KILLS)
