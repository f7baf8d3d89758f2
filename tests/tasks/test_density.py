"""Anybody's log density as a task: the function that was written, at any number of points, from all rows or from a
few."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal
from torch.distributions.distribution import Distribution
from torch.nn.functional import logsigmoid

import raychains as rc
from raychains import tasks
from raychains.api import plans
from raychains.api.arviz_export import to_arviz
from raychains.chain.chain import Chain
from raychains.core.config import Compare, Run
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec
from raychains.evaluation import mcmc_diagnostics
from raychains.evaluation.moments import DrawMoments
from raychains.inference.run_data import RunData
from raychains.measures import named
from raychains.report.figures import density_figure
from raychains.report.run_tables import coordinates
from raychains.tasks import fingerprint, passed_tasks
from raychains.tasks.logistic_regression import LogisticPosterior
from tests.checks import refused
from tests.measures.densities import stored
from tests.report.figures import drawn, labels

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 3)), RNG.integers(0, 2, size=12)


DECIDED = {"lr": 0.01, "batch_size": 1, "schedule": "constant", "momentum": 0.5}
"""What among a task's defaults says that its sampler takes steps of an `lr`."""


def bowl(x: Tensor) -> Tensor:
    return -(x**2).sum() / 2


def funnel(position: dict[str, Tensor]) -> Tensor:
    v, x = position["v"], position["x"]
    return Normal(0.0, 3.0).log_prob(v) + Normal(0.0, (v / 2).exp()).log_prob(x).sum()


def log_likelihood(weights: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    return logsigmoid((2 * y - 1) * (x @ weights))


def make(logp: Callable[..., Tensor] = bowl, **settings: Any) -> Any:
    return rc.Task.from_log_density(logp, **({"dim": 2} if "init" not in settings else {}), **settings)


def logistic(**settings: Any) -> Any:
    given: dict[str, Any] = {"dim": 3, "data": (X, Y), "log_prior": lambda w: -(w**2).sum() / 8, **settings}
    return rc.Task.from_log_density(log_likelihood, **given)


def spec_of(task: Any, **options: Any) -> ChainSpec:
    """The only chain of a run."""
    (spec,) = plans.run(Run(task="own", chains=1, **options), task).comparison.chains().values()
    return spec


# The density


@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3)])
def test_it_is_the_function_and_its_gradient_at_every_point(shape: tuple[int, ...]) -> None:
    mean, covariance = torch.tensor([1.0, -2.0]).double(), torch.tensor([[2.0, -0.6], [-0.6, 0.5]]).double()
    law = MultivariateNormal(mean, covariance)
    task = make(law.log_prob)
    points = np.random.default_rng(1).normal(size=(*shape, 2))
    energy, gradient = task.potential(points)
    assert energy == pytest.approx(-law.log_prob(torch.from_numpy(points)).numpy())
    assert gradient == pytest.approx((points - mean.numpy()) @ np.linalg.inv(covariance.numpy()))
    single = torch.from_numpy(points).float().reshape(-1, 2)
    model = task.build_model(seed=0, lanes=len(single)).float()
    model.theta.data.copy_(single)
    assert task.backward(model, None, torch.Generator()) is None and model.theta.grad.dtype == torch.float32
    assert model.theta.grad.numpy() == pytest.approx(gradient.reshape(-1, 2), rel=1e-5, abs=1e-6)


def test_a_position_is_a_dict_of_the_starts_shapes() -> None:
    seen = []

    def logp(position: dict[str, Tensor]) -> Tensor:
        seen.append({name: (tuple(t.shape), t.dtype) for name, t in position.items()})
        return sum((-(t**2).sum() for t in position.values()), torch.zeros(()).double())

    task = make(logp, init={"a": 1, "b": np.zeros((2, 3), dtype=np.float32), "c": torch.zeros(1)})
    shapes = {"a": ((), torch.float64), "b": ((2, 3), torch.float64), "c": ((1,), torch.float64)}
    assert task.dim == 8 and seen and all(one == shapes for one in seen)
    theta = torch.arange(16.0).double().reshape(2, 8)
    assert torch.equal(task.log_density(theta), -(theta**2).sum(1))
    matrix = make(lambda w: -(w @ w.T).trace(), init=np.zeros((2, 3)))
    assert matrix.log_density(theta[:, :6]) == pytest.approx(-(theta[:, :6] ** 2).sum(1))


