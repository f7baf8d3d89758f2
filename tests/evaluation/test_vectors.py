"""Linear combinations of samples and projections of networks against numpy, in every type that samples have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raychains.evaluation.vectors import combined, flat, projections


def sample(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "w": torch.randn(3, 4, generator=g).to(dtype),
        "b": torch.randn(3, generator=g).to(dtype),
        "seen": torch.tensor(seed),
    }


def test_a_combination_is_the_weighted_sum_and_integers_are_the_firsts() -> None:
    samples, c = [sample(s) for s in (5, 6, 7)], [0.2, -1.5, 2.3]
    found = combined(list(zip(c, samples, strict=True)))
    for name in ("w", "b"):
        expected = np.tensordot(c, np.stack([s[name].double().numpy() for s in samples]), 1)
        assert found[name].numpy() == pytest.approx(expected, rel=1e-6) and found[name].dtype == torch.float32
    assert int(found["seen"]) == 5


def test_half_precisions_are_rounded_once() -> None:
    samples, c = [sample(s, torch.bfloat16) for s in (0, 1, 2)], [0.1, 0.7, 0.2]
    found = combined(list(zip(c, samples, strict=True)))["w"]
    exact = sum(a * s["w"].double() for a, s in zip(c, samples, strict=True))
    assert torch.equal(found, exact.to(torch.bfloat16))  # type: ignore[union-attr]


def test_one_sample_is_itself_and_a_share_of_it_is_scaled() -> None:
    one = sample(0)
    assert all(combined([(1.0, one)])[name] is one[name] for name in one)
    assert torch.equal(combined([(0.5, one)])["w"], one["w"] / 2)


def networks(count: int) -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    return [
        {"w": torch.randn(40, 30), "b": torch.randn(30).double(), "h": torch.randn(7).bfloat16(), "n": torch.tensor(3)}
        for _ in range(count)
    ]


NAMES = ("w", "b", "h")


def test_projections_are_those_of_the_flat_vector_on_unit_directions() -> None:
    samples = networks(3)
    vectors = np.stack([flat(s, NAMES) for s in samples])
    assert vectors.shape == (3, 40 * 30 + 30 + 7)
    norms = [projections(s, NAMES, count=3, seed=5)["norm"] for s in samples]
    assert norms == pytest.approx(np.linalg.norm(vectors, axis=1), rel=1e-12)

    def of(x: np.ndarray) -> dict[str, float]:
        return projections({"a": torch.tensor(x[:4]), "z": torch.tensor(x[4:])}, ("z", "a"), count=2, seed=5)

    # The direction itself, coordinate by coordinate: the projections of unit vectors.
    units = [of(row) for row in np.eye(6)]
    unit = {name: np.array([one[name] for one in units]) for name in ("projection 1", "projection 2")}
    x = np.random.default_rng(0).normal(size=6)
    for name, direction in unit.items():
        assert np.linalg.norm(direction) == pytest.approx(1, rel=1e-12)
        assert of(x)[name] == pytest.approx(direction @ x, rel=1e-12)
    assert abs(unit["projection 1"] @ unit["projection 2"]) < 0.99
    other = projections({"a": torch.ones(5), "b": -torch.ones(5)}, ("a", "b"), count=1)["projection 1"]
    assert abs(other) > 1e-3, "tensors of one shape have directions of their own"


def test_projections_depend_on_the_seed_alone_and_have_the_sphere_s_law() -> None:
    (one,) = networks(1)
    again = projections(one, NAMES, seed=1)
    assert again == projections(one, NAMES, seed=1)
    assert again["projection 2"] != projections(one, NAMES, seed=2)["projection 2"]
    assert again["projection 1"] != again["projection 2"]
    many = projections(one, NAMES, count=400)
    along = np.array([many[f"projection {r + 1}"] for r in range(400)]) / many["norm"]
    assert along.std() * np.sqrt(flat(one, NAMES).size) == pytest.approx(1, abs=0.15)


def test_only_the_named_floating_tensors_count() -> None:
    (one,) = networks(1)
    assert flat(one, ["b"]) == pytest.approx(one["b"].numpy(), abs=0)
    assert flat(one, ["b", "n"]) == pytest.approx(one["b"].numpy(), abs=0)
    got = projections(one, ["h", "b"])["norm"]
    assert got == pytest.approx(float(torch.cat([one["h"].double(), one["b"]]).norm()))
