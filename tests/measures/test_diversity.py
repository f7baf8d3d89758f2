"""Diversity against scipy: distances, planar points, clusters made by hand, two modes, predictions one by one."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics import silhouette_samples

from raychains.evaluation.classification import log_probabilities
from raychains.measures import diversity, named, network_samples
from raychains.measures.network_samples import drawn as drawn_samples
from raychains.measures.network_samples import maker, pairwise
from tests.checks import refused
from tests.evaluation.cases import softmax_samples
from tests.measures.made import Made, classifier, data, drawn, regression


def vector(tensors: dict[str, torch.Tensor]) -> np.ndarray:
    return np.concatenate([tensors[n].double().reshape(-1).numpy() for n in sorted(tensors) if "running" not in n])


def two_modes(folder: Path, arms: tuple[int, ...] = ()) -> tuple[Made, np.ndarray]:
    """Two chains of two cycles of three samples; each cycle of the first chain is a mode, the second has one mode."""
    task = classifier()
    g = torch.Generator().manual_seed(0)
    centres = {(0, 0): 0.0, (0, 1): 5.0, (1, 0): -5.0, (1, 1): -5.0}
    start = drawn(0, task)
    samples = [
        (*at, "theta", {n: centre + 0.3 * torch.randn(t.shape, generator=g) for n, t in start.items()})
        for at, centre in centres.items()
        for _ in range(3)
    ]
    made = Made(folder, task, samples, arms)
    return made, np.stack([vector(t) for *_, t in samples])


Diverse = tuple[Made, np.ndarray, dict[str, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def diverse(tmp_path_factory: pytest.TempPathFactory) -> Diverse:
    """Two arms, of the first chain and of both, with their tables."""
    made, x = two_modes(tmp_path_factory.mktemp("diverse"), arms=(1, 2))
    tables = named("diversity").tables(made.context())
    return made, x, {name: [dict(row) for row in rows] for name, rows in tables.items()}


def test_distances_equal_scipys_and_modes_are_counted(diverse: Diverse) -> None:
    made, x, tables = diverse
    both = made.comparison.arms[1].name
    found = {name: [r for r in rows if r["arm"] == both] for name, rows in tables.items()}
    assert diversity.matrix(pd.DataFrame(found["distances"]), "distance") == pytest.approx(cdist(x, x), abs=1e-5)
    cosine = diversity.matrix(pd.DataFrame(found["distances"]), "cosine") + np.eye(12)
    assert cosine == pytest.approx(1 - cdist(x, x, "cosine"), abs=1e-6)
    assert len(found["distances"]) == 12 * 11 // 2
    row = found["distances"][0]
    assert (row["chain_i"], row["cycle_i"], row["index_i"], row["index_j"]) == (0, 0, 0, 1)
    (clusters,) = found["clusters"]
    assert clusters["samples"] == 12 and clusters["clusters"] == 3 and clusters["silhouette"] > 0.5
    assert clusters["silhouette"] == max(clusters[f"silhouette_{k}"] for k in range(2, 7))
    labels = [r["cluster"] for r in found["embedding"]]
    assert labels == [0] * 3 + [1] * 3 + [2] * 6
    at = np.array([[r["x"], r["y"]] for r in found["embedding"]])
    assert found["embedding"][0]["stress"] < 0.2
    own = cdist(at, at)
    assert np.corrcoef(own.reshape(-1), cdist(x, x).reshape(-1))[0, 1] > 0.97


def test_buffers_are_no_part_of_a_distance(tmp_path: Path) -> None:
    task = classifier(batchnorm=True)
    one, other = drawn(1, task), drawn(1, task)
    other["1.running_mean"] += 100
    made = Made(tmp_path, task, [(0, 0, "theta", one), (0, 0, "theta", other)])
    (row,) = named("diversity").tables(made.context())["distances"]
    assert row["distance"] == 0


def test_arms_lie_in_one_map_and_what_they_share_in_one_place(diverse: Diverse) -> None:
    made, _, tables = diverse
    rows = tables["embedding"]
    small, large = ([r for r in rows if r["arm"] == a.name] for a in made.comparison.arms)
    assert (len(small), len(large)) == (6, 12)
    place = {(r["chain"], r["index"]): (r["x"], r["y"]) for r in large}
    assert all((r["x"], r["y"]) == place[r["chain"], r["index"]] for r in small)


def test_disagreement_is_that_of_the_predictions(
    diverse: Diverse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, tables = diverse
    made, _ = two_modes(tmp_path)
    found = [r for r in tables["disagreement"] if r["arm"] == diverse[0].comparison.arms[1].name]
    model = made.task.build_model(seed=0, lanes=1)
    tensors = sorted(zip(made.select(0, 0).records, made.select(0, 0).stored(), strict=True), key=_by_chain)
    p = [np.exp(log_probabilities(model, t, data(1)[0]).astype(float)) for _, t in tensors]
    for row, (i, j) in zip(found, itertools.combinations(range(12), 2), strict=True):
        assert (row["i"], row["j"]) == (i, j)
        assert row["disagreement"] == pytest.approx(np.mean(p[i].argmax(1) != p[j].argmax(1)))
        assert row["total_variation"] == pytest.approx(np.abs(p[i] - p[j]).sum(1).mean() / 2, rel=1e-5)
    assert max(r["disagreement"] for r in found) > 0.2 and found[0]["examples_of_variation"] == 60
    monkeypatch.setattr(diversity, "MOST_NUMBERS", 60 * 3 * 12 // 2)
    few = named("diversity").tables(made.context())["disagreement"]
    assert few[0]["examples_of_variation"] == 30 and few[0]["disagreement"] == found[0]["disagreement"]
    assert few[5]["total_variation"] == pytest.approx(np.abs(p[0] - p[6])[::2].sum(1).mean() / 2, rel=1e-5)


def _by_chain(pair: tuple[object, ...]) -> tuple[int, int]:
    (spec, record), _ = pair  # type: ignore[misc]
    return spec.chain, record.meta.index


def test_many_samples_are_thinned_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = two_modes(tmp_path)
    monkeypatch.setattr(diversity, "MOST_SAMPLES", 4)
    found = named("diversity").tables(made.context())
    assert len(found["embedding"]) == 4 and len(found["distances"]) == len(found["disagreement"]) == 6
    assert [(r["chain"], r["index"]) for r in found["embedding"]] == [(0, 0), (0, 4), (1, 1), (1, 5)]
    assert "4 of 12 samples" in caplog.text


def test_a_regression_has_distances_but_no_disagreement(tmp_path: Path) -> None:
    task = regression()
    made = Made(tmp_path, task, [(0, 0, "theta", drawn(s, task)) for s in range(3)])
    assert set(named("diversity").tables(made.context())) == {"distances", "embedding", "clusters"}


def test_arms_of_different_networks_have_maps_of_their_own(tmp_path: Path) -> None:
    """As arms have whose tasks differ, with and without a normalisation layer say."""
    small, large = classifier(), classifier(batchnorm=True)
    made = Made(tmp_path, small, [(0, 0, "theta", drawn(s, small)) for s in (1, 2, 3)])
    other = Made(tmp_path, large, [(0, 0, "theta", drawn(s, large)) for s in (4, 5)])
    arm = dataclasses.replace(other.comparison.arms[0], name="large")
    both = dataclasses.replace(made.comparison, arms=(*made.comparison.arms, arm))
    context = dataclasses.replace(
        made.context(),
        comparison=both,
        groups=[(0, 0), (1, 0)],
        select=lambda a, g: (made, other)[a].select(0, g),
        predictions=lambda a, g: (made, other)[a].predictions(0, g),
    )
    found = named("diversity").tables(context)
    assert [(r["arm"], r["map"]) for r in found["embedding"]] == [("first-1", 0)] * 3 + [("large", 1)] * 2
    x = [vector({n: t for n, t in s.items() if "num_batches" not in n}) for s in (drawn(4, large), drawn(5, large))]
    (row,) = [r for r in found["distances"] if r["arm"] == "large"]
    assert row["distance"] == pytest.approx(np.linalg.norm(x[0] - x[1]), rel=1e-6)
    assert [set(r) for r in found["clusters"]] == [set(found["clusters"][0])] * 2
    ends = [(0.5, s) for s in drawn_samples(context, 1, 0)]
    assert maker(context)(*ends).reestimate and not maker(context)((1.0, drawn_samples(context, 0, 0)[0])).reestimate


# Distances


@pytest.mark.parametrize("hold", [1, 3, 4, 7, 50])
def test_distances_and_cosines_equal_scipys_and_hold_few_vectors(hold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_samples, "CHUNK", 13)
    x = np.random.default_rng(0).normal(size=(7, 40)).astype(np.float32) + 1
    reads: Counter[int] = Counter()

    def read(i: int) -> np.ndarray:
        reads[i] += 1
        return x[i]

    found = pairwise(read, 7, hold=hold)
    assert found.distance == pytest.approx(cdist(x.astype(float), x.astype(float)), abs=1e-12)
    assert found.cosine == pytest.approx(1 - cdist(x.astype(float), x.astype(float), "cosine"), abs=1e-12)
    assert (np.diagonal(found.distance) == 0).all() and (np.diagonal(found.cosine) == 1).all()
    assert dict(reads) == {i: 1 + i // hold for i in range(7)}, "a vector is read once for each earlier block"


def test_at_most_one_vector_more_than_asked_is_alive() -> None:
    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    def read(i: int) -> np.ndarray:
        nonlocal most
        vector = np.full(5, float(i))
        alive.append(weakref.ref(vector))
        most = max(most, sum(r() is not None for r in alive))
        return vector

    pairwise(read, 9, hold=3)
    assert most == 3 + 1 and len(alive) == 9 + 6 + 3


def test_close_vectors_keep_their_digits() -> None:
    x = np.full(1000, 1e4, dtype=np.float32)
    y = x.copy()
    y[0] += np.float32(2**-9)
    assert pairwise([x, y].__getitem__, 2).distance[0, 1] == 2**-9


def test_a_zero_vector_has_no_angle() -> None:
    found = pairwise([np.zeros(3), np.array([1.0, 0, 0]), np.array([-2.0, 0, 0])].__getitem__, 3)
    assert np.isnan(found.cosine[0]).all() and found.cosine[1, 2] == -1


# The map


def test_planar_points_are_recovered() -> None:
    points = np.random.default_rng(0).normal(size=(12, 2)) * [30, 10]
    found, stress = diversity.mds(cdist(points, points))
    assert stress < 1e-4 and cdist(found, found) == pytest.approx(cdist(points, points), abs=0.01)
    assert procrustes(points, found)[2] < 1e-6
    assert found.mean(0) == pytest.approx([0, 0], abs=1e-9) and found[:, 0].std() > found[:, 1].std()
    again, _ = diversity.mds(cdist(points, points))
    assert (again == found).all()
    assert (found[np.abs(found).argmax(0), [0, 1]] > 0).all(), "the sign of each axis"
    turned = points @ [[0.6, -0.8], [0.8, 0.6]] + 7
    assert diversity.mds(cdist(turned, turned))[0] == pytest.approx(found, abs=0.05), "the same picture"


def classical(x: np.ndarray) -> np.ndarray:
    """Classical scaling of points: their principal components."""
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    return np.asarray((u * s)[:, :2])


def test_what_does_not_fit_into_the_plane_is_told_by_the_stress_and_placed_no_worse_than_classically() -> None:
    x = np.random.default_rng(0).normal(size=(10, 50))
    d = squareform(pdist(x))
    found, stress = diversity.mds(d)
    own = pdist(found)
    assert stress == pytest.approx(np.sqrt(((own - pdist(x)) ** 2).sum() / (pdist(x) ** 2).sum()), rel=1e-9)
    assert 0.1 < stress <= np.sqrt(((pdist(classical(x)) - pdist(x)) ** 2).sum() / (pdist(x) ** 2).sum())


def test_samples_that_coincide_lie_in_one_point() -> None:
    points, stress = diversity.mds(np.zeros((4, 4)))
    assert not points.any() and stress == 0
    pair, stress = diversity.mds(np.array([[0.0, 3.0], [3.0, 0.0]]))
    assert np.abs(pair) == pytest.approx(np.array([[1.5, 0], [1.5, 0]]), abs=1e-6) and stress < 1e-6


# Clusters


def cycles(count: int, each: int, apart: float, dim: int = 400) -> np.ndarray:
    """Distances between samples of modes that lie ``apart`` standard deviations per coordinate from each other."""
    rng = np.random.default_rng(0)
    centres = apart * rng.normal(size=(count, dim))
    return squareform(pdist(np.repeat(centres, each, axis=0) + rng.normal(size=(count * each, dim))))


def test_four_modes_of_three_samples_are_four_clusters_and_one_mode_is_one() -> None:
    """The picture of Fig. 3a: 12 samples of 4 cycles, and 12 of one mode."""
    four = diversity.clusters(cycles(4, 3, 4.0))
    assert four.count == 4 and four.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert sorted(four.silhouettes) == [2, 3, 4, 5, 6] and max(four.silhouettes.values()) == four.silhouettes[4]
    one = diversity.clusters(cycles(1, 12, 0.0))
    assert one.count == 1 and one.labels.tolist() == [0] * 12 and max(one.silhouettes.values()) < 0.1


def test_silhouettes_are_scikit_learns_and_must_be_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    d = cycles(3, 4, 1.0)
    monkeypatch.setattr(diversity, "CLEAR", 0.0)
    found = diversity.clusters(d)
    assert found.count == 3
    each = silhouette_samples(d, np.repeat([0, 1, 2], 4), metric="precomputed")
    assert found.silhouettes[3] == pytest.approx(each.mean(), rel=1e-12)
    monkeypatch.setattr(diversity, "CLEAR", found.silhouettes[3])
    assert diversity.clusters(d).count == 1, "it must be exceeded"


def test_few_samples_have_few_numbers_of_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diversity, "CLEAR", 0.4)
    d = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    assert diversity.clusters(d).labels.tolist() == [0, 0, 1]
    assert diversity.clusters(d[:2, :2]).count == 1 and diversity.clusters(d[:2, :2]).silhouettes == {}
    assert diversity.clusters(np.zeros((5, 5))).count == 1


# Functions

P, _ = softmax_samples(0, samples=5, n=200)


def test_predictions_that_are_none_are_one_line() -> None:
    with refused("probabilities", "finite", "nan"):
        diversity.total_variations(np.where(P > 0.5, np.nan, P))
