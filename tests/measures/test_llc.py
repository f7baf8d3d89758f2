"""The local learning coefficient against closed forms and quadrature; chains against the update that others write."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.llc import (
    SCALE,
    Crossing,
    ReducedRank,
    context,
    crossing_data,
    crossing_quadrature,
    reduced_rank_data,
    reduced_rank_quadrature,
    run,
)
from raychains import samplers
from raychains.api import sampling
from raychains.chain.chain import Chain
from raychains.chain.random_streams import stream_seed
from raychains.core.sample import Sample
from raychains.measures import llc, named, temperatures
from raychains.orchestration.cluster.thread_workers import ThreadWorkers
from raychains.store import ChainStore, initial_states
from raychains.tasks import Task
from tests.measures.localised import measured

N, D = 256, 128
NBETA = N / math.log(N)


def quadratic() -> tuple[nn.Linear, tuple[Tensor, Tensor]]:
    """A linear regression at its minimum, with L(w) = L(w*) + ½‖w − w*‖²."""
    g = torch.Generator().manual_seed(0)
    x = torch.linalg.qr(torch.randn(N, D, generator=g, dtype=torch.float64))[0] * math.sqrt(N)
    y = torch.randn(N, generator=g).double()
    model = nn.Linear(D, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_((x.T @ y / N)[None])
    return model, (x.float(), y.float())


def test_a_quadratic_has_the_closed_form(tmp_path: Path) -> None:
    model, data = quadratic()
    gamma, epsilon = 10.0, 5e-4
    tables = measured(
        tmp_path, model, data, chains=2, epochs=3000, burn_in=300, draws=300, batch_size=N, gamma=gamma, epsilon=epsilon
    )
    (arm,) = tables["llc"]
    exact = 0.5 * D * NBETA / (NBETA + gamma)
    assert arm["llc"] == pytest.approx(exact, rel=0.02)
    discretised = exact / (1 - epsilon * (NBETA + gamma) / 4)  # the stationary variance of SGLD on a quadratic
    assert abs(arm["llc"] - discretised) < 3 * arm["error"]
    assert arm["nbeta"] == pytest.approx(NBETA) and arm["gamma"] == pytest.approx(gamma)
    assert arm["warning"] == ""
    assert arm["sd"] == pytest.approx(np.std([c["llc"] for c in tables["llc_chains"]], ddof=1))
    assert [row["llc"] for row in tables["llc_trace"] if row["index"] == 299] == pytest.approx(
        [c["llc"] for c in tables["llc_chains"]]
    )


@pytest.mark.long
def test_a_normal_crossing_has_the_quadratures_value(tmp_path: Path) -> None:
    """Of powers 1 and 2; those of powers 0 and 1 are a regular problem, as the quadratic is."""
    tables = measured(
        tmp_path, Crossing(1, 2), crossing_data(), noise=SCALE, chains=1, epochs=8000, burn_in=1000, draws=350,
        batch_size=1000,
    )  # fmt: skip
    (arm,) = tables["llc"]
    exact = crossing_quadrature(1, 2, nbeta=1000 / math.log(1000), gamma=1.0)
    assert abs(arm["llc"] - exact) < 3 * arm["error"] and arm["error"] < 0.1


@pytest.mark.parametrize(("powers", "exact"), [((0, 1), 0.4996), ((1, 1), 0.3833), ((3, 3), 0.0956)])
def test_the_quadrature_is_that_of_others(powers: tuple[int, int], exact: float) -> None:
    assert crossing_quadrature(*powers, nbeta=1000 / math.log(1000), gamma=1.0) == pytest.approx(exact, abs=1e-4)


def test_the_limit_of_a_reduced_rank_regressions_quadrature_is_the_closed_form() -> None:
    """Aoyagi & Watanabe 2005: with M = 4 inputs, N = 2 outputs, rank H = 1 and the truth 0, N + H < M, so λ = HN/2."""
    assert reduced_rank_quadrature(4, 2, nbeta=1e7, gamma=1.0) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.long
def test_a_reduced_rank_regression_has_the_quadratures_value(tmp_path: Path) -> None:
    tables = measured(
        tmp_path, ReducedRank(4, 2), reduced_rank_data(4, 2), noise=SCALE, chains=1, epochs=7000, burn_in=1000,
        draws=300, batch_size=1000, gamma=10.0, epsilon=5e-4,
    )  # fmt: skip
    (arm,) = tables["llc"]
    exact = reduced_rank_quadrature(4, 2, nbeta=1000 / math.log(1000), gamma=10.0)
    assert abs(arm["llc"] - exact) < 3 * arm["error"] and arm["error"] < 0.2


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A classifier of minibatches, two checkpoints, and the last layer by itself."""
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    y = (x[:, 0] > 0).long()
    model, other = (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)) for _ in range(2))
    settings = {"loss": "cross_entropy", "epochs": 6, "draws": 10, "batch_size": 20, "chains": 2, "groups": ("2.*",)}
    result, task = run(tmp_path_factory.mktemp("small"), model, (x, y), init_from=[model, other], **settings)
    return model, other, (x, y), result, task


