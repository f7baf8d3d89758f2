"""Fidelity to a reference: closed forms, means by hand, intervals against scipy, and wrong references in one line."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.spatial import distance as distances
from scipy.special import softmax

import raychains as rc
from raychains import measures, tasks
from raychains.core.config import Run
from raychains.data import probabilities
from raychains.evaluation import bootstrap
from raychains.inference import hmc_reference
from raychains.inference.run_data import RunData
from raychains.measures import Context, agreement, fidelity
from raychains.measures.predictive_distance import OfDensities
from raychains.planning import methods
from raychains.plotting.style import laid_out
from raychains.report.figures import FIGURES
from raychains.store import Storage
from raychains.tasks import Task
from raychains.tasks.likelihoods import GaussianNoise
from tests.checks import refused
from tests.measures import predicted
from tests.measures.predicted import CLASSES, Predicted
from tests.pool import pooled, unpaged
from tests.tasks import made_images

N = 90
SPLITS = {"test": lambda: predicted.labelled(0, N, noise=0.7)}
Array = np.ndarray
Tables = Mapping[str, Sequence[Mapping[str, Any]]]


def context_of(run: Predicted, reference: Any, weights: Any = None, **settings: Any) -> Context:
    """Samples in the order of views: the first draws of all chains first."""

    def select(arm: int, group: int) -> Any:
        specs = run.comparison.arms[arm].chains[group]
        count = len(run.samples[arm, group])
        return SimpleNamespace(records=[(specs[i % len(specs)], None) for i in range(count)], weights=weights)

    return dataclasses.replace(run.context(reference=reference, **settings), select=select)


def tables(run: Predicted, reference: Any, **settings: Any) -> Tables:
    context = context_of(run, reference, **settings)
    assert measures.named("fidelity").why_not(context) is None
    return measures.named("fidelity").tables(context)


@pytest.fixture
def run(tmp_path: Path) -> Predicted:
    return Predicted(tmp_path, SPLITS)


def a_reference(seed: int = 0) -> Array:
    return np.random.default_rng(seed).dirichlet(np.full(CLASSES, 0.5), size=N)


def test_the_predictive_itself_agrees_wholly_and_has_no_distance(run: Predicted) -> None:
    own = run.probabilities("test", 0, 0).mean(0)
    rows = [r for r in tables(run, own)["fidelity"] if r["group"] == 0 and r["arm"] == run.comparison.arms[0].name]
    assert [r["samples"] for r in rows] == [1, 2, 3]
    last = rows[-1]
    assert last["agreement"] == last["agreement_low"] == last["agreement_high"] == 1
    assert last["total_variation"] == pytest.approx(0, abs=1e-7) and rows[0]["total_variation"] > 1e-3


def test_chains_count_by_their_shares(run: Predicted) -> None:
    samples = run.probabilities("test", 0, 0)
    weights = np.array([0.6, 0.3, 0.1])
    rows = tables(run, np.einsum("s,snc->nc", weights, samples), weights=weights.tolist())["fidelity"]
    last = [r for r in rows if r["group"] == 0 and r["arm"] == run.comparison.arms[0].name][-1]
    assert last["agreement"] == 1 and last["total_variation"] == pytest.approx(0, abs=1e-7)
    other = dataclasses.replace(context_of(run, None, weights=weights.tolist()), settings={})
    found = agreement._mean(other, 0, 0)
    np.testing.assert_allclose(found, np.einsum("s,snc->nc", weights, samples), atol=1e-6)


def densities(seed: int, draws: int = 7, examples: int = 3) -> Array:
    """Blocks of a regression, [draws, examples, 2]: μ and σ."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.standard_normal((draws, examples)), 0.3 + rng.random((draws, examples))], axis=2)


