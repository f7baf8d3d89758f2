"""Tables of diversity against scipy, two modes made by hand, and predictions compared one by one."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from raychains.analyses import diversity, named
from raychains.analyses.drawn import drawn as drawn_samples
from raychains.analyses.drawn import maker
from raychains.evaluation.classification import log_probabilities
from tests.analyses.made import Made, classifier, data, drawn, regression


def vector(tensors: dict[str, torch.Tensor]) -> np.ndarray:
    return np.concatenate([tensors[n].double().reshape(-1).numpy() for n in sorted(tensors) if "running" not in n])


def two_modes(folder: Path, arms: tuple[int, ...] = ()) -> tuple[Made, np.ndarray]:
    """Two chains of two cycles of three samples; each cycle of the first chain is a mode, the second has one mode."""
    task = classifier()
    g = torch.Generator().manual_seed(0)
    centres = {(0, 0): 0.0, (0, 1): 5.0, (1, 0): -5.0, (1, 1): -5.0}
    samples = [
        (
            chain,
            cycle,
            "theta",
            {n: centre + 0.3 * torch.randn(t.shape, generator=g) for n, t in drawn(0, task).items()},
        )
        for (chain, cycle), centre in centres.items()
        for _ in range(3)
    ]
    made = Made(folder, task, samples, arms)
    return made, np.stack([vector(t) for *_, t in samples])


def test_distances_equal_scipys_and_modes_are_counted(tmp_path: Path) -> None:
    made, x = two_modes(tmp_path)
    found = named("diversity").tables(made.context())
    assert diversity.matrix(found["distances"], "distance") == pytest.approx(cdist(x, x), abs=1e-5)
    cosine = diversity.matrix(found["distances"], "cosine", 1.0)
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


def test_arms_lie_in_one_map_and_what_they_share_in_one_place(tmp_path: Path) -> None:
    made, _ = two_modes(tmp_path, arms=(1, 2))
    rows = named("diversity").tables(made.context())["embedding"]
    small, large = ([r for r in rows if r["arm"] == a.name] for a in made.comparison.arms)
    assert (len(small), len(large)) == (6, 12)
    place = {(r["chain"], r["index"]): (r["x"], r["y"]) for r in large}
    assert all((r["x"], r["y"]) == place[r["chain"], r["index"]] for r in small)


def test_disagreement_is_that_of_the_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = two_modes(tmp_path)
    found = named("diversity").tables(made.context())["disagreement"]
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
