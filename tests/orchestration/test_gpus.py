"""Shares of GPUs: what evaluators hold is none of the chains', and who holds none sees none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from raychains.api import placement
from raychains.options import Run
from raychains.orchestration import evaluators, session
from raychains.orchestration.driver import Placement
from tests.checks import refused


def cluster(monkeypatch: pytest.MonkeyPatch, cpus: float, gpus: float) -> None:
    node = {"NodeID": "one", "Alive": True, "Resources": {"CPU": cpus, "GPU": gpus}}
    monkeypatch.setattr(ray, "nodes", lambda: [node])


@pytest.mark.parametrize(
    ("gpus", "per_chain", "held", "count"),
    [
        (1, 0.25, 0.25, 3),
        (1, 0.25, 0.0, 4),
        (2, None, 1.0, 1),
        (4, None, 0.5, 3),
        (1, 0.0, 1.0, 8),
        (1, 1 / 3, 1 / 3, 2),
    ],
)
def test_chains_have_what_evaluators_leave(
    monkeypatch: pytest.MonkeyPatch, gpus: float, per_chain: float | None, held: float, count: int
) -> None:
    cluster(monkeypatch, 8, gpus)
    slots = session.slots(1, per_chain, held)
    assert slots.count == slots.room() == count
    cluster(monkeypatch, 0, 0)  # every node went
    assert slots.room() == 0


@pytest.mark.parametrize(("gpus", "per_chain", "held"), [(1, None, 0.5), (0, None, 0.5), (1, 0.5, 1.0), (2, 0.0, 3.0)])
def test_evaluators_that_leave_no_chain_a_gpu_are_refused(
    monkeypatch: pytest.MonkeyPatch, gpus: float, per_chain: float | None, held: float
) -> None:
    cluster(monkeypatch, 8, gpus)
    with refused("gpus_per_evaluator", f"{gpus:g}", f"{held:g}"):
        session.slots(1, per_chain, held)


@pytest.mark.parametrize("share", [0.3, -1.0, 1.5, float("nan")])
def test_a_share_that_ray_cannot_give_is_one_line(share: float) -> None:
    with refused("gpus_per_evaluator", "1/k"):
        Placement(gpus_per_evaluator=share)


def test_the_option_reaches_the_placement() -> None:
    assert placement(Run(gpus_per_evaluator=0.5)).gpus_per_evaluator == 0.5
    assert placement(Run()).gpus_per_evaluator == 0


@pytest.mark.parametrize("gpus", [0.0, 0.25])
def test_an_evaluator_is_started_with_its_share(monkeypatch: pytest.MonkeyPatch, gpus: float) -> None:
    asked: list[dict[str, Any]] = []
    told: list[tuple[Any, ...]] = []

    class Actor:
        @staticmethod
        def options(**options: Any) -> Any:
            asked.append(options)
            return Actor

        @staticmethod
        def remote(*arguments: Any, **settings: Any) -> object:
            told.append(arguments)
            return object()

    monkeypatch.setattr(evaluators.ray, "remote", lambda kind: Actor)
    evaluators.Evaluators("store", {}, "test", 1, Placement(gpus_per_evaluator=gpus), None).start()
    assert asked[0]["num_gpus"] == gpus and asked[0]["num_cpus"] == 0 and told[0][-1] == gpus


SEES = """
import json, os, sys
from raychains import tasks
from raychains.orchestration.evaluator import EvaluationWorker
found = {}
for gpus in (0.5, 0.0):
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"  # as Ray sets it for one that holds a share
    EvaluationWorker(sys.argv[1], tasks.make("digits").spec().to_json(), "test", None, None, gpus)
    found[str(gpus)] = os.environ["CUDA_VISIBLE_DEVICES"]
print(json.dumps(found))
"""


def test_an_evaluator_without_a_share_sees_no_gpu_and_one_with_a_share_its_own(tmp_path: Path) -> None:
    run = [sys.executable, "-c", SEES, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=200, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"0.5": "3", "0.0": ""}