def test_distributions_of_torch_are_mapped_without_their_checks_which_others_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Distribution, "_validate_args", True)  # torch.compile turns them off for the whole process
    task = make(funnel, init={"v": 0.0, "x": [0.0, 0.0]})
    theta = np.random.default_rng(0).normal(size=(7, 3))
    v, x = theta[:, 0], theta[:, 1:]
    expected = v**2 / 18 + (x**2).sum(1) * np.exp(-v) / 2 + v + math.log(3) + 1.5 * math.log(2 * math.pi)
    slope = np.column_stack([v / 9 + 1 - (x**2).sum(1) * np.exp(-v) / 2, x * np.exp(-v)[:, None]])
    energy, gradient = task.potential(theta)
    assert energy == pytest.approx(expected) and gradient == pytest.approx(slope)
    assert Distribution._validate_args
    with pytest.raises(ValueError, match="scale"):
        Normal(0.0, -1.0)


def test_one_point_and_several_have_the_same_density(monkeypatch: pytest.MonkeyPatch) -> None:
    task, theta = logistic(), torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3)))
    rows = torch.randint(12, (4, 5), generator=torch.Generator().manual_seed(0))
    one_by_one = torch.cat([task.estimate(theta[i : i + 1], rows[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(task.estimate(theta, rows), one_by_one)
    whole, slope = task.log_density(theta), task.gradient(theta)
    torch.testing.assert_close(whole, torch.cat([task.log_density(t[None]) for t in theta]))
    monkeypatch.setattr("raychains.tasks.density.AT_ONCE", 40)  # in parts: three points with twelve rows each
    torch.testing.assert_close(task.log_density(theta), whole)
    torch.testing.assert_close(task.gradient(theta), slope)


def test_chains_start_around_init() -> None:
    task = make(lambda p: -((p["m"] - 5) ** 2) - (p["w"] ** 2).sum(), init={"m": 5.0, "w": [1.0, -1.0]}, init_sd=0.5)
    starts = task.starts(4000, torch.Generator().manual_seed(0)).numpy()
    assert starts.mean(0) == pytest.approx([5, 1, -1], abs=4 * 0.5 / 4000**0.5)
    assert starts.std(0) == pytest.approx([0.5] * 3, rel=4 / 8000**0.5)
    still = make(init=[3.0, 4.0], init_sd=0).starts(3, torch.Generator())
    assert torch.equal(still, torch.tensor([3.0, 4.0]).double().expand(3, 2))


def test_a_chain_follows_the_exact_law_of_its_discretisation() -> None:
    """SGLD of step a on N(0, 1): θ' = (1−a)θ + √(2a)ξ has the variance 1/(1 − a/2)."""
    a, steps = 0.2, 4_000
    task, run = make(), {"sampler": "sgld", "lr": a, "steps": steps, "precision": "fp64"}
    spec = spec_of(task, **run)
    blocks = [e.tensors["theta"][:, 0].numpy() for e in Chain(spec, task) if isinstance(e, Sample)]
    draws = np.concatenate(blocks)[500:]
    squares = (1 + (1 - a) ** 2) / (1 - (1 - a) ** 2)  # integrated autocorrelation time of θ², which decays as (1−a)²
    error = (2 * squares / draws.shape[0]) ** 0.5
    assert draws.var(0) * (1 - a / 2) == pytest.approx([1, 1], abs=4.5 * error)


# Data


def test_the_gradient_is_that_of_bayesian_logistic_regression() -> None:
    task, exact = logistic(), LogisticPosterior(X, Y, prior_variance=4.0)
    theta = np.random.default_rng(0).normal(size=(6, 3))
    energy, gradient = task.potential(theta)
    assert energy == pytest.approx(exact.potential(theta)) and gradient == pytest.approx(exact.gradient(theta))
    assert task.num_data == 12 and task.own_prior


@pytest.mark.parametrize("n", [1, 3, 4, 12])
def test_the_batches_of_an_epoch_average_to_the_gradient_of_all_rows(n: int) -> None:
    task = logistic()
    theta = torch.from_numpy(np.random.default_rng(0).normal(size=(12 // n, 3))[:1]).expand(12 // n, 3)
    batches = torch.randperm(12, generator=torch.Generator().manual_seed(0)).reshape(-1, n)
    exact = task.gradient(theta[:1])[0]
    points = theta.clone().requires_grad_()
    (each,) = torch.autograd.grad(-task.estimate(points, batches).sum(), points)
    torch.testing.assert_close(each.mean(0), exact, rtol=1e-12, atol=1e-12)
    if n < 12:
        assert not torch.allclose(each[0], exact, rtol=1e-3)


def test_a_step_follows_the_rows_that_each_lane_draws_and_reports_their_mean_loss() -> None:
    task, g = logistic(), torch.Generator().manual_seed(3)
    model = task.build_model(seed=0, lanes=3)
    theta = model.theta.detach().clone()
    (batch,) = task.epoch(seed=0, batch_size=4)
    loss = task.backward(model, batch, g)
    rows = torch.randint(12, (3, 4), generator=torch.Generator().manual_seed(3))
    points = theta.requires_grad_()
    (gradient,) = torch.autograd.grad(-task.estimate(points, rows).sum() / 12, points)
    torch.testing.assert_close(model.theta.grad, gradient)
    x, y = torch.from_numpy(X)[rows], torch.from_numpy(Y)[rows]
    each = logsigmoid((2 * y - 1) * (x @ theta[:, :, None])[..., 0])
    torch.testing.assert_close(loss, -each.mean().detach())
    task.backward(model, task.epoch(seed=0, batch_size=12)[0], g)
    torch.testing.assert_close(model.theta.grad, task.gradient(theta.detach()) / 12)
    assert task.divide(4, 2) == [4, 4]


def test_a_tensor_a_tuple_and_a_dict_of_rows_are_handed_over_as_they_are() -> None:
    points = torch.zeros(2, 3).double()
    by_name = rc.Task.from_log_density(
        lambda w, batch: log_likelihood(w, (batch["x"], batch["y"])), dim=3, data={"x": X, "y": Y}
    )
    joined = rc.Task.from_log_density(
        lambda w, batch: log_likelihood(w, (batch[:, :3], batch[:, 3])), dim=3, data=np.column_stack([X, Y])
    )
    flat = logistic(log_prior=None)
    for task in (by_name, joined):
        torch.testing.assert_close(task.log_density(points), flat.log_density(points))
    single = rc.Task.from_log_density(lambda m, y: -((y - m[0]) ** 2), dim=1, data=X[:, 0].astype(np.float32))
    assert single.log_density(torch.zeros(1).double()) == pytest.approx(-(X[:, 0] ** 2).sum(), rel=1e-6)


def test_a_run_says_how_many_rows_a_step_reads() -> None:
    def batch_size(task: Any, **options: Any) -> int:
        spec = spec_of(task, steps=10, **options)
        assert spec.sampler.settings["num_data"] == task.num_data
        return spec.batch_size

    assert batch_size(logistic()) == 12 and batch_size(make()) == 1
    few = logistic(defaults={"batch_size": 4})
    assert batch_size(few) == 4 and batch_size(few, batch_size=6) == 6
    for wrong, allowed in ((0, "of at least 1"), (13, "[1, 12]"), (2.5, "an integer")):
        with refused("batch_size", allowed, str(wrong)):
            batch_size(logistic(), batch_size=wrong)
    assert batch_size(logistic(), batch_size=5) == 5
    with refused("batch_size must be 12, all rows", "tunes itself", "other samplers", "5"):
        batch_size(logistic(), sampler="tuned-mclmc", batch_size=5)
    with refused("weight_decay"):
        batch_size(logistic(), weight_decay=0.1)
    assert batch_size(logistic(log_prior=None), weight_decay=0.1) == 12


@pytest.mark.parametrize("more", [{"dim": 1}, *({"defaults": {n: v}} for n, v in DECIDED.items()), {}])
def test_a_density_is_sampled_by_mclmc_that_tunes_itself_unless_its_task_speaks_of_steps(more: dict[str, Any]) -> None:
    task = make(**more) if "dim" not in more else rc.Task.from_log_density(lambda x: -(x**2).sum(), dim=1)
    spec = spec_of(task, steps=400)
    own = spec.sampler.settings
    if more:
        assert spec.sampler.kind == "sghmc"
        return
    assert spec.sampler.kind == "mclmc" and (spec.steps, own["tune"]) == (200, 50)
    assert own["energy_error"] == 0.0005 and own["preconditioner"] == "diagonal"
    for option, value in DECIDED.items():
        assert spec_of(task, steps=400, **{option: value}).sampler.kind == "sghmc", "a run that speaks of steps"
    compared = plans.compare(Compare(task="own", steps=400), task).comparison
    assert {arm.sampler for arm in compared.arms} == {"sghmc"}


def test_a_run_has_a_constant_step_size_unless_the_method_or_the_user_says_otherwise() -> None:
    def schedule(**options: Any) -> str:
        return spec_of(make(), steps=400, **options).schedule.kind

    assert [schedule(), schedule(sampler="sgld"), schedule(sampler="csghmc")] == ["constant", "constant", "cyclical"]
    assert schedule(schedule="decreasing") == "decreasing"
    compared = plans.compare(Compare(task="own", steps=400), make()).comparison
    assert {arm.schedule for arm in compared.arms} == {"cyclical", "decreasing"}
    spec = spec_of(make(defaults={"sampler": "csgld"}), steps=400)
    assert spec.schedule.kind == "cyclical" and spec.sampler.kind == "sgld"


# What draws are compared with


def test_without_a_reference_draws_tell_their_own_moments_and_how_well_they_are_known() -> None:
    task = make(names=("v", "x"))
    target = task.splits()["target"]
    assert isinstance(target, DrawMoments) and [m.name for m in target.metrics][:3] == ["ess", "mean v", "mean x"]
    draws = np.random.default_rng(0).normal(size=(200, 100, 2, 2)) * [2.0, 1.0] + [
        5.0,
        0.0,
    ]  # blocks, draws, lanes, dim
    blocks = [target.predict({"theta": torch.from_numpy(block)}, 0) for block in draws]
    found = target.summarise([target.reduce(blocks, 0)])
    values = draws.reshape(-1, 2, 2)
    for lane, metrics in enumerate(found):
        assert [metrics["mean v"], metrics["sd x"]] == pytest.approx(
            [values[:, lane, 0].mean(), values[:, lane, 1].std()]
        )
        # The variance of 200 blocks' means is known to √(2/199); the smaller of two is below their mean.
        assert metrics["ess"] == pytest.approx(20_000, rel=5 * (2 / 199) ** 0.5)
    apart = [
        b if i < 100 else target.predict({"theta": torch.from_numpy(draws[i] + 3.0)}, 0) for i, b in enumerate(blocks)
    ]
    assert all(m["ess"] < 1000 for m in target.summarise([target.reduce(apart, 0)]))
    curve = target.curve([target.reduce(blocks[:3], 0)])
    assert math.isnan(curve[0]["ess"][0]) and curve[0]["ess"][2] > 0


def test_a_slow_chains_size_is_its_autocorrelations() -> None:
    """An AR(1) with coefficient .9 has n·(1 − .9)/(1 + .9) independent draws."""
    rng, x = np.random.default_rng(0), np.zeros((400_000, 1))
    noise = rng.normal(size=len(x))
    for t in range(1, len(x)):
        x[t] = 0.9 * x[t - 1] + noise[t]
    target = make(lambda p: -(p**2).sum(), init=[0.0]).splits()["target"]
    blocks = [target.predict({"theta": torch.from_numpy(b[:, None])}, 0) for b in x.reshape(200, 2000, 1)]
    (metrics,) = target.summarise([target.reduce(blocks, 0)])
    assert metrics["ess"] == pytest.approx(len(x) * 0.1 / 1.9, rel=5 * (2 / 199) ** 0.5)
    assert metrics["ess"] == pytest.approx(float(mcmc_diagnostics.ess(x[None], "mean")[0]), rel=0.5)


def test_references_are_draws_or_moments() -> None:
    draws = np.random.default_rng(0).normal(size=(500, 2)) @ np.array([[1.0, 0.5], [0.0, 2.0]]) + [1.0, -1.0]
    mean, covariance = draws.mean(0), np.cov(draws.T)
    for given in (draws, torch.from_numpy(draws), (mean, covariance), (mean.tolist(), covariance.tolist())):
        exact = make(reference=given).reference()
        assert exact.moments.mean == pytest.approx(mean) and exact.moments.covariance == pytest.approx(covariance)
        assert not exact.gaussian
    task = make(lambda p: -(p["a"] ** 2 + p["b"] ** 2).sum(), init={"a": [0.0], "b": 0.0},
                reference={"b": draws[:, 1], "a": draws[:, :1]})  # fmt: skip
    assert task.reference().moments.mean == pytest.approx(mean)
    target = task.splits()["target"]
    block = target.predict({"theta": torch.from_numpy(draws[:, None])}, 0)
    (metrics,) = target.summarise([target.reduce([block], 0)])
    assert metrics["mean_error"] < 1e-9 and metrics["variance_error"] == pytest.approx(1 / 500)


def test_a_hamiltonian_chain_gives_the_reference_where_it_is_asked_for() -> None:
    task = make(lambda x: -((x[0] - 3) ** 2) / 2 - (x[1] ** 2) / 8, reference="hmc")
    target: Any = task.splits()["target"]
    assert target.reference.mean == pytest.approx([3, 0], abs=0.15)
    assert target.reference.covariance == pytest.approx(np.diag([1.0, 4.0]), abs=0.4)


# Names


def test_names_stand_in_exports_and_diagnostics(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    task = tasks.give(make(funnel, init={"v": 0.0, "x": np.zeros((2, 3))}, names={"x": ["row", "column"]}))
    chains = [rng.normal(size=(60, 1, 7)) for _ in range(2)]
    context = stored(tmp_path, task, chains)
    found = to_arviz(context.store.root, context.comparison, task).posterior
    assert found["v"].dims == ("chain", "draw") and found["x"].dims == ("chain", "draw", "row", "column")
    assert np.array_equal(found["v"].values, np.stack(chains)[:, :, 0, 0])
    assert np.array_equal(found["x"].values.reshape(2, 60, 6), np.stack(chains)[:, :, 0, 1:])
    tables = named("diagnostics").tables(context)
    quantities = {row["quantity"] for row in tables["diagnostics"]}
    assert quantities == {"log density", "v", *(f"x[{i}, {j}]" for i in range(2) for j in range(3))}


def test_a_tensors_coordinates_are_variables_and_repeats_an_axis(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    task = tasks.give(make(names=("v", "x")))
    chains = [rng.normal(size=(40, 3, 2)) for _ in range(2)]
    context = stored(tmp_path, task, chains)
    found = to_arviz(context.store.root, context.comparison, task).posterior
    assert set(found) == {"v", "x"} and found["x"].dims == ("chain", "draw", "repeat")
    assert np.array_equal(found["x"].values, np.stack(chains)[..., 1])
    unnamed = tasks.give(make())
    context = stored(tmp_path / "unnamed", unnamed, chains)
    assert set(to_arviz(context.store.root, context.comparison, unnamed).posterior) == {"theta"}


# Ranks and the density


def test_ranks_show_the_chain_that_stays_elsewhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    task = tasks.give(make(names=("v", "x")))
    chains = [rng.normal(size=(2000, 1, 2)) + np.array([away, 0.0]) for away in (0.0, 0.0, 2.0)]
    context = stored(tmp_path, task, chains)
    tables = named("diagnostics").tables(context)
    for name, rows in tables.items():
        context.store.write_table(name, rows)
    heights = {(r["quantity"], r["chain"], r["bin"]): r["value"] for r in tables["ranks"]}
    for quantity in ("v", "x"):
        for chain in range(3):
            assert sum(heights[quantity, chain, k] for k in range(20)) == pytest.approx(20)
        for k in range(20):
            assert sum(heights[quantity, chain, k] for chain in range(3)) == pytest.approx(3)
    uniform = [heights["x", chain, k] for chain in range(3) for k in range(20)]
    assert max(abs(h - 1) for h in uniform) < 5 * (20 / 2000) ** 0.5
    assert heights["v", 2, 19] > 2.5 and heights["v", 2, 0] < 0.2
    run = RunData(context.store, context.comparison)
    drawing, figure = drawn(run, "ranks")
    assert {"Rank among all draws", "chain 3", "chains of one law"} <= labels(figure)
    assert {row["quantity"] for row in drawing.data} == {"log density", "v"}
    table = coordinates(run)
    assert table is not None and [row.heads[1] for row in table.rows] == ["v", "x", "log density"]
    first = {r["quantity"]: r for r in tables["diagnostics"]}
    for row in table.rows:
        exact = first[row.heads[1]]
        shown = [cell.text.replace(",", "") for cell in row.cells]
        assert shown[2:] == [f"{exact['bulk_ess']:.0f}", f"{exact['tail_ess']:.0f}", f"{exact['r_hat']:.3f}"]
    alone = stored(tmp_path / "alone", task, chains[:1])
    assert "ranks" not in named("diagnostics").tables(alone)


def test_the_density_is_drawn_where_the_draws_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    task = tasks.give(make(init=[300.0, -7.0]))
    draws = rng.normal(size=(5000, 1, 2)) * [20.0, 0.1] + [300.0, -7.0]
    context = stored(tmp_path, task, [draws])
    drawing, figure = drawn(RunData(context.store, context.comparison), "density")
    axis = figure.axes[0]
    assert axis.get_xlim()[0] < 260 and axis.get_xlim()[1] > 340 and -8 < axis.get_ylim()[0] < -7.2
    window = density_figure.around(draws[:, 0])
    assert sum(row["density"] for row in drawing.data) * window.cell == pytest.approx(1, abs=0.03)


# Identity


def parts(task: Any) -> str:
    return str(task.spec().fingerprint)


def test_a_functions_values_and_all_that_chains_read_identify_a_task() -> None:
    same = parts(make())
    assert parts(make(lambda x: -0.5 * x @ x)) == same, "the same values by another formula"
    assert parts(make(names=("a", "b"))) == same and parts(make(defaults={"lr": 0.1})) == same
    others = [
        make(lambda x: -(x**2).sum() / 2.001),
        make(version="2"),
        make(init=[0.0, 0.0], init_sd=2.0),
        make(init=[1.0, 0.0]),
        make(init={"a": 0.0, "b": 0.0}, logp=lambda p: -(p["a"] ** 2 + p["b"] ** 2) / 2),
        make(reference=([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])),
        make(reference="hmc"),
    ]
    assert len({same, *map(parts, others)}) == len(others) + 1
    data = parts(logistic())
    changed = X.copy()
    changed[3, 1] += 1e-9
    assert data == parts(logistic()) and data != parts(logistic(data=(changed, Y)))
    differ = fingerprint.differences(logistic(version="2").spec(), logistic(data=(changed, Y)).spec())
    assert differ == "version ('2' here, '1' in the run) and data"


def test_it_travels_by_pickling_and_another_process_needs_the_object() -> None:
    task = logistic()
    again = cloudpickle.loads(cloudpickle.dumps(task))
    theta = torch.ones(2, 3).double()
    assert again.spec() == task.spec() and torch.equal(again.log_density(theta), task.log_density(theta))
    assert tasks.travels(task) and tasks.name_of(task) == "own"
    passed_tasks.forget()
    with refused("own", "Task.from_log_density", "the same object"):
        tasks.build(task.spec())
    tasks.give(task)
    assert tasks.build(task.spec()) is task
    with refused("own", "version"):
        tasks.build(logistic(version="3").spec())


# Mistakes


def branching(x: Tensor) -> Tensor:
    return -(x**2).sum() if x.sum() > 0 else -(x**4).sum()


WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ("dim or init", "neither")),
    ({"dim": 2, "init": [0.0, 0.0]}, ("dim or init", "both")),
    ({"dim": 0}, ("dim", "at least 1", "0")),
    ({"dim": 2, "logp": 3}, ("logp", "function", "'int'")),
    ({"dim": 2, "logp": lambda x: -(x**2)}, ("logp", "one number", "[2]")),
    ({"dim": 2, "logp": lambda x: 1.0}, ("logp", "one number", "a float")),
    ({"dim": 2, "logp": lambda x: -(x.detach() ** 2).sum()}, ("logp", "differentiable", "without a gradient")),
    ({"dim": 2, "logp": lambda x: x.nothing}, ("logp raised", "AttributeError")),
    ({"dim": 2, "logp": lambda x: x.log().sum()}, ("logp", "finite", "nan")),
    ({"init": [0.0], "logp": lambda x: x.abs().sqrt().sum()}, ("logp", "a gradient that is not", "[0]")),
    ({"init": [2.0], "logp": lambda x: x.log().sum(), "init_sd": 3.0}, ("logp", "finite", "init_sd")),
    ({"dim": 2, "logp": branching}, ("logp", "torch.func.vmap", "branches")),
    ({"dim": 2, "logp": lambda x: -(x**2).sum() * torch.rand(())}, ("logp", "torch.func.vmap", "random numbers")),
    ({"dim": 2, "names": ["a"]}, ("names", "2 different texts")),
    ({"dim": 2, "names": ["a", "a"]}, ("names", "2 different texts")),
    ({"dim": 2, "names": "ab"}, ("names", "2 different texts")),
    ({"dim": 1, "names": ["chain"]}, ("names", "axes", "'chain'")),
    ({"init": {"a": 0.0}, "names": ["a"], "logp": lambda p: -(p["a"] ** 2)}, ("names", "dict", "a")),
    ({"init": {"a": [0.0]}, "names": {"a": []}, "logp": lambda p: -(p["a"] ** 2).sum()}, ("names['a']", "1 text")),
    ({"init": {"a": [0.0]}, "names": {"a": ["draw"]}, "logp": lambda p: -(p["a"] ** 2).sum()}, ("names['a']", "draw")),
    ({"init": {}}, ("init", "at least one array")),
    ({"init": "x"}, ("init", "number", "a str")),
    ({"init": [math.nan]}, ("init", "finite")),
    ({"init": []}, ("init", "at least one entry")),
    ({"dim": 2, "init_sd": -1}, ("init_sd", "at least 0", "-1")),
    ({"dim": 2, "log_prior": bowl}, ("log_prior", "without data")),
    ({"dim": 3, "data": (X, Y[:3]), "logp": log_likelihood}, ("data", "same number of rows", "12, 3")),
    ({"dim": 3, "data": (), "logp": log_likelihood}, ("data", "no tensor")),
    ({"dim": 3, "data": "rows", "logp": log_likelihood}, ("data", "number", "a str")),
    ({"dim": 3, "data": X + 1j, "logp": log_likelihood}, ("data", "real", "complex128")),
    ({"init": [1.5 + 2j]}, ("init", "real", "torch.complex64")),
    ({"dim": 3, "data": X, "logp": lambda w, x: (x @ w).sum()}, ("logp", "one number per row", "[12]")),
    (
        {"dim": 3, "data": X, "logp": lambda w, x: torch.from_numpy(X) @ w},
        ("logp", "one number per row", "[2]", "[12]"),
    ),
    ({"dim": 3, "data": X, "logp": lambda w, x: x @ w, "log_prior": lambda w: -(w**2)}, ("log_prior", "one number")),
    ({"dim": 2, "reference": "nuts"}, ("reference", "'hmc'", "'nuts'")),
    ({"dim": 2, "reference": np.zeros((9, 3))}, ("reference", "[n, 2]", "[9, 3]")),
    ({"dim": 2, "reference": np.zeros((9, 2))}, ("reference", "positive definite")),
    ({"dim": 2, "reference": ([0.0], [[1.0]])}, ("reference", "[2, 2]")),
    ({"dim": 2, "reference": (0, 1, 2)}, ("reference", "tuple of two", "3")),
    ({"dim": 2, "reference": ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]])}, ("reference", "positive definite")),
    ({"dim": 2, "name": "digits"}, ("name", "built-in")),
    ({"dim": 2, "name": "a/b"}, ("name", "letters")),
]


@pytest.mark.parametrize(("settings", "words"), WRONG, ids=[" ".join(words) for _, words in WRONG])
def test_a_mistake_is_one_line(settings: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        rc.Task.from_log_density(**{"logp": bowl, **settings})
