"""Chains' processes killed at every moment of every kind of file, without Ray: forked processes, many of which can die."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from raychains.store import Storage
from raychains.tasks.mixture import Mixture25
from tests.chaos import disturbed, plans, test_clock, test_drivers, test_nodes, test_workers, worlds
from tests.chaos.tasks import MortalMixture
from tests.orchestration.lives import live_elsewhere

AT_ONCE = 3
"""Seeds whose deaths come to the same chains."""
SEEDS = range(3, 15)


def test_these_kill_at_least_three_hundred_processes() -> None:
    a_seed = len(plans.every_place(random.Random(0)))
    planned = (len(SEEDS) + len(test_workers.SEEDS)) * a_seed + len(test_workers.EVALUATORS)
    assert planned + test_clock.KILLS + test_nodes.KILLS + test_drivers.KILLS >= 300


@pytest.mark.long
@pytest.mark.parametrize("first", SEEDS[::AT_ONCE])
def test_processes_killed_anywhere_leave_the_samples_of_undisturbed_chains(first: int, tmp_path: Path) -> None:
    where, root = tmp_path / "deaths", Storage(tmp_path / "store")
    comparison = worlds.comparison(MortalMixture(str(where), worlds.PAUSE))
    deaths = test_workers.dealt(range(first, first + AT_ONCE), comparison)
    plans.write(where, deaths)
    config = {"checkpoint_every": worlds.CADENCE}
    for spec in comparison.chains().values():
        kills = len(deaths[plans.key(spec)])
        codes = [live_elsewhere(root.uri, spec.to_json(), number, config) for number in range(1, kills + 2)]
        assert codes == [-signal.SIGKILL] * kills + [0]
    disturbed.check(tmp_path, comparison, Mixture25(gradient_noise=1.0))