def test_distances_of_densities_are_those_of_a_quadrature_and_of_moments() -> None:
    own, other = densities(0), densities(1, draws=5)
    distance = OfDensities(other)
    found = distance.points(distance.average(own))
    y = np.linspace(-12, 12, 24_001)

    def density(blocks: Array, example: int) -> Array:
        return np.asarray(np.mean([stats.norm.pdf(y, *block[example]) for block in blocks], axis=0))

    for example, (variation, w2, ratio) in enumerate(found):
        apart = 0.5 * np.abs(density(own, example) - density(other, example)).sum() * (y[1] - y[0])
        assert apart - 0.005 < variation <= apart + 1e-6  # bins of a tenth of the reference's sd
        (m, s), (m_other, s_other) = [
            (b[:, example, 0].mean(), np.sqrt((b[:, example, 1] ** 2).mean() + b[:, example, 0].var()))
            for b in (own, other)
        ]
        assert w2 == pytest.approx(np.hypot(m - m_other, s - s_other) / s_other)
        assert ratio == pytest.approx(own[:, example, 0].std() / other[:, example, 0].std())
    np.testing.assert_allclose(distance.points(distance.average(other)), [[0, 0, 1]] * 3, atol=1e-7)
    np.testing.assert_allclose(distance.points(distance.average(own[:1]))[:, 2], 0, atol=1e-6)


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_hmc_is_the_reference_of_a_regression_whose_posterior_is_normal(tmp_path: Path) -> None:
    """y = w·x + b + noise of known σ: the predictive mean and sd of the posterior in closed form, and one network's
    distance to it."""
    rng, sigma, decay, n = np.random.default_rng(0), 0.5, 0.1, 30
    x = rng.standard_normal((n, 1)).astype(np.float32)
    y = (x[:, 0] + sigma * rng.standard_normal(n)).astype(np.float32)
    task = rc.Task.from_module(
        lambda: torch.nn.Linear(1, 1), (x, y), (x[:10], y[:10]), GaussianNoise(sigma), name="line"
    )
    given = {"chains": 2, "epochs": 40, "lr": 0.01, "weight_decay": decay, "store": str(tmp_path), "progress": False}
    with pooled(), unpaged():
        run = rc.run(task=task, sampler="sgld", concurrent=1, evaluators=1, **given)
        result = rc.evaluate(run.path, measures=["fidelity"], reference="hmc", task=task, progress=False)
    rows = result.store.table("fidelity").to_pandas()
    last = rows.iloc[-1]
    z = np.column_stack([x, np.ones(n)]).astype(np.float64)
    covariance = np.linalg.inv(z.T @ z / sigma**2 + n * decay * np.eye(2))
    mean, spread = (
        z[:10] @ covariance @ z.T @ y / sigma**2,
        np.sqrt(np.einsum("ij,jk,ik->i", z[:10], covariance, z[:10])),
    )
    stored = run._select(None, 0, None).stored()
    mu = np.stack([x[:10] @ one["weight"].numpy()[0] + one["bias"].numpy() for one in stored]).astype(np.float64)
    assert last["samples"] == len(mu) > 2
    total = np.sqrt(spread**2 + sigma**2)
    w2 = np.hypot(mu.mean(0) - mean, np.sqrt(mu.var(0) + sigma**2) - total) / total
    about = result.store.table("fidelity_reference").to_pandas().iloc[0]
    error = 4 / np.sqrt(about["ess"])  # of the reference's moments, in its standard deviations
    assert last["w2"] == pytest.approx(w2.mean(), abs=error)
    assert last["sd_ratio"] == pytest.approx((mu.std(0) / spread).mean(), rel=error)
    assert about["r_hat"] < 1.01 and 0 < about["total_variation"] < 0.01
    assert np.isnan(last["agreement"])
    drawing = FIGURES["fidelity"](RunData(result.store, result.comparison))
    assert drawing is not None and "Dashed" in drawing.caption
    assert (
        about["reference"] == "hmc"
        and f"R-hat {about['r_hat']:.3f}, effective sample size {about['ess']:,.0f}; " in drawing.caption
    )
    assert (
        f"between its halves: total variation {100 * about['total_variation']:.3g} %, W₂ {about['w2']:.3g}, "
        in drawing.caption
    )
    ends = f"{last['sd_ratio_low']:.3g} to {last['sd_ratio_high']:.3g}"
    assert f"spread of functions {last['sd_ratio']:.3g} ({ends})." in drawing.caption and "nan" not in drawing.caption
    assert "agreement" not in drawing.caption
    with laid_out(drawing) as figure:
        dashed = {
            axis.get_xlabel(): line.get_xdata()[0]
            for axis in figure.axes
            for line in axis.lines
            if line.get_linestyle() == "--"
        }
    assert dashed["Total variation (%)"] == pytest.approx(100 * about["total_variation"])
    assert dashed[fidelity.LABELS["sd_ratio"][0]] == 1
    with refused("reference must be hmc, or left out", "no classification"):
        rc.evaluate(run.path, measures=["fidelity"], reference=np.ones((10, 1)), task=task, progress=False)


