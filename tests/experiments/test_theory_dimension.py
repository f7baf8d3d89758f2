"""Entropy-MCMC's theorem 1: the joint energy's constants, the pair's exact law, and which bounds hold."""

from __future__ import annotations

import numpy as np
import pytest

from raychains.errors import UserError
from raychains.evaluation.discrepancy import w2
from raychains.experiments.theory import dimension, recursion


@pytest.mark.parametrize("eta", [1 / 3, 0.4, 0.5])
def test_the_joint_constants_are_the_joint_hessians_eigenvalues(eta: float) -> None:
    plan = dimension.Plan(eta=eta)
    values = np.linalg.eigvalsh(recursion.joint_precision(np.diag(plan.eigenvalues), eta))
    assert plan.joint_constants == pytest.approx((values[0], values[-1]))
    assert values[0] < min(plan.eigenvalues) / 2 and values[-1] > max(plan.eigenvalues)  # lemma 2 says neither


def test_the_joint_targets_marginals_are_the_posterior_and_its_smoothing() -> None:
    joint = recursion.target(recursion.joint_precision(np.diag([2.0, 3.0]), 0.4)).covariance
    assert joint[:2, :2] == pytest.approx(np.diag([1 / 2, 1 / 3]))
    assert joint[2:, 2:] == pytest.approx(np.diag([1 / 2 + 0.4, 1 / 3 + 0.4]))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    plan = dimension.SMOKE
    return [dimension.row(plan, start, lr, time) for start in plan.starts for lr in plan.lrs for time in plan.times]


def test_the_printed_bound_is_broken_and_the_corrected_one_is_not(rows: list[dict[str, object]]) -> None:
    def smallest(bound: str, exact: str) -> float:
        return min(r[bound] / r[exact] for r in rows)  # type: ignore[operator]

    assert smallest("sgld_bound", "sgld_w2") >= 1 and smallest("corrected", "joint_w2") >= 1
    assert smallest("printed", "joint_w2") < 1


def test_two_copies_are_root_2_farther_off_than_one(rows: list[dict[str, object]]) -> None:
    for row in rows:
        assert row["sgld_2d_w2"] == pytest.approx(2**0.5 * row["sgld_w2"])  # type: ignore[operator]


def test_a_plain_simulation_of_the_pair_has_the_recursions_law() -> None:
    """θ and θₐ stepped by the formula, in numpy: all moments within 5 standard errors."""
    plan, n, rng = dimension.Plan(lrs=(0.1,)), 20_000, np.random.default_rng(4)
    values, lr = np.array(plan.eigenvalues), 0.1
    theta = 1.0 + np.sqrt(plan.start_variance) * rng.standard_normal((n, 3))
    anchor = theta.copy()
    for _ in range(6):
        pull = (theta - anchor) / plan.eta
        gradient = theta * values + plan.gradient_sd * rng.standard_normal((n, 3))
        theta = theta - lr * (gradient + pull) + np.sqrt(2 * lr) * rng.standard_normal((n, 3))
        anchor = anchor + lr * pull + np.sqrt(2 * lr) * rng.standard_normal((n, 3))
    both = np.concatenate([theta, anchor], axis=1)
    law, _ = dimension.laws(plan, 1.0, lr, 6)["joint"]
    assert np.all(np.abs(both.mean(0) - law.mean) < 5 * law.sd / np.sqrt(n))
    error = np.sqrt((law.covariance**2 + np.outer(law.sd**2, law.sd**2)) / n)
    assert np.all(np.abs(np.cov(both.T) - law.covariance) < 5 * error)


def test_rows_hold_the_distance_of_the_law_after_their_steps() -> None:
    plan = dimension.Plan()
    row = dimension.row(plan, 1.0, 0.01, 0.3)
    assert row["steps"] == 30
    law, target = dimension.laws(plan, 1.0, 0.01, 30)["theta"]
    assert row["theta_w2"] == pytest.approx(w2(law, target)) and len(law.mean) == 3


@pytest.mark.parametrize("wrong", [{"eta": 1.0}, {"lrs": (0.3,)}, {"groups": 1}])
def test_a_plan_outside_the_statements_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"must"):
        dimension.Plan(**wrong)  # type: ignore[arg-type]
