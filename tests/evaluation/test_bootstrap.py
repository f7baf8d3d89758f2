"""Bootstrap intervals against transcriptions of their definitions, known standard errors and nominal coverage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats

from raychains.evaluation import bootstrap as module
from raychains.evaluation import calibration, metrics, ood
from raychains.evaluation.base import Rows
from raychains.evaluation.bootstrap import bootstrap, paired_difference
from tests.checks import refused
from tests.evaluation.cases import Array, rows_of, softmax_samples, top_class_rows

FIRST, LABELS = softmax_samples(0, n=120)
ROWS = rows_of(FIRST, LABELS)
METRICS = (metrics.error, metrics.nll, metrics.brier, metrics.ece, calibration.equal_mass_ece)
normal = scipy.stats.norm


def mean(rows: Rows) -> Any:
    """Of the column x; over the last axis, so that it takes a batch as well."""
    return rows["x"].mean(axis=-1)


def own_replicates(metric: Any, tables: list[Rows], resamples: int, seed: int) -> Array:
    """Redrawn here: a resample is one row of integers of the seeded generator."""
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(t["label"]), (resamples, len(t["label"]))) for t in tables]
    return np.array(
        [
            metric(*({k: v[at[i]] for k, v in t.items()} for t, at in zip(tables, draws, strict=True)))
            for i in range(resamples)
        ]
    )


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.__name__)
def test_percentile_interval_equals_quantiles_of_resamples_drawn_by_hand(metric: Any) -> None:
    found = bootstrap(metric, ROWS, resamples=60, level=0.9, seed=3)
    expected = own_replicates(metric, [ROWS], 60, 3)
    np.testing.assert_allclose(found.replicates, expected, rtol=1e-12)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.05, 0.95])), rel=1e-12)
    assert found.standard_error == pytest.approx(expected.std(ddof=1), rel=1e-12)
    assert found.value == metric(ROWS)
    assert (found.level, found.method) == (0.9, "percentile")


@pytest.mark.parametrize("metric", [metrics.nll, calibration.equal_mass_ece], ids=lambda m: m.__name__)
def test_bca_interval_equals_efrons_formula(metric: Any) -> None:
    found = bootstrap(metric, ROWS, resamples=200, method="bca", seed=1)
    replicates, value, n = own_replicates(metric, [ROWS], 200, 1), metric(ROWS), len(LABELS)
    below = (np.mean(replicates < value) + np.mean(replicates <= value)) / 2
    bias = normal.ppf(below)
    left_out = np.array([metric({k: np.delete(v, i, axis=0) for k, v in ROWS.items()}) for i in range(n)])
    away = left_out.mean() - left_out
    acceleration = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    levels = [normal.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in normal.ppf([0.025, 0.975])]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(replicates, levels)), rel=1e-10)
    assert (found.low, found.high) != pytest.approx(tuple(np.quantile(replicates, [0.025, 0.975])), rel=1e-4)


def test_several_tables_are_resampled_on_their_own() -> None:
    outside = rows_of(*softmax_samples(9, n=75, sharpness=0.7))

    def auroc(a: Rows, b: Rows) -> Any:
        """Of the entropies, over all pairs: scikit-learn's takes ten times as long."""
        return (np.sign(b["entropy"][:, None] - a["entropy"]).mean() + 1) / 2

    assert auroc(ROWS, outside) == pytest.approx(ood.auroc(outside["entropy"], ROWS["entropy"]))

    found = bootstrap(auroc, ROWS, outside, resamples=40, seed=2)
    np.testing.assert_allclose(found.replicates, own_replicates(auroc, [ROWS, outside], 40, 2), rtol=1e-12)
    accelerated = bootstrap(auroc, ROWS, outside, resamples=40, seed=2, method="bca")
    np.testing.assert_array_equal(accelerated.replicates, found.replicates)
    assert 0.5 < accelerated.low < found.value < accelerated.high < 1


