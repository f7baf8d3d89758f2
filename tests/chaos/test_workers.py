"""Worker and evaluator processes killed at every moment of every kind of file, with every sampler that has a state."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from raychains.orchestration.session import connect
from raychains.tasks.mixture import Mixture25
from tests.chaos import plans, worlds
from tests.chaos.disturbed import lost_slots, run_and_check
from tests.chaos.tasks import MortalMixture

EVALUATORS = [plans.Kill("predict", 5, "before")]


@pytest.fixture
def small_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray on this machine with two CPUs; the nodes of other tests where they are still there."""
    if ray.is_initialized():
        yield
        return
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")  # processes are killed on purpose
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        session = connect("local", object_store_memory=100_000_000, temp_dir=folder, cpus=2)
        yield
        session.close()


@pytest.mark.long
@pytest.mark.usefixtures("small_ray")
def test_workers_killed_anywhere_leave_the_samples_of_undisturbed_chains(tmp_path: Path) -> None:
    disturb(tmp_path, seed=0)


def disturb(tmp_path: Path, seed: int) -> None:
    comparison = worlds.comparison(MortalMixture(str(tmp_path / "deaths"), worlds.PAUSE))
    deaths = plans.spread(plans.every_place(random.Random(seed)), comparison.chains().values())
    diary = run_and_check(tmp_path, comparison, {**deaths, "evaluator": EVALUATORS}, Mixture25(gradient_noise=1.0))
    assert lost_slots(diary) == sum(map(len, deaths.values()))