def test_every_checkpoint_and_group_is_an_arm(small: Any) -> None:
    model, other, _, result, _ = small
    arms = result.comparison.arms
    assert len(arms) == 4 and result.comparison.split == "train"
    assert [arm.chains[0][0].sample_only for arm in arms] == [(), ("2.*",)] * 2
    starts = [arm.chains[0][0].start for arm in arms]
    assert starts[0] == starts[1] != starts[2] == starts[3]
    for arm, of in zip(arms, (model, model, other, other), strict=True):
        store = ChainStore(result.store.root, arm.chains[0][0].digest)
        tensors = store.sample(store.records()[0].file)[0]
        assert all(not torch.equal(tensors[name], of.state_dict()[name]) for name in tensors)
        assert set(tensors) == ({"2.weight", "2.bias"} if arm.name.endswith("2.*") else set(of.state_dict()))


def test_traces_and_covariances_are_those_of_the_samples_own_losses(small: Any) -> None:
    model, _, (x, y), result, task = small
    tables = named("llc").tables(context(result, task))
    arm = result.comparison.arms[1]
    rows = {name: [row for row in found if row["arm"] == arm.name] for name, found in tables.items()}
    each = []
    for spec in arm.chains[0]:
        store = ChainStore(result.store.root, spec.digest)
        for record in sorted(store.records(), key=lambda r: r.meta.index):
            model.load_state_dict({**model.state_dict(), **store.sample(record.file)[0]})
            each.append(nn.functional.cross_entropy(model(x), y, reduction="none").detach().double().numpy())
    mine = np.array(each).reshape(2, 10, 60)
    traced = np.array([row["loss"] for row in rows["llc_example_losses"]]).reshape(2, 10, 60)
    assert traced == pytest.approx(mine, abs=1e-5)
    away = mine - mine.mean(1, keepdims=True)
    expected = np.einsum("cdi,cdj->ij", away, away) / 18
    got = {(row["first"], row["second"]): row["covariance"] for row in rows["llc_covariance"]}
    assert got[(3, 7)] == pytest.approx(expected[3, 7], abs=1e-6) and len(got) == 60 * 61 // 2
    variances = [row["variance"] for row in rows["llc_examples"]]
    assert variances == pytest.approx(np.diagonal(expected), abs=1e-6)
    start = np.mean([row["start_loss"] for row in rows["llc_examples"]])
    assert rows["llc"][0]["llc"] == pytest.approx(60 / math.log(60) * (mine.mean() - start), abs=1e-3)