def test_rows_are_means_over_libraries_distances(run: Predicted) -> None:
    reference = a_reference()
    found = tables(run, reference)
    for (a, g), samples in run.samples.items():
        own, name = run.probabilities("test", a, g), run.comparison.arms[a].name
        chains = len(run.comparison.arms[a].chains[g])
        mine = {
            t: [r for r in rows if (r["arm"], r["group"]) == (name, g)]
            for t, rows in found.items()
            if t != "fidelity_reference"
        }
        for n, row in enumerate(mine["fidelity"], 1):
            p = own[:n].mean(0)
            each = np.array([distances.cityblock(x, y) / 2 for x, y in zip(p, reference, strict=True)])
            assert (row["samples"], row["chains"]) == (n, min(n, chains))
            assert row["total_variation"] == pytest.approx(each.mean(), abs=1e-7)
            same = p.argmax(1) == reference.argmax(1)
            assert row["agreement"] == pytest.approx(same.mean())
        assert len(mine["fidelity"]) == len(samples)
        for k, row in enumerate(mine["fidelity_chains"], 1):
            p = own[[i for i in range(len(samples)) if i % chains < k]].mean(0)
            assert row["chains"] == k and row["agreement"] == pytest.approx((p.argmax(1) == reference.argmax(1)).mean())
        last = mine["fidelity"][-1]
        assert mine["fidelity_chains"][-1]["total_variation"] == pytest.approx(last["total_variation"])
        for table in ("fidelity_classes", "fidelity_bins"):  # their weighted means are the whole's
            counts = [r["count"] for r in mine[table]]
            assert sum(counts) == N
            for metric in ("agreement", "total_variation"):
                assert np.average([r[metric] for r in mine[table]], weights=counts) == pytest.approx(last[metric])
        labels = SPLITS["test"]()._labels  # type: ignore[attr-defined]
        assert {r["class"]: r["count"] for r in mine["fidelity_classes"]} == {
            c: int((labels == c).sum()) for c in set(labels.tolist())
        }
        confidence = reference.max(1)
        for r in mine["fidelity_bins"]:
            inside = (confidence >= r["lower"]) & ((confidence < r["upper"]) | (r["bin"] == r["bins"] - 1))
            assert inside.sum() == r["count"] and same[inside].mean() == pytest.approx(r["agreement"])


def test_intervals_are_the_bootstraps_of_the_mean() -> None:
    """The percentile interval of a mean approaches mean ± 1.96 s/√n; 1,000 resamples give its ends to about 5 %."""
    columns = np.random.default_rng(0).standard_normal((400, 2)) * [1.0, 3.0]
    low, high = bootstrap.of_means(columns)
    half = stats.norm.ppf(0.975) * columns.std(axis=0) / np.sqrt(len(columns))
    np.testing.assert_allclose((high - low) / 2, half, rtol=0.1)
    np.testing.assert_allclose((high + low) / 2, columns.mean(0), atol=0.2 * half.max())
    assert all(np.isnan(end).all() for end in bootstrap.of_means(columns[:1]))


