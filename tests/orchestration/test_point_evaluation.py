"""One point's network in this process: combinations, directions, BatchNorm's statistics, completion, damage."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from raychains.core.sample import tensors_sha256
from raychains.evaluation.loss_landscape import direction
from raychains.orchestration.run.point_evaluation import PointEvaluator
from raychains.planning.points import Point, Term, combination
from raychains.store import codec, initial_states
from raychains.tasks.mixture import Mixture25
from tests.checks import refused
from tests.measures.made import Made, classifier, drawn, linear, nll, regression
from tests.measures.made import data as made_data


def terms(made: Made, *coefficients: float) -> Point:
    selection = made.select(0, 0)
    return combination([(c, s, r) for c, (s, r) in zip(coefficients, selection.records, strict=True)])


def test_metrics_are_those_of_the_combined_network(tmp_path: Path) -> None:
    made = Made(tmp_path, regression(), [(0, 0, "theta", linear(1, 2)), (0, 0, "theta", linear(0, 0, 4))])
    evaluator, split = PointEvaluator(made.root, made.task), made.task.splits()["test"]
    for a, b in ((1.0, 0.0), (0.5, 0.5), (-1.0, 2.5)):
        found = evaluator.measure(split, terms(made, a, b))
        assert found["nll"] == pytest.approx(nll(linear(a, 2 * a, 4 * b), made_data(1)), rel=1e-5)
        assert found["rmse"] ** 2 / 2 + np.log(2 * np.pi) / 2 == pytest.approx(found["nll"], rel=1e-6)
    moved = dataclasses.replace(terms(made, 1.0, 0.0), directions=((0.5, 3),))
    d = direction("weight", linear(1, 2)["weight"], 3)
    expected = {"weight": linear(1, 2)["weight"] + 0.5 * d.float(), "bias": torch.zeros(1)}
    assert evaluator.measure(split, moved)["nll"] == pytest.approx(nll(expected, made_data(1)), rel=1e-5)


def test_statistics_are_estimated_from_the_training_data_and_only_when_asked(tmp_path: Path) -> None:
    task = classifier(batchnorm=True)
    made = Made(tmp_path, task, [(0, 0, "theta", drawn(1, task)), (0, 0, "theta", drawn(2, task))])
    evaluator = PointEvaluator(made.root, task)
    half = terms(made, 0.5, 0.5)
    as_stored = {n: t.clone() for n, t in evaluator.network(half)[0].state_dict().items()}
    assert not as_stored["1.running_mean"].any()
    model, _ = evaluator.network(dataclasses.replace(half, reestimate=True))
    batches = task.epoch(seed=0, batch_size=20)  # the chain's batch size, as the made run has it
    hidden = [torch.nn.functional.linear(task.inputs(b), model[0].weight, model[0].bias) for b in batches]
    assert len(hidden) == 3 and not model.training
    mean = torch.cat(hidden).mean(0).detach()
    assert torch.allclose(model.state_dict()["1.running_mean"], mean, atol=1e-5)
    assert all(
        torch.equal(model.state_dict()[n], as_stored[n]) for n in as_stored if "running" not in n and "num" not in n
    )


def test_without_batchnorm_estimating_changes_nothing(tmp_path: Path) -> None:
    task = classifier()
    made = Made(tmp_path, task, [(0, 0, "theta", drawn(1, task)), (0, 0, "theta", drawn(2, task))])
    evaluator, split, half = PointEvaluator(made.root, task), task.splits()["test"], terms(made, 0.5, 0.5)
    assert evaluator.measure(split, dataclasses.replace(half, reestimate=True)) == evaluator.measure(split, half)


def test_samples_of_some_parameters_are_completed_and_the_others_do_not_move(tmp_path: Path) -> None:
    whole = linear(3, 1, 4)
    made = Made(tmp_path, regression(), [(0, 0, "theta", {"bias": torch.tensor([0.5])})])
    start = initial_states.publish(made.root, whole)
    (record,) = made.records[made.specs[0].digest]
    term = Term(coefficient=1.0, digest=made.specs[0].digest, file=record.file, sha256=record.sha256, start=start)
    evaluator = PointEvaluator(made.root, made.task)
    model, sampled = evaluator.network(Point(samples=(term,), directions=((2.0, 1),), normalise="none"))
    assert sampled == {"bias"} and torch.equal(model.state_dict()["weight"], whole["weight"])
    step = direction("bias", torch.ones(1), 1, "none")
    assert float(model.state_dict()["bias"]) == pytest.approx(0.5 + 2 * float(step), rel=1e-6)
    fisher = evaluator.measure(made.task.splits()["test"], Point(samples=(term,), fisher=60))
    assert fisher["parameters"] == 1, "of what was sampled"


def test_another_sample_than_planned_and_a_torn_one_are_refused(tmp_path: Path) -> None:
    made = Made(tmp_path, regression(), [(0, 0, "theta", linear(1))])
    evaluator, split, point = PointEvaluator(made.root, made.task), made.task.splits()["test"], terms(made, 1.0)
    wrong = dataclasses.replace(point.samples[0], sha256=tensors_sha256(linear(2)))
    with pytest.raises(codec.Corrupt, match="another sample"):
        evaluator.measure(split, Point(samples=(wrong,)))
    file = tmp_path / "store" / "chains" / point.samples[0].digest / point.samples[0].file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(codec.Corrupt, match="000000-theta"):
        evaluator.measure(split, point)
    with refused("points", "density"):
        PointEvaluator(made.root, Mixture25())
