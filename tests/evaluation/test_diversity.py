"""Diversity in weight space against scipy, planar points, clusters made by hand, and networks on a line."""

from __future__ import annotations

import weakref
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics import silhouette_samples
from torch import nn

from raychains.evaluation import diversity
from raychains.evaluation.vectors import flat
from raychains.models.batchnorm import reestimate
from tests.checks import refused

# Distances


@pytest.mark.parametrize("hold", [1, 3, 4, 7, 50])
def test_distances_and_cosines_equal_scipys_and_hold_few_vectors(hold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diversity, "CHUNK", 13)
    x = np.random.default_rng(0).normal(size=(7, 40)).astype(np.float32) + 1
    reads: Counter[int] = Counter()

    def read(i: int) -> np.ndarray:
        reads[i] += 1
        return x[i]

    found = diversity.pairwise(read, 7, hold=hold)
    assert found.distance == pytest.approx(cdist(x.astype(float), x.astype(float)), abs=1e-12)
    assert found.cosine == pytest.approx(1 - cdist(x.astype(float), x.astype(float), "cosine"), abs=1e-12)
    assert found.norm == pytest.approx(np.linalg.norm(x.astype(float), axis=1), rel=1e-12)
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

    diversity.pairwise(read, 9, hold=3)
    assert most == 3 + 1 and len(alive) == 9 + 6 + 3


def test_close_vectors_keep_their_digits() -> None:
    x = np.full(1000, 1e4, dtype=np.float32)
    y = x.copy()
    y[0] += np.float32(2**-9)
    assert diversity.pairwise([x, y].__getitem__, 2).distance[0, 1] == 2**-9


def test_a_zero_vector_has_no_angle() -> None:
    found = diversity.pairwise([np.zeros(3), np.array([1.0, 0, 0]), np.array([-2.0, 0, 0])].__getitem__, 3)
    assert np.isnan(found.cosine[0]).all() and found.cosine[1, 2] == -1
    with refused("vectors", "shape"):
        diversity.pairwise([np.zeros(3), np.zeros(4)].__getitem__, 2)
    with refused("hold", "1"):
        diversity.pairwise([np.zeros(3)].__getitem__, 1, hold=0)


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


def test_what_does_not_fit_into_the_plane_is_told_by_the_stress_and_placed_no_worse_than_classically() -> None:
    x = np.random.default_rng(0).normal(size=(10, 50))
    d = squareform(pdist(x))
    found, stress = diversity.mds(d)
    own = pdist(found)
    assert stress == pytest.approx(np.sqrt(((own - pdist(x)) ** 2).sum() / (pdist(x) ** 2).sum()), rel=1e-9)
    assert 0.1 < stress <= diversity.stress(diversity.classical(d, 2), d)


def test_classical_scaling_is_the_principal_components() -> None:
    x = np.random.default_rng(0).normal(size=(8, 5))
    z = x - x.mean(0)
    u, s, _ = np.linalg.svd(z, full_matrices=False)
    assert np.abs(diversity.classical(cdist(x, x), 2)) == pytest.approx(np.abs(u * s)[:, :2], abs=1e-9)
    assert diversity.classical(np.array([[0.0, 2.0], [2.0, 0.0]]), 3).shape == (2, 3)


def test_samples_that_coincide_lie_in_one_point() -> None:
    points, stress = diversity.mds(np.zeros((4, 4)))
    assert not points.any() and stress == 0
    pair, stress = diversity.mds([[0.0, 3.0], [3.0, 0.0]])
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


def test_silhouettes_equal_their_definition() -> None:
    d = cycles(3, 4, 1.0)
    found = diversity.clusters(d, clear=0.0)
    assert found.count == 3
    label = np.repeat([0, 1, 2], 4)
    values = []
    for i in range(12):
        own = d[i, (label == label[i]) & (np.arange(12) != i)].mean()
        other = min(d[i, label == k].mean() for k in range(3) if k != label[i])
        values.append((other - own) / max(own, other))
    assert found.silhouettes[3] == pytest.approx(np.mean(values), rel=1e-12)
    assert silhouette_samples(d, label, metric="precomputed") == pytest.approx(values, rel=1e-12)
    assert diversity.clusters(d, clear=found.silhouettes[3]).count == 1, "it must be exceeded"


