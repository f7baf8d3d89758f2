"""How many processes the tests of this folder kill: each of them asserts that all of its own were."""

from __future__ import annotations

import random

import pytest

from tests.chaos import plans, test_clock, test_drivers, test_nodes, test_workers


def workers() -> int:
    return len(plans.every_place(random.Random(0))) + len(test_workers.EVALUATORS)


def test_the_default_tests_kill_at_least_thirty_processes() -> None:
    drivers = test_drivers.BY_CHAIN + len(test_drivers.OWN)
    assert workers() + test_clock.KILLS + test_nodes.KILLS + drivers >= 30


@pytest.mark.parametrize("seed", range(50))
def test_every_seed_kills_at_every_moment_of_samples_and_checkpoints(seed: int) -> None:
    kills = plans.every_place(random.Random(seed))
    assert {(k.where, k.moment) for k in kills} >= {(w, m) for w in ("sample", "checkpoint") for m in plans.MOMENTS}
    assert len(kills) == len(plans.every_place(random.Random(0)))
    assert kills == plans.every_place(random.Random(seed))
