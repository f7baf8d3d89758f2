"""The same with other seeds, until more than 300 processes were killed: `make test-long`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import plans, test_clock, test_drivers, test_nodes
from tests.chaos import test_workers as workers
from tests.chaos.nodes import Nodes

pytestmark = pytest.mark.long
WORKERS, CLOCKS, NODES, DRIVERS = range(1, 12), range(1, 6), range(1, 8), range(1, 7)
CLOCK_KILLS, CHAIN_KILLS = 4, 6


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


@pytest.mark.parametrize("seed", NODES)
def test_whole_nodes(seed: int, cluster: Nodes, tmp_path: Path) -> None:
    test_nodes.disturb(cluster, tmp_path, seed)


@pytest.mark.parametrize("seed", DRIVERS)
def test_the_driver(seed: int, cluster: Nodes, tmp_path: Path) -> None:
    test_drivers.disturb(cluster, tmp_path, seed, CHAIN_KILLS, steps=800, cycles=8)