def test_a_predictive_that_is_not_finite_has_no_distance_and_costs_the_others_none(
    run: Predicted, caplog: pytest.LogCaptureFixture
) -> None:
    whole = tables(run, a_reference())
    for tensor in run.samples[1, 0][2].values():
        tensor.fill_(math.nan)
    found = tables(run, a_reference())
    for name in ("fidelity", "fidelity_chains", "fidelity_classes", "fidelity_bins"):
        ours, before = (pd.DataFrame(t[name]) for t in (found, whole))
        hurt = (ours["arm"] == run.comparison.arms[1].name) & (ours["group"] == 0)
        pd.testing.assert_frame_equal(ours[~hurt], before[~hurt])
        with_it = hurt & (ours["samples"] == 3 if "samples" in ours else True)
        numbers = ours[with_it].filter(regex="agreement|total_variation")
        assert len(numbers) and numbers.isna().all(axis=None), name
    assert run.comparison.arms[1].name in caplog.text and "diverged" in caplog.text
    nothing = [
        {**r, **{name: math.nan for name in r if name.startswith(("agreement", "total_"))}} for r in found["fidelity"]
    ]
    run.write({"fidelity": nothing})
    data = RunData(run.store, run.comparison)
    assert FIGURES["fidelity"](data) is None and FIGURES["fidelity_samples"](data) is None


def test_chunks_of_the_split_and_the_order_of_samples_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = a_reference(1)
    whole, turned = Predicted(tmp_path / "whole", SPLITS), Predicted(tmp_path / "turned", SPLITS)
    for samples in turned.samples.values():
        samples.reverse()
    first, second = tables(whole, reference), tables(turned, reference)
    for metric in ("agreement", "total_variation"):
        ends = [[r[metric] for r in t["fidelity"] if r["samples"] == 3] for t in (first, second)]
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)
    monkeypatch.setattr(fidelity, "MOST", 2)  # of many samples some numbers are followed, the last among them
    few = tables(whole, reference)["fidelity"]
    assert [r["samples"] for r in few[:2]] == [1, 3]
    assert next(r for r in first["fidelity"] if r["samples"] == 3)["agreement"] == few[1]["agreement"]


def test_figures_show_all_samples_and_their_growth(run: Predicted) -> None:
    run.write(tables(run, a_reference()))
    data = RunData(run.store, run.comparison)
    whole, growth = FIGURES["fidelity"](data), FIGURES["fidelity_samples"](data)
    assert whole is not None and growth is not None
    assert len(whole.data) == 4 and {r["samples"] for r in whole.data} == {3} and len(growth.data) == 12
    with laid_out(whole) as figure:
        assert [axis.get_xlabel() for axis in figure.axes] == ["Same top class (%)", "Total variation (%)"]
    with laid_out(growth) as figure:
        assert {axis.get_xlabel() for axis in figure.axes} == {"Samples"}


