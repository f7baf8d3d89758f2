"""A task's `objective` is the function whose gradient `backward` fills in, lane by lane and on the same minibatch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import raychains as rc
from raychains.tasks.base import Position
from tests.checks import refused

STEP = 1e-5


def own(batch: bool) -> rc.Task:
    x = torch.linspace(-1, 1, 12, dtype=torch.float64)
    if not batch:
        return rc.Task.from_log_density(lambda t: -(t**4).sum() - t[0] * t[1], dim=2)
    return rc.Task.from_log_density(
        lambda t, rows: Normal(t[0] + t[1] * rows, 0.5).log_prob(rows**2),
        dim=2,
        data=x,
        log_prior=lambda t: -(t**2).sum(),
    )


TASKS: dict[str, tuple[Any, Any]] = {
    "mixture25": (lambda: rc.make_task("mixture25"), None),
    "gaussian": (lambda: rc.make_task("gaussian"), None),
    "two-modes": (lambda: rc.make_task("two-modes"), None),
    "linear-regression": (lambda: rc.make_task("linear-regression", minibatch=7), None),
    "linear-regression-whole": (lambda: rc.make_task("linear-regression", minibatch=None), None),
    "own": (lambda: own(False), None),
    "own-batch": (lambda: own(True), 3),
    "own-whole": (lambda: own(True), 12),
}


@pytest.mark.parametrize("name", TASKS)
def test_differences_of_the_objective_are_the_gradient(name: str) -> None:
    task, batch = TASKS[name][0](), TASKS[name][1]
    generator = torch.Generator().manual_seed(3)
    model = task.build_model(seed=1, lanes=3)
    assert isinstance(model, Position)
    theta = model.theta.detach().clone()
    before = generator.get_state()

    def value(at: Tensor) -> Tensor:
        model.theta.data.copy_(at)
        generator.set_state(before)
        loss = task.backward(model, batch, generator)
        generator.set_state(before)
        found = task.objective(model, batch, generator, loss)
        assert found.shape == (3,)
        return found

    value(theta)
    assert model.theta.grad is not None
    gradient = model.theta.grad.clone()
    for i in range(theta.shape[1]):
        away = torch.zeros_like(theta)
        away[:, i] = STEP
        slope = (value(theta + away) - value(theta - away)) / (2 * STEP)
        torch.testing.assert_close(slope, gradient[:, i], rtol=1e-5, atol=1e-7)


def test_a_networks_objective_is_its_loss_and_a_task_without_one_is_refused() -> None:
    task = rc.make_task("digits", train=60, hidden=[4])
    model = task.build_model(seed=0, lanes=1)
    generator = torch.Generator()
    loss = task.backward(model, torch.arange(20), generator)
    assert task.objective(model, torch.arange(20), generator, loss) is loss
    with refused("objective", "Digits"):
        task.objective(model, None, generator, None)