def test_a_metric_that_takes_batches_gives_the_same() -> None:
    rows = {"x": np.random.default_rng(0).normal(size=90)}
    for method in ("percentile", "bca"):
        one, batch = (bootstrap(mean, rows, method=method, vectorised=v, resamples=80) for v in (False, True))  # type: ignore[arg-type]
        np.testing.assert_allclose(one.replicates, batch.replicates, rtol=1e-13)
        assert (one.low, one.high) == pytest.approx((batch.low, batch.high), rel=1e-12)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_memory_is_bounded_by_batches_that_change_nothing(monkeypatch: pytest.MonkeyPatch, method: Any) -> None:
    rows = {"x": np.random.default_rng(0).normal(size=100)}
    whole = bootstrap(mean, rows, method=method, vectorised=True, resamples=57)
    monkeypatch.setattr(module, "AT_ONCE", 700)
    sizes = []

    def watched(drawn: Rows) -> Any:
        sizes.append(drawn["x"].size)
        return mean(drawn)

    small = bootstrap(watched, rows, method=method, vectorised=True, resamples=57)
    assert max(sizes) <= 700 and len(sizes) > 57 / 7
    np.testing.assert_array_equal(small.replicates, whole.replicates)
    assert (small.low, small.high) == (whole.low, whole.high)


def test_the_seed_decides() -> None:
    same, again, other = (bootstrap(metrics.nll, ROWS, resamples=20, seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(same.replicates, again.replicates)
    assert not np.array_equal(same.replicates, other.replicates)


def test_only_the_columns_that_a_metric_reads_are_gathered() -> None:
    class Untouchable:
        def __len__(self) -> int:
            return len(LABELS)

        def __array__(self, *_: Any, **__: Any) -> Array:
            raise AssertionError("gathered")

    bootstrap(metrics.nll, {**ROWS, "heavy": Untouchable()}, resamples=3)  # type: ignore[dict-item]


# Known cases


def test_standard_error_of_a_mean_is_sigma_over_root_n() -> None:
    """Exactly, as the resamples go to infinity: the plug-in sd over √n; 4,000 resamples know it to 1/√8000."""
    x = np.random.default_rng(1).exponential(size=400)
    found = bootstrap(mean, {"x": x}, resamples=4000, vectorised=True)
    assert found.standard_error == pytest.approx(x.std() / math.sqrt(400), rel=4 / math.sqrt(8000))
    error = found.replicates.mean() - x.mean()
    assert abs(error) < 4 * found.standard_error / math.sqrt(4000)


def test_intervals_of_a_normal_mean_cover_as_often_as_theory_says() -> None:
    """The percentile interval is mean ± z·s/√n with the plug-in s: it covers when |t| with n − 1 degrees is small."""
    n, sets, z = 40, 400, normal.ppf(0.95)
    expected = 2 * scipy.stats.t(n - 1).cdf(z * math.sqrt((n - 1) / n)) - 1
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(sets):
        found = bootstrap(mean, {"x": rng.normal(3, 2, n)}, resamples=500, level=0.9, seed=seed, vectorised=True)
        covered += found.low <= 3 <= found.high
    assert covered / sets == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / sets))
    assert 0.87 < expected < 0.9


def test_paired_difference_is_that_of_the_same_draws() -> None:
    second = rows_of(FIRST[:2], LABELS)
    found = paired_difference(metrics.nll, ROWS, second, resamples=100, seed=4)
    each = [bootstrap(metrics.nll, rows, resamples=100, seed=4) for rows in (ROWS, second)]
    np.testing.assert_allclose(found.replicates, each[0].replicates - each[1].replicates, rtol=1e-9, atol=1e-12)
    assert found.value == pytest.approx(metrics.nll(ROWS) - metrics.nll(second), rel=1e-12)
    assert found.standard_error < 0.5 * math.hypot(each[0].standard_error, each[1].standard_error)
    reverse = paired_difference(metrics.nll, second, ROWS, resamples=100, seed=4)
    assert (reverse.low, reverse.high) == pytest.approx((-found.high, -found.low))


