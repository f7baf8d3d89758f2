"""Tables of flatness around samples of a linear Gaussian network, where all of them have formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from raychains.evaluation.loss_landscape import direction
from raychains.measures import flatness, named
from raychains.measures.flatness import Plane
from tests.checks import refused
from tests.measures.made import Made, data, linear, nll, regression

RUN = [
    (0, cycle, variable, linear(cycle + 1, variable == "anchor", cycle**2))
    for cycle in range(3)
    for variable in ("theta", "anchor")
]
STEPS, GRID = 5, 6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("flat"), regression(), RUN)


@pytest.fixture(scope="module")
def tables(made: Made) -> dict[str, list[dict[str, object]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flatness, "STEPS", STEPS)
        patch.setattr(flatness, "GRID", GRID)
        return dict(named("flatness").tables(made.context()))  # type: ignore[arg-type]


def of(row: dict[str, object]) -> dict[str, object]:
    return next(t for _, cycle, variable, t in RUN if (cycle, variable) == (row["cycle"], row["variable"]))


def axes(theta: Any) -> tuple[np.ndarray, np.ndarray]:
    """Gram and Schmidt's unit vectors of the plane through three points."""
    u = (theta[1] - theta[0]) / np.linalg.norm(theta[1] - theta[0])
    v = theta[2] - theta[0] - ((theta[2] - theta[0]) @ u) * u
    return u, v / np.linalg.norm(v)


def test_fishers_are_analytic_for_each_variable(tables: dict[str, list[dict[str, object]]]) -> None:
    rows = tables["fisher"]
    assert {(r["cycle"], r["variable"]) for r in rows} == {(c, v) for _, c, v, _ in RUN}
    x, y = (t.double().numpy() for t in data(0))
    for row in rows:
        w = of(row)["weight"].double().numpy()[0]  # type: ignore[attr-defined]
        squared = (y - x @ w) ** 2
        expected = np.sort([*(squared[:, None] * x**2).mean(0), squared.mean()])[::-1]
        assert row["eigenvalue"] == pytest.approx(expected[int(row["rank"]) - 1], rel=1e-5)
        assert row["trace"] == pytest.approx(expected.sum(), rel=1e-5)
        assert (row["parameters"], row["examples"]) == (5, 60)


def test_losses_along_directions_are_exact_on_both_splits(tables: dict[str, list[dict[str, object]]]) -> None:
    rows = tables["directions"]
    assert len(rows) == 2 * 6 * flatness.SEEDS * STEPS
    for row in rows:
        tensors = of(row)
        d = direction("weight", tensors["weight"], row["seed"])  # type: ignore[arg-type]
        moved = {**tensors, "weight": tensors["weight"] + row["t"] * d}  # type: ignore[operator]
        assert row["nll"] == pytest.approx(nll(moved, data(0 if row["split"] == "train" else 1)), rel=1e-4)
    assert {r["split"] for r in rows} == {"test", "train"}
    assert {r["t"] for r in rows if r["seed"] == 0} == set(np.linspace(-1, 1, STEPS).tolist())


def test_a_plane_goes_through_its_samples_with_the_quadratic_loss(tables: dict[str, list[dict[str, object]]]) -> None:
    corners, rows = tables["plane_samples"], tables["plane"]
    assert [(c["cycle"], c["variable"]) for c in corners] == [(0, "theta"), (1, "theta"), (2, "theta")]
    theta = [np.array([*of(c)["weight"].double().numpy()[0]]) for c in corners]  # type: ignore[attr-defined]
    u, v = axes(theta)
    for c, t in zip(corners, theta, strict=True):
        assert (c["x"], c["y"]) == pytest.approx(((t - theta[0]) @ u, (t - theta[0]) @ v), abs=1e-5)
    assert len(rows) == GRID**2
    x, y = data(1)
    for row in rows:
        w = theta[0] + row["x"] * u + row["y"] * v  # type: ignore[operator]
        residual = y.double().numpy() - x.double().numpy() @ w
        assert row["nll"] == pytest.approx(np.mean(residual**2) / 2 + np.log(2 * np.pi) / 2, rel=1e-4)


def test_samples_on_one_line_have_no_plane_and_large_training_sets_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flatness, "TRAINING", 59)
    monkeypatch.setattr(flatness, "STEPS", 3)
    line = Made(tmp_path, regression(), [(0, c, "theta", linear(c, 2 * c)) for c in range(3)])
    found = named("flatness").tables(line.context())
    assert set(found) == {"fisher", "directions"}
    assert {r["split"] for r in found["directions"]} == {"test"}


def test_three_chains_make_a_plane_where_there_are_no_three_cycles(tmp_path: Path) -> None:
    made = Made(tmp_path, regression(), [(c, 0, "theta", linear(c, c**2, k)) for c in range(4) for k in range(2)])
    three = flatness._three(flatness.drawn(made.context(), 0, 0))
    assert three is not None and [(s.chain, s.meta.index) for s in three] == [(0, 1), (2, 1), (3, 1)]


# Planes


@pytest.mark.parametrize("seed", range(3))
def test_a_planes_coordinates_are_those_of_gram_and_schmidt(seed: int) -> None:
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(3, 50)) * [[1], [3], [2]]
    plane = Plane(cdist(theta, theta))
    u, v = axes(theta)
    corners = [((t - theta[0]) @ u, (t - theta[0]) @ v) for t in theta]
    assert plane.corners == pytest.approx(np.array(corners), rel=1e-9, abs=1e-9)
    xs, ys = plane.grid(5)
    for x, y in [(xs[0], ys[3]), (xs[4], ys[1]), (0.3, -0.8)]:
        c = plane.coefficients(x, y)
        assert sum(c) == pytest.approx(1, abs=1e-12)
        assert np.array(c) @ theta == pytest.approx(theta[0] + x * u + y * v, abs=1e-8)
    for corner, expected in zip(plane.corners, np.eye(3), strict=True):
        assert plane.coefficients(*corner) == pytest.approx(tuple(expected), abs=1e-12)
    low, high = plane.corners.min(0), plane.corners.max(0)
    assert (xs[0], xs[-1]) == pytest.approx((low[0] - 0.25 * (high - low)[0], high[0] + 0.25 * (high - low)[0]))
    assert (ys[0], ys[-1]) == pytest.approx((low[1] - 0.25 * (high - low)[1], high[1] + 0.25 * (high - low)[1]))


def test_three_on_a_line_span_no_plane() -> None:
    line = np.array([[0.0, 0], [1, 1], [3, 3]])
    for points in (line, np.zeros((3, 2)), line[[0, 0, 1]]):
        with refused("samples", "plane"):
            Plane(cdist(points, points))
