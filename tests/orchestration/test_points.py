"""Points measured by evaluators: kept, measured once, and done again where an evaluator or a file was lost."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.exceptions import RayActorError, RayError, RayTaskError
from torch import nn

from raychains import tasks
from raychains.coordination.capacity import Node
from raychains.coordination.failure import ATTEMPTS
from raychains.core.errors import RaychainsError, StorageAway
from raychains.evaluation.evaluation import Metric
from raychains.orchestration.cluster.ray_workers import failure
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.run.evaluator_pool import Evaluators
from raychains.orchestration.run.point_queue import measure
from raychains.planning.points import Point, combination
from raychains.store.codec import Corrupt
from raychains.tasks import Task
from tests.checks import refused
from tests.measures.made import DIM, Made, N, data, linear
from tests.orchestration.deadly import Deadly
from tests.orchestration.recorded import Recorded
from tests.orchestration.threads import ThreadWorkers


def made_run(folder: Path) -> Made:
    task = Deadly(str(folder / "marker"))
    tensors = [{"weight": linear(*w)["weight"], "bias": torch.zeros(1)} for w in ((1, 2), (0, 0, 4), (3, 1, 1))]
    return Made(folder, task, [(0, c, "theta", t) for c, t in enumerate(tensors)])


def line(made: Made, count: int) -> list[Point]:
    one, other, *_ = made.select(0, 0).records
    return [combination([(1 - t / (count - 1), *one), (t / (count - 1), *other)]) for t in range(count)]


@pytest.mark.usefixtures("ray_session")
def test_points_of_a_killed_evaluator_are_measured_again_and_a_second_call_computes_nothing(
    tmp_path: Path, threads: ThreadWorkers
) -> None:
    """The evaluator that predicts the second sample's own network dies of it, once."""
    made = made_run(tmp_path)
    points = line(made, 7)
    points += points[:2]
    told: list[tuple[int, int]] = []
    placement = ResourceConfig(evaluators=1)
    found = measure(
        made.comparison, made.root, placement, "test", points, lambda done, total: told.append((done, total))
    )
    assert (tmp_path / "marker").exists(), "an evaluator died"
    assert found == made.measure("test", points) and len({m["nll"] for m in found}) == 7
    assert told == [(n, 7) for n in range(8)]
    files = sorted((tmp_path / "store" / "points").rglob("*.json"))
    assert len(files) == 7

    class Nobody(Evaluators):
        def start(self) -> None:
            raise AssertionError("something was computed")

    nobody = Nobody.of(made.comparison, made.root, placement)
    assert measure(made.comparison, made.root, placement, "test", points, evaluators=nobody) == found
    _damage(files)
    with Evaluators.of(made.comparison, made.root, placement, workers=threads) as mine:
        assert measure(made.comparison, made.root, placement, "test", points, evaluators=mine) == found
        assert len(mine.running) == 1, "somebody else's evaluators go on"
        assert measure(made.comparison, made.root, placement, "train", points[:1], evaluators=mine) != found[:1]
    with pytest.raises(AssertionError, match="computed"):
        measure(made.comparison, made.root, ResourceConfig(bins=7), "test", points, evaluators=nobody)


def _damage(files: list[Path]) -> None:
    """Tear one file, falsify a number of a second, and put the third under the name of a fourth."""
    files[0].write_bytes(files[0].read_bytes()[:-20])
    own = json.loads(files[1].read_text())
    own["metrics"]["nll"] = "0.125"
    files[1].write_text(json.dumps(own))
    os.replace(files[2], files[3])


class Lost(Recorded):
    """Evaluators that lose every point as a test wants, so many times, and then answer."""

    def __init__(self, error: RayError, times: int) -> None:
        super().__init__(Node(2))
        self.error, self.times = failure(error), times

    def result(self, call: Any) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return {"nll": 1.0}


def given_up(made: Made, error: RayError, times: int) -> Lost:
    """Measure one point with such evaluators."""
    workers = Lost(error, times)
    evaluators = Evaluators.of(made.comparison, made.root, ResourceConfig(), workers=workers)
    assert measure(made.comparison, made.root, ResourceConfig(), "test", line(made, 2)[:1], evaluators=evaluators)
    return workers


def test_points_with_metrics_of_the_users_own_are_measured_anew(tmp_path: Path, threads: ThreadWorkers) -> None:
    """Their functions are no part of a task's identity."""
    metric = Metric(name="rows", label="rows", better="neither", of=lambda rows: float(len(rows["pit"])))
    model, train, test = partial(nn.Linear, DIM, 1), data(0), data(1)
    task = tasks.give(Task.from_module(model, train, test, "gaussian", noise=1.0, name="own", metrics=[metric]))
    made = Made(tmp_path, task, [(0, c, "theta", linear(c, 1)) for c in range(2)])
    points = line(made, 2)
    placement, threads.in_process = ResourceConfig(evaluators=1), True  # its evaluators have the object itself
    with Evaluators.of(made.comparison, made.root, placement, workers=threads) as mine:
        found = measure(made.comparison, made.root, placement, "test", points, evaluators=mine)
    assert [point["rows"] for point in found] == [N, N] and not (tmp_path / "store" / "points").exists()


def test_what_is_given_up_and_what_is_tried_again(tmp_path: Path) -> None:
    """Deaths are counted, an absent storage is not, and an error of the point's own is told as it is."""
    made = made_run(tmp_path)
    with pytest.raises(RaychainsError, match=f"lost {ATTEMPTS + 1} evaluators or objects in a row"):
        given_up(made, RayActorError(), ATTEMPTS + 1)
    with pytest.raises(Corrupt, match=r"^torn$"):
        given_up(made, RayTaskError("measure", "trace", Corrupt("torn")), 1)
    with pytest.raises(RaychainsError, match="a point failed"):
        given_up(made, RayTaskError("measure", "trace", ZeroDivisionError("a bug")), 1)
    assert len(given_up(made, RayActorError(), ATTEMPTS).actors) == ATTEMPTS + 1
    away = RayTaskError("measure", "trace", StorageAway("the store is away"))
    shutil.rmtree(tmp_path / "store" / "points")
    assert len(given_up(made, away, 5 * ATTEMPTS).actors) == 1
    # The next measure has the same evaluators, without a job of the one that failed.
    workers = Lost(RayTaskError("measure", "trace", Corrupt("torn")), 1)
    evaluators = Evaluators.of(made.comparison, made.root, ResourceConfig(evaluators=2), workers=workers)
    with pytest.raises(Corrupt, match=r"^torn$"):
        measure(made.comparison, made.root, ResourceConfig(), "test", line(made, 6), evaluators=evaluators)
    assert evaluators.running and not any(evaluator.jobs for evaluator in evaluators.running)


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    made = made_run(tmp_path)
    with refused("split", "tset", "test"):
        measure(made.comparison, made.root, ResourceConfig(), "tset", line(made, 2))
    assert measure(made.comparison, made.root, ResourceConfig(), "test", []) == []
