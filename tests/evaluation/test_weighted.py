"""Weights of the samples in a view: direct formulas, whole-number weights as repeated samples, and today's bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from raychains.evaluation.classification import Classification, OutOfDistribution, reduce_classification
from raychains.evaluation.evaluation import Evaluation, Reduced, normalised
from raychains.evaluation.exact import ModeCoverage, ModeShare
from raychains.evaluation.moments import GaussianMoments
from raychains.evaluation.regression import Pointwise, Regression, reduce_regression
from tests.checks import refused

N, CLASSES = 40, 6
WEIGHTS = [0.3, 0.0, 0.5, 0.2]


def log_p(samples: int = 4) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return list(torch.log_softmax(torch.from_numpy(2 * rng.normal(size=(samples, N, CLASSES))), -1).float().numpy())


def gaussians(samples: int = 4) -> list[np.ndarray[Any, Any]]:
    """Means of two outputs and a σ."""
    rng = np.random.default_rng(1)
    means, sigmas = rng.normal(size=(samples, N, 2)), rng.uniform(0.5, 2, size=(samples, 1, 1))
    return [np.concatenate([m, np.broadcast_to(s, (N, 1))], axis=1) for m, s in zip(means, sigmas, strict=True)]


def classification(blocks: list[Any], weights: Any = None) -> Reduced:
    return reduce_classification(blocks, np.arange(N) % CLASSES, bins=15, weights=weights)


def out_of_distribution(blocks: list[Any], weights: Any = None) -> Reduced:
    split = OutOfDistribution(model=torch.nn.Linear(1, 1), inputs=torch.zeros(N, 1))
    return split.reduce(blocks, 0, weights)


def regression(blocks: list[Any], weights: Any = None) -> Reduced:
    return reduce_regression(blocks, np.random.default_rng(2).normal(size=(N, 2)), weights=weights)


def pointwise(blocks: list[Any], weights: Any = None) -> Reduced:
    split = Pointwise(
        model=torch.nn.Linear(1, 1),
        inputs=torch.zeros(N, 1),
        targets=torch.zeros(N),
        loss=torch.nn.functional.mse_loss,
        fingerprint="",
    )
    return split.reduce([b[:, 0].astype(np.float64) for b in blocks], 0, weights)


CASES = [(classification, log_p), (out_of_distribution, log_p), (regression, gaussians), (pointwise, log_p)]
each_case = pytest.mark.parametrize(("reduce", "made"), CASES, ids=[c[0].__name__ for c in CASES])
Reduce = Callable[..., Reduced]
Made = Callable[..., list[Any]]


def columns(part: Reduced) -> dict[str, Any]:
    return {
        **part.rows,
        **{f"curve {n}": v for n, v in part.curves.items()},
        **{f"sum {n}": v for n, v in part.sums.items()},
    }


@each_case
def test_equal_weights_give_the_bytes_of_none(reduce: Reduce, made: Made) -> None:
    plain, equal = columns(reduce(made())), columns(reduce(made(), [0.7] * 4))
    assert plain.keys() == equal.keys() and all(plain[n].tobytes() == equal[n].tobytes() for n in plain)


@each_case
def test_whole_numbers_weigh_like_samples_that_come_as_often(reduce: Reduce, made: Made) -> None:
    blocks = made()
    found, expected = reduce(blocks, [2, 0, 1, 3]), reduce([blocks[0]] * 2 + [blocks[2]] + [blocks[3]] * 3)
    for part in ("rows", "sums"):
        assert getattr(found, part).keys() == getattr(expected, part).keys()
        for name, values in getattr(expected, part).items():
            np.testing.assert_allclose(getattr(found, part)[name], values, rtol=1e-9, atol=1e-9, err_msg=name)


@each_case
def test_a_prefix_has_its_weights_renormalised(reduce: Reduce, made: Made) -> None:
    found = reduce(made(), WEIGHTS).curves
    for n in (2, 3, 4):
        expected = reduce(made()[:n], WEIGHTS[:n]).curves
        for name, values in expected.items():
            assert found[name][n - 1] == pytest.approx(values[-1], rel=1e-9), (name, n)
    alone = reduce(made()[:1]).curves
    assert {n: v[0] for n, v in found.items()} == pytest.approx({n: v[0] for n, v in alone.items()}, rel=1e-9)


@each_case
def test_a_prefix_without_weight_predicts_nothing_and_changes_no_row(reduce: Reduce, made: Made) -> None:
    found, expected = reduce(made(), [0, 0, 1, 3]), reduce(made()[2:], [1, 3])
    for name, values in expected.rows.items():
        np.testing.assert_allclose(found.rows[name], values, rtol=1e-12, err_msg=name)
    for name, values in found.curves.items():
        assert np.isnan(values[:2]).all() and np.isfinite(values[2:]).all(), name


DENSITIES: list[Evaluation] = [
    ModeCoverage(centres=[(0.0, 0.0)], radius=1.0, more_than=0),
    ModeShare(centres=[[0.0, 0.0]], scales=[1.0], weights=[1.0], mode=0),
    GaussianMoments(mean=[0.0, 0.0], covariance=[[1.0, 0.0], [0.0, 1.0]]),
]


@pytest.mark.parametrize("density", DENSITIES, ids=lambda d: type(d).__name__)
def test_draws_of_a_density_are_all_worth_the_same(density: Evaluation) -> None:
    draws = np.random.default_rng(0).normal(size=(2, 50, 3, 2))
    blocks = [density.predict({"theta": torch.from_numpy(d)}, 0) for d in draws]
    plain, equal = density.reduce(blocks, 0), density.reduce(blocks, 0, [2.0, 2.0])
    assert all(plain.rows[n].tobytes() == equal.rows[n].tobytes() for n in plain.rows)
    with refused("weights", "equal", "density"):
        density.reduce(blocks, 0, [1.0, 2.0])


@pytest.mark.parametrize("bad", [[1.0, 2.0, 3.0], [1.0, -1.0], [1.0, float("nan")], [0.0, 0.0], [1.0, float("inf")]])
def test_weights_that_are_none_are_one_line(bad: list[float]) -> None:
    with refused("weights"):
        normalised(bad, 2)


def test_the_split_hands_its_weights_on() -> None:
    split = Classification(
        model=torch.nn.Linear(1, 1), inputs=torch.zeros(N, 1), labels=np.arange(N) % CLASSES, classes=CLASSES
    )
    expected = columns(classification(log_p(), WEIGHTS))
    assert all(v.tobytes() == expected[n].tobytes() for n, v in columns(split.reduce(log_p(), 0, WEIGHTS)).items())
    targets = np.random.default_rng(2).normal(size=(N, 2))
    mixture = Regression(
        model=torch.nn.Linear(1, 2), inputs=torch.zeros(N, 1), targets=targets, noise=1.0, fingerprint=""
    )
    found, direct = columns(mixture.reduce(gaussians(), 0, WEIGHTS)), columns(regression(gaussians(), WEIGHTS))
    assert all(v.tobytes() == direct[n].tobytes() for n, v in found.items())
