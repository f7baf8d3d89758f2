"""Worker and evaluator processes killed at every moment of every kind of file, with every sampler that has a state."""

from __future__ import annotations

import random
from pathlib import Path

from raychains.tasks.mixture import Mixture25
from tests.chaos import plans, worlds
from tests.chaos.disturbed import lost_slots, run_and_check
from tests.chaos.nodes import Nodes
from tests.chaos.tasks import MortalMixture

EVALUATORS = [plans.Kill("predict", 5, "before")]


def test_workers_killed_anywhere_leave_the_samples_of_undisturbed_chains(cluster: Nodes, tmp_path: Path) -> None:
    disturb(tmp_path, seed=0)


def disturb(tmp_path: Path, seed: int) -> None:
    comparison = worlds.comparison(MortalMixture(str(tmp_path / "deaths"), worlds.PAUSE))
    deaths = plans.spread(plans.every_place(random.Random(seed)), comparison.chains().values())
    diary = run_and_check(tmp_path, comparison, {**deaths, "evaluator": EVALUATORS}, Mixture25(gradient_noise=1.0))
    assert lost_slots(diary) == sum(map(len, deaths.values()))
