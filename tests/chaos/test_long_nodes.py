"""Nodes and drivers killed with other seeds: a file of its own, which runs beside that of the workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import test_drivers, test_nodes
from tests.chaos.nodes import Nodes

pytestmark = pytest.mark.long
NODES, DRIVERS = range(1, 8), range(1, 7)
CHAIN_KILLS = 6


@pytest.mark.parametrize("seed", NODES)
def test_whole_nodes(seed: int, cluster: Nodes, tmp_path: Path) -> None:
    test_nodes.disturb(cluster, tmp_path, seed)


@pytest.mark.parametrize("seed", DRIVERS)
def test_the_driver(seed: int, cluster: Nodes, tmp_path: Path) -> None:
    test_drivers.disturb(cluster, tmp_path, seed, CHAIN_KILLS, steps=800, cycles=8)
