"""Steps by rule: on made-up figures, and on a Gaussian whose ratio of spreads is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from raychains import methods
from raychains.chain import Chain
from raychains.evaluation.sampled import sd_ratio
from raychains.experiments.tuning import STRIDE, largest, log_grid, nearest
from raychains.options import Run
from raychains.sample import Sample
from raychains.tasks.gaussian import Gaussian
from tests.checks import refused

GRID = log_grid(0.1, 10.0, 10)


def counted(figure: Callable[[float], float]) -> tuple[Callable[[float], float], list[float]]:
    tried: list[float] = []

    def measure(step: float) -> float:
        tried.append(step)
        return figure(step)

    return measure, tried


def test_a_grid_has_its_steps_a_decade_and_both_ends() -> None:
    assert log_grid(0.1, 10.0, 2) == [0.1, 0.316, 1.0, 3.16, 10.0]
    assert len(GRID) == 21 and sorted(set(GRID)) == GRID
    assert log_grid(2.0, 9.0, 3) == [2.15, 4.64] and log_grid(1.0, 1.0, 5) == [1.0]
    for low, high, n, word in ((0.0, 1.0, 1, "low"), (1.0, 0.5, 1, "high"), (1.0, 2.0, 0, "per_decade")):
        with refused(word):
            log_grid(low, high, n)


def test_the_largest_step_within_the_limit_is_found_where_small_ones_are_out_of_it_too() -> None:
    """A ratio of spreads is too large for long steps, and again for those too short to get anywhere."""
    measure, tried = counted(lambda x: max(1 + x / 10, 0.5 / x) if x < 8 else math.nan)
    assert largest(GRID, measure, 1.1) == 1.0
    assert tried == GRID[:9:-1], "none below it is tried"
    assert largest(GRID, lambda x: math.inf, 1.1) is None and largest([], measure, 1.1) is None
    assert largest(GRID, lambda x: 1.1, 1.1) == 10.0, "the limit itself is within"


@pytest.mark.parametrize("wanted", [3.0, 17.0, 98.0, 1.01])
def test_the_nearest_step_is_that_of_a_full_search(wanted: float) -> None:
    measure, tried = counted(lambda x: 10 * x)
    assert nearest(GRID, measure, wanted) == min(GRID, key=lambda x: abs(math.log(10 * x / wanted)))
    assert len(tried) == len(set(tried)) <= math.ceil(len(GRID) / STRIDE) + STRIDE


def test_without_a_step_that_reaches_it_the_best_below_the_breakdown_is_taken() -> None:
    for limit, best in ((5.0, 3.98), (20.0, 10.0)):
        assert nearest(GRID, lambda x, limit=limit: 10 * x if x < limit else math.nan, 1e6) == best  # type: ignore[misc]
    assert nearest(GRID, lambda x: 10 * x, 1e-3) == 0.1
    with refused("steps", "break down"):
        nearest(GRID, lambda x: math.nan, 1.0)
    with refused("wanted"):
        nearest(GRID, lambda x: x, 0.0)
    with refused("steps"):
        nearest([], lambda x: x, 1.0)


def test_on_a_gaussian_the_step_is_that_of_the_closed_form() -> None:
    """SGLD on U = θ²/2 has the variance 1/(1 − lr/2): the ratio of spreads is 1.10 at lr .347."""
    steps = [0.05, 0.2, 0.28, 0.42, 0.6, 1.0, 1.9]
    exact = {lr: (1 - lr / 2) ** -0.5 for lr in steps}
    assert max(lr for lr in steps if exact[lr] <= 1.1) == 0.28
    task = Gaussian(covariance=np.eye(4).tolist())

    def measure(lr: float) -> float:
        options = Run(lr=lr, steps=1_500, burn_in=100, repeats=100)
        spec = methods.resolve(options, task=task, name="gaussian", sampler="sgld", schedule="constant").spec
        draws = np.concatenate([e.tensors["theta"].numpy() for e in Chain(spec, task) if isinstance(e, Sample)])
        found = float(np.median(draws.std(axis=(0, 1))))
        assert found == pytest.approx(exact[lr], rel=0.02)
        return float(sd_ratio(draws, np.ones(4)).mean())

    measured, tried = counted(measure)
    assert largest(steps, measured, 1.1) == 0.28 and tried == [1.9, 1.0, 0.6, 0.42, 0.28]
