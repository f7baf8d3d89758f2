"""Worker and evaluator processes killed at every moment of every kind of file, with every sampler that has a state."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from raychains.planning import Comparison
from raychains.tasks.mixture import Mixture25
from tests.chaos import plans, worlds
from tests.chaos.disturbed import lost_slots, run_and_check
from tests.chaos.nodes import Nodes
from tests.chaos.tasks import MortalMixture

SEEDS = range(1)
CHAINS = 2
"""Of each sampler: every one is killed once."""
EVALUATORS = [plans.Kill("predict", 5, "before")] * len(SEEDS)


@pytest.mark.long
def test_workers_killed_anywhere_leave_the_samples_of_undisturbed_chains(cluster: Nodes, tmp_path: Path) -> None:
    task, clean = MortalMixture(str(tmp_path / "deaths"), worlds.PAUSE), Mixture25(gradient_noise=1.0)
    comparison = worlds.comparison(task, chains=CHAINS, steps=worlds.SHORT)
    deaths = dealt(SEEDS, comparison)
    diary = run_and_check(tmp_path, comparison, {**deaths, "evaluator": EVALUATORS}, clean, worlds.OFTEN)
    assert lost_slots(diary) == sum(map(len, deaths.values())) == 20


def dealt(seeds: Iterable[int], comparison: Comparison) -> dict[str, list[plans.Kill]]:
    """The deaths of some seeds, of which no chain gets more than one of a seed."""
    places = [kill for seed in seeds for kill in _of_a_seed(seed, len(comparison.chains()))]
    return plans.spread(places, comparison.chains().values())


def _of_a_seed(seed: int, chains: int) -> list[plans.Kill]:
    places = plans.every_place(random.Random(seed))
    assert len(places) <= chains
    return places