def test_paired_difference_of_a_predictive_with_itself_is_exactly_nothing() -> None:
    for method in ("percentile", "bca"):
        found = paired_difference(metrics.ece, ROWS, ROWS, resamples=20, method=method)  # type: ignore[arg-type]
        assert (found.value, found.low, found.high, found.standard_error) == (0, 0, 0, 0)


def test_standard_error_of_a_paired_difference_is_that_of_the_differences() -> None:
    rng = np.random.default_rng(2)
    shared = rng.normal(size=500)
    first, second = ({"x": shared + 0.1 * rng.normal(size=500)} for _ in range(2))
    found = paired_difference(mean, first, second, resamples=4000, vectorised=True)
    assert found.standard_error == pytest.approx((first["x"] - second["x"]).std() / math.sqrt(500), rel=0.05)


def test_resamples_overstate_a_calibration_error_and_bca_takes_it_back() -> None:
    """As the docstring warns: a calibrated predictive's resamples have larger errors than its points."""
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 400)
    rows = top_class_rows(confidence, rng.random(400) < confidence)
    plain, accelerated = (
        bootstrap(calibration.equal_mass_ece, rows, resamples=300, method=m) for m in ("percentile", "bca")
    )  # type: ignore[arg-type]
    assert plain.replicates.mean() > plain.value + plain.standard_error / 2
    assert accelerated.low < plain.low and accelerated.high < plain.high


# Edges and refusals


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_where_all_points_are_alike_the_interval_is_the_value(method: Any) -> None:
    right = top_class_rows([0.75] * 10, [True] * 10)
    found = bootstrap(metrics.error, right, method=method, resamples=20)
    assert (found.value, found.low, found.high, found.standard_error) == (0, 0, 0, 0)
    found = bootstrap(metrics.ece, right, method=method, resamples=20)
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))


def test_two_points_are_enough() -> None:
    found = bootstrap(metrics.error, top_class_rows([0.5, 0.5], [True, False]), resamples=50)
    assert set(found.replicates) == {0, 0.5, 1} and found.value == 0.5


def test_bad_arguments_are_one_line() -> None:
    with refused("rows", "2 test points", "1 point"):
        bootstrap(metrics.error, top_class_rows([0.5], [True]))
    with refused("rows", "one length"):
        bootstrap(metrics.error, {**ROWS, "label": np.zeros(3)})
    with refused("rows"):
        bootstrap(metrics.error, {})
    with refused("tables"):
        bootstrap(metrics.error)
    for name, value in (
        ("resamples", 1),
        ("resamples", 2.5),
        ("level", 0),
        ("level", 1),
        ("seed", -1),
        ("method", "basic"),
    ):
        with refused(name, repr(value)):
            bootstrap(metrics.error, ROWS, **{name: value})  # type: ignore[arg-type]


def test_metrics_that_are_no_numbers_are_one_line() -> None:
    with refused("metric", "finite", "test points", "nan"):
        bootstrap(lambda rows: math.nan, ROWS)
    rows = {"x": np.array([1.0, 0.0, 0.0])}
    with refused("metric", "finite", "resample", "inf"), np.errstate(divide="ignore"):
        bootstrap(lambda r: 1 / r["x"].mean(), rows, resamples=50)
    with refused("metric", "shape", "[3]"):
        bootstrap(lambda r: r["x"], rows)
    with refused("metric", "shape", "[]"):
        bootstrap(lambda r: r["x"].mean(), rows, vectorised=True)


def test_bca_refuses_a_metric_that_resamples_only_lower() -> None:
    """The number of distinct points: every resample has fewer, and the bias correction is infinite."""
    with refused("method", "percentile", "bca"):
        bootstrap(lambda r: len(set(r["x"])), {"x": np.arange(31)}, method="bca", resamples=30)


def test_pairs_of_different_examples_are_one_line() -> None:
    with refused("rows of both predictives", "same examples", "[120, 119]"):
        paired_difference(metrics.nll, ROWS, {k: v[:-1] for k, v in ROWS.items()})
    with refused("rows of both predictives", "3 different labels"):
        other = LABELS.copy()
        other[:3] = (other[:3] + 1) % 7
        paired_difference(metrics.nll, ROWS, {**ROWS, "label": other})
