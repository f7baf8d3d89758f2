"""Lines between samples: exact parabolas of a quadratic loss, and which pairs are joined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from raychains.measures import named
from raychains.measures.interpolation import KINDS, POINTS, chosen
from raychains.measures.network_samples import drawn as drawn_samples
from raychains.measures.network_samples import thinned
from raychains.tasks.mixture import Mixture25
from tests.measures.made import Made, classifier, data, drawn, linear, nll, regression

RUN = [
    (chain, cycle, "theta", linear(chain + 1, cycle, k, chain - cycle))
    for chain in (0, 1)
    for cycle in (0, 1, 2)
    for k in (0, 1)
]
"""Two chains of three cycles of two samples, all different."""


def test_nll_on_every_line_is_the_parabola_of_a_quadratic_loss(tmp_path: Path) -> None:
    made = Made(tmp_path, regression(), RUN)
    rows = named("interpolation").tables(made.context())["interpolation"]
    by: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in rows:
        by.setdefault((row["kind"], row["pair"]), []).append((row["t"], row["nll"]))
    tensors = {(c, y, k): t for (c, y, _, t), k in zip(RUN, [0, 1] * 6, strict=True)}
    for row in rows:
        one, other = (tensors[row[f"chain{e}"], row[f"cycle{e}"], row[f"index{e}"] % 2] for e in ("_from", "_to"))
        between = {n: (1 - row["t"]) * one[n] + row["t"] * other[n] for n in one}
        assert row["nll"] == pytest.approx(nll(between, data(1)), rel=1e-5)
    for values in by.values():
        t, y = np.array(values).T
        assert t == pytest.approx(np.linspace(0, 1, POINTS))
        second = np.diff(y, 2)
        assert second == pytest.approx(second.mean(), rel=1e-3) and second.mean() > 0
    counts = {kind: len({r["pair"] for r in rows if r["kind"] == kind}) for kind in KINDS}
    assert counts == {"neighbouring cycles": 4, "inside a cycle": 6, "between chains": 1, "θ and θₐ": 0}
    assert len({p.key for _, p in made.measured}) < len(made.measured), "ends that lines share are one point"


def test_pairs_are_what_their_kind_says(tmp_path: Path) -> None:
    anchored = [*RUN, *((c, y, "anchor", t) for c, y, _, t in RUN)]
    made = Made(tmp_path, regression(), anchored)
    samples = drawn_samples(made.context(), 0, 0)
    assert [s.meta.variable for s in samples] == ["theta"] * 12 + ["anchor"] * 12
    found = {kind: list(pairs(samples)) for kind, (pairs, _) in KINDS.items()}
    for one, other in found["neighbouring cycles"]:
        assert one.chain == other.chain and other.meta.cycle == one.meta.cycle + 1
        assert one.meta.index % 2 == other.meta.index % 2 == 1, "the last of each"
    for one, other in found["inside a cycle"]:
        assert (one.chain, one.meta.cycle) == (other.chain, other.meta.cycle)
        assert other.meta.index == one.meta.index + 1
    for one, other in found["between chains"]:
        assert one.chain != other.chain and one.meta.index == other.meta.index == 5
    for one, other in found["θ and θₐ"]:
        assert (one.chain, one.meta.index) == (other.chain, other.meta.index)
        assert (one.meta.variable, other.meta.variable) == ("theta", "anchor")
    assert [len(pairs) for pairs in found.values()] == [4, 6, 1, 12]
    lines = {r["kind"] for r in named("interpolation").tables(made.context())["interpolation"]}
    assert lines == set(KINDS)


def test_a_seed_chooses_among_many_pairs_and_the_first_is_always_there(tmp_path: Path) -> None:
    made = Made(tmp_path, regression(), [(0, 0, "theta", linear(k)) for k in range(30)])
    samples = drawn_samples(made.context(), 0, 0)
    pairs = list(KINDS["inside a cycle"][0](samples))
    few = [chosen(pairs, 6, seed) for seed in range(5)]
    for some in few:
        assert len(some) == 6 and some[0] == pairs[0]
        assert [p[0].meta.index for p in some] == sorted({p[0].meta.index for p in some})
    assert few[0] == chosen(pairs, 6, 0) and any(some != few[0] for some in few)
    assert chosen(pairs[:6], 6, 3) == pairs[:6]
    assert [s.meta.index for s in thinned(samples, 4)] == [0, 10, 19, 29]


def test_statistics_are_estimated_at_the_ends_as_well(tmp_path: Path) -> None:
    task = classifier(batchnorm=True)
    made = Made(tmp_path, task, [(0, 0, "theta", drawn(1, task)), (0, 0, "theta", drawn(2, task))])
    rows = named("interpolation").tables(made.context())["interpolation"]
    assert made.measured and all(p.reestimate for _, p in made.measured)
    assert [len(p.samples) for _, p in made.measured] == [1, *[2] * 9, 1]
    assert all({"error", "nll"} <= set(row) and 0 <= row["error"] <= 1 for row in rows)
    plain = Made(tmp_path / "plain", classifier(), [(0, 0, "theta", drawn(s, classifier())) for s in (1, 2)])
    named("interpolation").tables(plain.context())
    assert not any(p.reestimate for _, p in plain.measured)


def test_it_says_why_it_says_nothing(tmp_path: Path) -> None:
    alone = Made(tmp_path, regression(), [(0, 0, "theta", linear(1))])
    for name in ("interpolation", "diversity"):
        assert "two samples" in (named(name).why_not(alone.context()) or "")
    assert named("flatness").why_not(alone.context()) is None
    density = Made(tmp_path / "d", Mixture25(), [(0, 0, "theta", {"theta": torch.zeros(1, 2)})])
    for name in ("interpolation", "diversity", "flatness"):
        assert "density" in (named(name).why_not(density.context()) or "")
