"""Whole nodes lost while a chain on them writes or steps: raylets get SIGKILL, their orphaned workers go on for a
while."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from raychains.tasks.digits import Digits
from tests.chaos import plans, worlds
from tests.chaos.disturbed import lost_slots, run_and_check
from tests.chaos.nodes import Nodes, Replacing
from tests.chaos.tasks import MortalDigits

SEEDS = range(1)
KILLS = 3 * len(SEEDS)
PAUSE = 0.005
"""Seconds that a step takes at least, so that chains outlast their orphans, which live for about a second."""
KINDS = {"sghmc": worlds.SAMPLERS["sghmc"]}


@pytest.mark.long
def test_nodes_killed_under_a_chain_leave_the_samples_of_undisturbed_chains(cluster: Nodes, tmp_path: Path) -> None:
    comparison = worlds.comparison(MortalDigits(str(tmp_path / "deaths"), PAUSE), KINDS, chains=KILLS)
    deaths = plans.spread([kill for seed in SEEDS for kill in places(seed)], comparison.chains().values())
    with Replacing(cluster) as replacing:
        diary = run_and_check(tmp_path, comparison, deaths, Digits(train=90, hidden=[8]))
    assert lost_slots(diary) >= KILLS == replacing.replaced


def places(seed: int) -> list[plans.Kill]:
    """The deaths of nodes that follow from a seed."""
    rng = random.Random(seed)
    return [
        plans.Kill("sample", rng.randint(1, 3), "half", "node"),
        plans.Kill("checkpoint", rng.randint(1, 3), "written", "node"),
        plans.Kill("step", rng.randint(20, 100), "gradient", "node"),
    ]