def test_few_samples_have_few_numbers_of_clusters() -> None:
    d = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    assert diversity.clusters(d, clear=0.4).labels.tolist() == [0, 0, 1]
    assert diversity.clusters(d[:2, :2]).count == 1 and diversity.clusters(d[:2, :2]).silhouettes == {}
    assert diversity.clusters(np.zeros((5, 5))).count == 1
    with refused("distance", "shape"):
        diversity.clusters(np.zeros((2, 3)))
    with refused("distance", "symmetric"):
        diversity.mds([[0.0, 1.0], [2.0, 0.0]])


# The line between two samples


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    for _ in range(seed + 2):
        model(torch.randn(20, 3))
    return model.eval()


def test_points_on_the_line_mix_parameters_and_end_in_the_samples() -> None:
    a, b = (network(seed).state_dict() for seed in (0, 1))
    for end, share in ((a, 0), (b, 1), (a, 0.0), (b, 1.0)):
        got = diversity.between(a, b, share)
        assert list(got) == list(a) and all(torch.equal(got[n], end[n]) and got[n].dtype == end[n].dtype for n in a)
    middle = diversity.between(a, b, 0.25)
    floating = [n for n in a if a[n].is_floating_point()]
    assert flat(middle, floating) == pytest.approx(0.75 * flat(a, floating) + 0.25 * flat(b, floating), rel=1e-6)
    assert middle["1.num_batches_tracked"] == a["1.num_batches_tracked"] != b["1.num_batches_tracked"]
    network(2).load_state_dict(middle)
    ends = diversity.pairwise([flat(v, floating) for v in (a, middle, b)].__getitem__, 3).distance
    assert ends[0, 1] == pytest.approx(0.25 * ends[0, 2], rel=1e-5) and ends[1, 2] == pytest.approx(0.75 * ends[0, 2])


def test_what_is_not_named_stays_the_first_sample_s() -> None:
    a, b = (network(seed).state_dict() for seed in (0, 1))
    parameters = [n for n, _ in network(0).named_parameters()]
    got = diversity.between(a, b, 0.5, parameters=parameters)
    assert torch.equal(got["1.running_mean"], a["1.running_mean"])
    assert torch.equal(got["0.weight"], ((a["0.weight"].double() + b["0.weight"].double()) / 2).float())


def test_statistics_estimated_anew_are_the_point_s_own_and_not_those_on_the_line() -> None:
    """Why BatchNorm's buffers need more than a mixture: the variance of a mixture is not the mixture of variances."""
    a, b = (network(seed).state_dict() for seed in (0, 1))
    model, x = network(2), torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    point = diversity.between(a, b, 0.5)
    model.load_state_dict(point)
    reestimate(model, [x])
    hidden = x @ point["0.weight"].T + point["0.bias"]
    assert model.state_dict()["1.running_var"].numpy() == pytest.approx(hidden.var(0).detach().numpy(), rel=1e-5)
    mixed = (hidden.var(0) / point["1.running_var"]).detach().numpy()
    assert np.abs(np.log(mixed)).max() > 0.3


def test_half_precision_samples_mix_as_doubles_do() -> None:
    a, b = {"w": torch.tensor([1.0, 3.0]).bfloat16()}, {"w": torch.tensor([2.0, -3.0]).bfloat16()}
    assert diversity.between(a, b, 0.3)["w"].tolist() == torch.tensor([1.3, 1.2]).bfloat16().tolist()


def test_samples_of_different_networks_have_no_line() -> None:
    a = network(0).state_dict()
    with refused("samples", "network"):
        diversity.between(a, {"w": torch.zeros(3)}, 0.5)
    with refused("samples", "network"):
        diversity.between({"w": torch.zeros(2)}, {"w": torch.zeros(3)}, 0.5)
    with refused("share", "nan"):
        diversity.between(a, a, float("nan"))