def test_the_caption_has_the_references_name_and_the_numbers_of_all_samples(run: Predicted, tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", a_reference())
    found = tables(run, str(tmp_path / "mine.npy"))
    run.write(found)
    whole = FIGURES["fidelity"](RunData(run.store, run.comparison))
    assert whole is not None and " The reference: mine.npy. Means over repeats" in whole.caption
    *said, reference = fidelity.in_words(RunData(run.store, run.comparison))
    assert reference == "The reference: mine.npy." and len(said) == len(run.comparison.arms)
    for arm in run.comparison.arms:
        last = [r for r in found["fidelity"] if r["arm"] == arm.name and r["samples"] == 3]
        words = []
        for metric, name in (("agreement", "agreement"), ("total_variation", "total variation")):
            mean = np.mean([r[metric] for r in last])
            low, high = min(r[f"{metric}_low"] for r in last), max(r[f"{metric}_high"] for r in last)
            words.append(f"{name} {100 * mean:.3g} % ({100 * low:.3g} to {100 * high:.3g})")
        assert f"{arm.label}: {', '.join(words)}" in whole.caption
        assert f"fidelity of {arm.label}: {', '.join(words)}" in said
    run.write({"fidelity_reference": []})  # as earlier versions stored it
    older = FIGURES["fidelity"](RunData(run.store, run.comparison))
    assert older is not None and "The reference:" not in older.caption
    run.write({"fidelity_reference": tables(run, a_reference())["fidelity_reference"]})
    of_array = FIGURES["fidelity"](RunData(run.store, run.comparison))
    assert of_array is not None and "The reference: an array." in of_array.caption


def test_hmc_is_refused_where_there_is_no_one_posterior_of_a_small_network() -> None:
    def asked(task: Any, *chains: Any) -> str:
        arms = [SimpleNamespace(chains=[[chain]]) for chain in chains]
        comparison, groups = SimpleNamespace(task="mine", arms=arms), [(arm, 0) for arm in range(len(arms))]
        context = SimpleNamespace(
            task=task, split="test", comparison=comparison, groups=groups, settings={"reference": "hmc"}
        )
        return str(fidelity.why_not(context))  # type: ignore[arg-type]

    def chain(**given: Any) -> Any:
        options = Run(task="digits", **given)
        return methods.resolve(options, task=digits, sampler="sgld").spec

    digits = tasks.make("digits")
    assert asked(digits, chain(), chain()) == "None"
    several = asked(digits, chain(), chain(weight_decay=0.5))
    assert "several priors" in several and "0.001, 0.5" in several
    assert "augmented" in asked(tasks.make("digits", augment=True), chain())
    x = torch.zeros(8, 2)
    pair = Task.from_module(lambda: torch.nn.Linear(2, 2), (x, x), (x, x), GaussianNoise(1.0), name="pair")
    assert "several targets" in asked(pair, chain())
    square = Task.from_module(
        lambda: torch.nn.Linear(2, 2), (x, x), (x, x), lambda f, y: ((f - y) ** 2).mean(), name="s"
    )
    assert "neither classes nor a Gaussian" in asked(square, chain())
    assert "is a density" in asked(tasks.make("mixture25"), chain())


def test_hmcs_reference_of_a_classifier_is_the_mean_of_its_draws_probabilities(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 2)).astype(np.float32)
    labels = (x[:, 0] + 0.5 * rng.standard_normal(30) > 0).astype(np.int64)
    task = Task.from_module(lambda: torch.nn.Linear(2, 2), (x, labels), (x[:20], labels[:20]), name="two classes")
    spec = methods.resolve(Run(task="digits", weight_decay=0.05), task=tasks.make("digits"), sampler="sgld").spec
    context: Any = SimpleNamespace(
        task=task, split="test", store=SimpleNamespace(root=Storage(str(tmp_path))), groups=[(0, 0)],
        comparison=SimpleNamespace(task="mine", arms=[SimpleNamespace(chains=[[spec]])]),
        settings={"reference": "hmc"}, progress=lambda what, done, total: None,
    )  # fmt: skip
    distance, (about,) = fidelity._distance(context)
    draws = hmc_reference.reference(context.store.root, task, 0.05, "test").draws.reshape(-1, 6).astype(np.float64)
    logits = x[:20] @ draws[:, :4].reshape(-1, 2, 2).swapaxes(1, 2) + draws[:, None, 4:]
    np.testing.assert_allclose(distance.reference, softmax(logits, axis=2).mean(0), atol=1e-5)
    assert about["chains"] == 8 and about["agreement"] > 0.9 and about["total_variation"] < 0.05
    assert np.isnan(about["w2"])


# References


