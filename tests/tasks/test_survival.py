"""Survival by discrete hazards: log p and what is observed as loops of NumPy have them, draws, and one run end to
end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch import nn

import raychains as rc
from raychains.tasks import likelihoods
from raychains.tasks.likelihoods import DiscreteHazard
from tests.checks import refused
from tests.tasks.predictives import exported

Array = np.ndarray[Any, Any]
EDGES = [0.1, 1.0, 2.5, 4.0]
"""One of which single precision does not hold exactly."""
LIKELIHOOD = DiscreteHazard(EDGES)
RNG = np.random.default_rng(0)
N, TRAIN = 200, 150
TIMES = np.concatenate([[0.0, 0.0, 0.1, 0.1, 1.0, 1.0, 4.0, 4.0, 9.0, 9.0], RNG.exponential(2.0, N - 10)])
EVENTS = np.concatenate([[1, 0] * 5, RNG.integers(0, 2, N - 10)])
Y = torch.from_numpy(np.stack([TIMES, EVENTS], 1)).float()
"""Events and censoring at 0, at edges, after the last of them, and anywhere."""
X = torch.from_numpy(RNG.normal(size=(N, 3))).float()


def one_log_p(logits: Array, time: float, event: float) -> float:
    """log p of one time, bin by bin."""
    total, begin = 0.0, -1.0
    for logit, end in zip(logits, EDGES, strict=True):
        hazard = 1 / (1 + np.exp(-logit))
        if event and begin < time <= end:
            return total + float(np.log(hazard))
        if not event and time < end:
            return total
        total += float(np.log(1 - hazard))
        begin = end
    return total


def indicators(time: float, event: float) -> list[float]:
    """1[T > t_j] of one time, NaN where it is not known."""
    return [1.0 if time > t or (time == t and not event) else 0.0 if event else np.nan for t in EDGES]


def log_p(logits: Array) -> Array:
    """log p of all targets, [N]; times are those of single precision, compared in it."""
    return np.array([one_log_p(f, t, e) for f, t, e in zip(logits, TIMES, EVENTS, strict=True)])


def test_log_p_is_that_of_a_loop_for_one_network_and_for_a_pack() -> None:
    logits = RNG.normal(size=(N, 4))
    expected = log_p(logits)
    for targets in (Y, Y.double(), torch.from_numpy(np.stack([TIMES, EVENTS], 1))):
        found = LIKELIHOOD.distribution(torch.from_numpy(logits)).log_prob(targets)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    outputs = torch.from_numpy(logits)
    assert float(LIKELIHOOD.loss(nn.Identity(), outputs, Y)) == pytest.approx(-expected.mean(), abs=1e-6)
    each = LIKELIHOOD.each({}, torch.stack([outputs, outputs.flip(0)]), torch.stack([Y, Y.flip(0)]))
    np.testing.assert_allclose(each.numpy(), np.stack([-expected, -expected[::-1]]), atol=1e-6)
    assert expected[1] == 0, "censored at 0: nothing is known"
    beyond = special.log_expit(-logits[8:10]).sum(1)
    np.testing.assert_allclose(expected[8:10], beyond)  # an event after the last edge is survival of all bins


def test_the_gradient_is_that_of_the_hazards_own_products() -> None:
    """Of an independent formula: probabilities h_j Π (1 − h_i), without logarithms of its parts."""
    logits = torch.from_numpy(RNG.normal(size=(N, 4))).requires_grad_()
    h = logits.sigmoid()
    survival = torch.cat([torch.ones(N, 1), torch.cumprod(1 - h, 1)], 1)
    of_bin = torch.cat([h * survival[:, :-1], survival[:, -1:]], 1)
    edges = np.array(EDGES, dtype=np.float32)
    at = np.searchsorted(edges, TIMES.astype(np.float32), side="left")
    ended = np.searchsorted(edges, TIMES.astype(np.float32), side="right")
    rows = torch.arange(N)
    p = torch.where(torch.from_numpy(EVENTS == 1), of_bin[rows, at], survival[rows, ended])
    expected = torch.autograd.grad(-p.log().mean(), logits)[0]
    found = torch.autograd.grad(LIKELIHOOD.loss(nn.Identity(), logits, Y), logits)[0]
    torch.testing.assert_close(found, expected)


def test_mean_and_variance_are_of_the_indicators_that_are_observed() -> None:
    logits = torch.from_numpy(RNG.normal(size=(5, 4)))
    law = LIKELIHOOD.distribution(logits)
    survival = np.cumprod(1 - special.expit(logits.numpy()), 1)
    np.testing.assert_allclose(law.mean, survival)
    np.testing.assert_allclose(law.variance, survival * (1 - survival))
    expected = [indicators(t, e) for t, e in zip(TIMES, EVENTS, strict=True)]
    for targets in (Y, Y.double()):
        np.testing.assert_array_equal(LIKELIHOOD.observed(targets), expected)
    torch.manual_seed(0)
    n = 20_000
    draws = law.sample(torch.Size([n]))
    assert draws.shape == (n, 5, 2) and LIKELIHOOD.distribution(logits).support.check(draws).all()
    alive = LIKELIHOOD.observed(draws.reshape(-1, 2)).reshape(n, 5, 4)
    assert not alive.isnan().any()
    assert (abs(alive.mean(0) - law.mean) < 4 * (law.variance / n).sqrt()).all()
    entropy = -law.log_prob(draws).mean(0)
    p = np.concatenate([survival, np.zeros((5, 1))], 1)
    of_bin = np.concatenate([np.ones((5, 1)), survival], 1) - p  # of each bin, and of none
    assert entropy.numpy() == pytest.approx(special.entr(of_bin).sum(1), rel=0.02), "draws are those of log_prob"


def task(loss: Any = LIKELIHOOD, y: Any = Y, width: int = 4) -> Any:
    parts = (X[:TRAIN], y[:TRAIN]), (X[TRAIN:], y[TRAIN:])
    return rc.Task.from_module(lambda: nn.Linear(3, width), *parts, loss=loss)


def test_a_predictive_is_the_mixture_by_hand() -> None:
    split = task().splits()["test"]
    torch.manual_seed(0)
    samples = [{"weight": torch.randn(4, 3), "bias": torch.randn(4)} for _ in range(3)]
    blocks, weights = [split.predict(s, 0) for s in samples], [0.5, 0.2, 0.3]
    found = split.reduce(blocks, 0, weights)
    outputs = [(X @ s["weight"].T + s["bias"]).double().numpy() for s in samples]
    each = np.stack([log_p(f)[TRAIN:] for f in outputs])
    np.testing.assert_allclose(found.rows["log_p"], special.logsumexp(each.T, 1, weights), atol=1e-5)
    survival = np.stack([np.cumprod(1 - special.expit(f[TRAIN:]), 1) for f in outputs])
    mean = np.tensordot(weights, survival, 1)
    np.testing.assert_allclose(found.rows["mean"], mean, atol=1e-5)
    np.testing.assert_allclose(found.rows["std"] ** 2, mean * (1 - mean), atol=1e-5)
    alive = np.array([indicators(t, e) for t, e in zip(TIMES[TRAIN:], EVENTS[TRAIN:], strict=True)])
    (metrics,) = split.summarise([found])
    there = ~np.isnan(alive)
    assert 0 < there.mean() < 1
    assert metrics["label_error"] == pytest.approx(((mean > 0.5) != alive)[there].mean())
    assert metrics["brier"] == pytest.approx(((mean - alive)[there] ** 2).mean(), rel=1e-5)
    assert metrics["nll"] == pytest.approx(-found.rows["log_p"].mean())


def test_results_predictions_exports_and_answers_are_the_same_numbers(tmp_path: Path) -> None:
    settings = {"epochs": 8, "chains": 2, "backend": "process", "progress": False, "pack": "auto"}
    result = rc.run(task=task(), store=str(tmp_path), **settings)
    assert {"label_error", "nll", "brier"} <= set(result.table(full=True).columns)
    x = X[TRAIN:]
    mean, sd = result.predictive().mean_and_std(x)
    assert mean.shape == sd.shape == (50, 4) and (np.diff(mean, axis=1) < 0).all()
    written, _ = exported(result, nn.Linear(3, 4), x, tmp_path / "whole.safetensors")
    assert written.likelihood == {"name": "discrete-hazard", "edges": EDGES}
    draws = result.predictive().draws(x[:2], 4000)
    alive = (draws[..., :1] > np.array(EDGES, dtype=np.float32)) | (draws[..., 1:] == 0)
    assert (abs(alive.mean(0) - mean[:2]) < 4 * sd[:2] / 4000**0.5).all()


@pytest.mark.parametrize(
    ("y", "width", "words"),
    [
        ([[1.0, 2.0]] * N, 4, "targets of train_set must be a time of at least 0 and an event of 0 or 1 | [1.0, 2.0]"),
        ([[-1.0, 1.0]] * N, 4, "a time of at least 0 | [-1.0, 1.0] at index 0"),
        ([[np.nan, 1.0]] * N, 4, "a time of at least 0 | [nan, 1.0] at index 0"),
        ([1.0] * N, 4, "needs targets [n, 2], the time and 1 for the event or 0 for censoring | got [4]"),
        ([[1.0, 1.0]] * N, 5, "model_fn must give 4 outputs for each example | one for each bin, got 5"),
    ],
)
def test_targets_and_outputs_that_do_not_fit_are_one_line(y: Any, width: int, words: str) -> None:
    with refused(*words.split(" | ")):
        task(y=torch.tensor(y), width=width)


@pytest.mark.parametrize(
    "edges", [[], [1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [1.0, float("inf")], [1.0, 1 + 1e-12], 3, "12"]
)
def test_edges_must_increase(edges: Any) -> None:
    with refused("edges must be a list of increasing positive times"):
        DiscreteHazard(edges)


def test_a_file_states_the_edges_which_are_part_of_the_identity() -> None:
    stated = likelihoods.distributed_to_json(LIKELIHOOD)
    made = likelihoods.distributed_from_json(stated)
    assert isinstance(made, DiscreteHazard) and made.edges == EDGES and made.name == LIKELIHOOD.name
    assert (
        DiscreteHazard(np.array(EDGES)).name
        == DiscreteHazard(torch.tensor(EDGES, dtype=torch.float64)).name
        == made.name
    )
    assert DiscreteHazard([*EDGES[:2], 2.6, 4]).name != made.name
    with refused("likelihood must have settings that this version knows"):
        likelihoods.distributed_from_json({"name": "discrete-hazard"})