def test_chains_are_the_localised_sgld_of_others(small: Any) -> None:
    """Δw = (ε/2)·(−nβ·∇L + γ(w* − w)) + N(0, ε), the loss over each step's minibatch."""
    _, _, (x, y), result, task = small
    spec = result.comparison.arms[0].chains[0][0]
    chain = Chain(spec, task, start=initial_states.read(result.store.root, str(spec.start)))
    nbeta, gamma, epsilon = 60 / math.log(60), 1.0, 1e-4
    w = {name: p.detach().clone() for name, p in chain.sampled.items()}
    star = {name: p.clone() for name, p in w.items()}
    still = [nn.Parameter(torch.zeros_like(p)) for p in w.values()]
    noise = samplers.build(
        spec.sampler, still, lr=epsilon * nbeta / 2, temperature=60 / nbeta, seed=stream_seed(spec, "noise"), lanes=1
    )
    assert chain.sampler.param_groups[0]["lr"] == pytest.approx(epsilon * nbeta / 2)
    net = task.build_model(seed=0, lanes=1)
    for step in range(spec.steps):
        before = [p.detach().clone() for p in still]
        for p in still:
            p.grad = torch.zeros_like(p)
        noise.step()
        net.load_state_dict(w)
        net.zero_grad()
        batch = chain.order(step // spec.steps_per_epoch)[step % spec.steps_per_epoch]
        nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        for (name, p), now, was in zip(net.named_parameters(), still, before, strict=True):
            drift = -nbeta * p.grad + gamma * (star[name] - w[name])
            w[name] = w[name] + epsilon / 2 * drift + (now.detach() - was)
    last = [event for event in chain if isinstance(event, Sample)][-1]
    for name, value in w.items():
        assert torch.allclose(last.tensors[name], value, atol=1e-6)


def test_it_says_what_is_wrong_with_chains(tmp_path: Path) -> None:
    model, data = quadratic()
    with torch.no_grad():
        model.weight.add_(1.0)  # far from the minimum
    settings = {"chains": 1, "epochs": 200, "burn_in": 0, "draws": 100, "batch_size": N, "epsilon": 5e-4}
    result, task = run(tmp_path, model, data, **settings)
    (arm,) = named("llc").tables(context(result, task))["llc"]
    assert arm["llc"] < 0 and "below L(w*)" in arm["warning"] and "falls" in arm["warning"]
    assert "--split train" in (llc.why_not(context(result, task, split="test")) or "")
    plain = dataclasses.replace(context(result, task), comparison=_without_start(result.comparison))
    assert "raychains local" in (llc.why_not(plain) or "")


def _without_start(comparison: Any) -> Any:
    arms = [
        dataclasses.replace(
            arm, chains=tuple(tuple(dataclasses.replace(s, start=None, prior=None) for s in g) for g in arm.chains)
        )
        for arm in comparison.arms
    ]
    return dataclasses.replace(comparison, arms=tuple(arms))


def test_the_configurational_temperature_knows_the_pull_to_the_start(tmp_path: Path) -> None:
    """Of exp(−U/T) it is T = N/nβ only if U has the prior at w*, which is 1,000 times as strong as the loss here."""
    model, data = quadratic()
    gamma, nbeta = 1000.0, 1.0
    settings = {"gamma": gamma, "nbeta": nbeta, "epsilon": 1e-4, "chains": 1, "epochs": 400, "draws": 40}
    result, task = run(tmp_path, model, data, batch_size=N, **settings)
    (row,) = temperatures.network(task, context(result, task).select(0, 0))
    biased = 1 / (1 - settings["epsilon"] * gamma / 4)
    assert row["estimate"] == pytest.approx(N / nbeta * biased, rel=0.1)


def test_the_anchor_of_entropy_mcmc_is_no_draw_of_the_local_posterior(tmp_path: Path) -> None:
    model, data = quadratic()
    task = Task.from_module(lambda: nn.Linear(D, 1, bias=False), data, data, "gaussian", noise=1.0, name="quadratic")
    options = {"sampler": "emcmc", "schedule": "constant", "lr": 0.01, "init_from": model, "store": str(tmp_path)}
    settings = {
        "epochs": 40,
        "chains": 2,
        "batch_size": N,
        "schedule_settings": ("samples=8",),
        "burn_in": 20,
        "thinning": 2,
    }
    result = sampling.sample(task, ThreadWorkers(), **options, **settings)
    tables = named("llc").tables(context(result, task))
    (arm,) = tables["llc"]
    losses = []
    for spec in result.comparison.arms[0].chains[0]:
        for record in ChainStore(result.store.root, spec.digest).records():
            if record.meta.variable == "theta":
                tensors = ChainStore(result.store.root, spec.digest).sample(record.file)[0]
                losses.append(float(nn.functional.mse_loss(data[0] @ tensors["weight"].T, data[1][:, None])) / 2)
    assert arm["draws"] == 8 and len(tables["llc_trace"]) == len(losses) == 16
    assert arm["mean_loss"] - arm["start_loss"] == pytest.approx(
        np.mean(losses) - float(nn.functional.mse_loss(model(data[0]), data[1][:, None]).detach()) / 2, abs=1e-5
    )
