"""Corruption errors against loops over the published definition."""

from __future__ import annotations

import numpy as np
import pytest

from raychains.evaluation import corruption
from tests.checks import refused

KINDS = ("fog", "snow", "contrast")
SEVERITIES = (1, 2, 3, 4, 5)


def table(seed: int, kinds: tuple[str, ...] = KINDS) -> dict[str, dict[int, float]]:
    rng = np.random.default_rng(seed)
    return {kind: {s: 0.05 * s + float(rng.uniform(0, 0.1)) for s in SEVERITIES} for kind in kinds}


def test_means_equal_loops_whatever_the_order_of_severities() -> None:
    values = table(0)
    values["snow"] = dict(reversed(values["snow"].items()))
    found = corruption.collect(values)
    assert found.types == KINDS and found.severities == SEVERITIES
    for kind in KINDS:
        assert found.by_type[kind] == pytest.approx(sum(values[kind].values()) / 5)
    for s in SEVERITIES:
        assert found.by_severity[s] == pytest.approx(sum(values[k][s] for k in KINDS) / 3)
    assert found.mean == pytest.approx(np.mean([v for row in values.values() for v in row.values()]))


def test_corruption_errors_equal_their_definition() -> None:
    ours, theirs = table(0), table(1, kinds=KINDS[::-1])
    errors, baseline = corruption.collect(ours), corruption.collect(theirs)
    ce = corruption.corruption_error(errors, baseline)
    relative = corruption.relative_corruption_error(errors, 0.04, baseline, 0.05)
    for kind in KINDS:
        above, below = (sum(t[kind][s] for s in SEVERITIES) for t in (ours, theirs))
        assert ce[kind] == pytest.approx(above / below)
        assert relative[kind] == pytest.approx((above - 5 * 0.04) / (below - 5 * 0.05))
    assert corruption.mean_of(ce) == pytest.approx(sum(ce.values()) / 3)


def test_the_baseline_is_one_against_itself_and_half_the_error_is_half() -> None:
    baseline = corruption.collect(table(0))
    half = corruption.collect({k: {s: v / 2 for s, v in row.items()} for k, row in table(0).items()})
    assert corruption.mean_of(corruption.corruption_error(baseline, baseline)) == pytest.approx(1)
    assert corruption.mean_of(corruption.corruption_error(half, baseline)) == pytest.approx(0.5)
    assert corruption.mean_of(corruption.relative_corruption_error(half, 0.01, baseline, 0.02)) == pytest.approx(0.5)


def test_one_type_and_one_severity_is_a_grid() -> None:
    one = corruption.collect({"fog": {3: 0.2}})
    assert one.by_type == {"fog": 0.2} and one.by_severity == {3: 0.2} and one.mean == 0.2


def test_bad_grids_are_one_line() -> None:
    with refused("corruptions"):
        corruption.collect({})
    with refused("corruptions"):
        corruption.collect({"fog": {}})
    with refused("severities", "snow", "fog", "[1, 3]", "[1, 2]"):
        corruption.collect({"fog": {1: 0.1, 2: 0.2}, "snow": {1: 0.1, 3: 0.2}})
    with refused("fog at severity 2", "finite", "nan"):
        corruption.collect({"fog": {1: 0.1, 2: float("nan")}})
    grid = corruption.collect(table(0))
    with refused("types", "frost"):
        corruption.corruption_error(grid, corruption.collect(table(0, (*KINDS, "frost"))))
    with refused("severities", "5"):
        corruption.corruption_error(grid, corruption.collect({k: {1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1} for k in KINDS}))
    perfect = corruption.collect({k: dict.fromkeys(SEVERITIES, 0.0) for k in KINDS})
    with refused("baseline's error", "positive", "fog"):
        corruption.corruption_error(grid, perfect)
    with refused("baseline's rise in error", "positive"):
        corruption.relative_corruption_error(grid, 0.0, grid, 0.9)
    with refused("clean", "finite"):
        corruption.relative_corruption_error(grid, float("inf"), grid, 0.0)
    with refused("types"):
        corruption.mean_of({})