def test_every_format_is_read(tmp_path: Path) -> None:
    p = a_reference()
    np.save(tmp_path / "p.npy", p.astype(np.float32))
    np.savez(tmp_path / "one.npz", p)
    np.savez(tmp_path / "named.npz", probabilities=p, labels=np.arange(N))
    np.savetxt(tmp_path / "comma.csv", p, delimiter=",")
    np.savetxt(tmp_path / "blanks.csv", p)
    np.savetxt(tmp_path / "header.csv", p, delimiter=",", header="a,b,c,d", comments="")
    pd.DataFrame(p).to_csv(tmp_path / "pandas.csv", index=False)
    for name in ("p.npy", "one.npz", "named.npz", "comma.csv", "blanks.csv", "header.csv", "pandas.csv"):
        np.testing.assert_allclose(probabilities.load(tmp_path / name), p, atol=1e-6)
    np.testing.assert_array_equal(probabilities.load(p), p)


def test_wrong_references_are_one_line(tmp_path: Path, run: Predicted) -> None:
    p = a_reference()
    why_not = measures.named("fidelity").why_not
    bad = tmp_path / "bad.npy"
    with refused("reference", "missing.npy", "existing"):
        why_not(context_of(run, tmp_path / "missing.npy"))
    with refused("reference must be hmc, an array, or a file .npy, .npz or .csv", "probs.txt"):
        why_not(context_of(run, str(tmp_path / "probs.txt")))
    for typo in ("HMC", 3):
        with refused("reference must be hmc, an array, or a file .npy, .npz or .csv", repr(typo)):
            why_not(context_of(run, typo))
    bad.write_text("a text")
    with refused("reference must be a .npy file of NumPy", "bad.npy"):
        why_not(context_of(run, bad))
    bad.write_bytes(b"\x93NUMPY nothing")
    with refused("reference", "bad.npy", "readable"):
        why_not(context_of(run, bad))
    np.savez(tmp_path / "two.npz", a=p, b=p)
    with refused("two.npz' with a, b", "probabilities"):
        why_not(context_of(run, tmp_path / "two.npz"))
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    with refused("reference", "words.csv"):
        why_not(context_of(run, tmp_path / "words.csv"))
    for wrong, words in (
        (p[:-1], (f"[{N}, {CLASSES}]", f"[{N - 1}, {CLASSES}]")),
        (p[:, 0], ("[examples, classes]",)),
        (np.full((N, 3), 1 / 3), (f"[{N}, 3]",)),
        (2 * p, ("row 0", "sum")),
        (np.where(np.arange(N)[:, None] == 7, np.nan, p), ("row 7",)),
        (np.array([["a"]]), ("numbers",)),
    ):
        with refused("reference", *words):
            why_not(context_of(run, wrong))
    assert "`reference=hmc`" in str(why_not(context_of(run, None)))
    run.task.predicts = "gaussian"
    with refused("reference must be hmc, or left out", "no classification"):
        why_not(context_of(run, p))


def test_a_reference_without_the_measure_is_refused(tmp_path: Path) -> None:
    with refused("reference", "fidelity", "got 'p.npy'"):
        rc.evaluate(str(tmp_path), measures=["agreement"], reference="p.npy")


def test_a_reference_in_another_order_is_warned_of(run: Predicted, caplog: pytest.LogCaptureFixture) -> None:
    labels = SPLITS["test"]()._labels  # type: ignore[attr-defined]
    right = np.eye(CLASSES)[labels]
    with caplog.at_level(logging.WARNING):
        tables(run, right)
        assert not caplog.records
        tables(run, np.roll(right, 1, axis=1))
    assert "order" in caplog.text


def test_hmcs_probabilities_are_found_in_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_images.use(monkeypatch)
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    task = tasks.make("cifar10-lenet")
    assert task.reference_file("test") is None
    (tmp_path / "hmc-cifar10").mkdir()
    file = tmp_path / "hmc-cifar10" / "probabilities.npy"
    file.write_bytes(b"")
    assert task.reference_file("test") == file and task.reference_file("train") is None
    assert tasks.make("mnist-mlp").reference_file("test") is None
