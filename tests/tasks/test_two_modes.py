"""The sharp and the flat mode: equal depths, masses as their variances, gradient, starts and settings."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from raychains import tasks
from raychains.chain import Chain
from raychains.sample import Sample
from raychains.samplers import SGLD
from raychains.schedules import Cyclical
from raychains.spec import ChainSpec, Part, TaskSpec
from raychains.tasks.two_modes import RIDGE, TwoModes
from tests.checks import refused

TASKS = [TwoModes(), TwoModes(sharp=0.3, flat=0.6), TwoModes(sharp=0.9, flat=1.0)]


def explicit_energy(task: TwoModes, theta: Tensor) -> Tensor:
    """−log of the two weighted normal densities, by torch's own."""
    terms = []
    for centre, scale in ((-1.0, task.sharp), (1.0, task.flat)):
        mean = torch.full((2,), centre, dtype=torch.float64)
        normal = MultivariateNormal(mean, scale**2 * torch.eye(2, dtype=torch.float64))
        terms.append(math.log(scale**2) + normal.log_prob(theta))
    return -torch.logsumexp(torch.stack(terms), dim=0)


def points() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    wide = torch.empty(500, 2, dtype=torch.float64).uniform_(-4, 4, generator=generator)
    line = torch.linspace(-1.5, 1.5, 301, dtype=torch.float64).unsqueeze(1).expand(-1, 2)
    return torch.cat([wide, line, torch.tensor([RIDGE, (-1.0, -1.0), (1.0, 1.0)], dtype=torch.float64)])


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{t.sharp}/{t.flat}")
def test_energy_and_gradient_equal_the_explicit_density_and_its_autograd(task: TwoModes) -> None:
    theta = points().requires_grad_()
    energy = explicit_energy(task, theta)
    torch.testing.assert_close(task.energy(theta.detach()), energy.detach(), rtol=1e-10, atol=1e-10)
    (expected,) = torch.autograd.grad(energy.sum(), theta)
    torch.testing.assert_close(task.gradient(theta.detach()), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{t.sharp}/{t.flat}")
def test_the_flat_share_is_its_mass_by_integration(task: TwoModes) -> None:
    """Sum of r·exp(−U) over a fine grid, against that of exp(−U); the trapezoid rule is exact to rounding here."""
    axis = torch.linspace(-9, 11, 1001, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
    density = torch.exp(-task.energy(grid))
    share = float((task.responsibility(grid).squeeze(-1) * density).sum() / density.sum())
    assert share == pytest.approx(task.flat_share, rel=1e-6)
    assert task.flat_share == pytest.approx(task.flat**2 / (task.sharp**2 + task.flat**2))
    assert float(density.sum()) * 0.02**2 == pytest.approx(task.sharp**2 + task.flat**2, rel=1e-6)


def test_modes_are_equally_deep() -> None:
    modes = torch.tensor([(-1.0, -1.0), (1.0, 1.0)], dtype=torch.float64)
    assert TwoModes().energy(modes).tolist() == pytest.approx([math.log(2 * math.pi)] * 2, abs=2e-3)


def test_backward_fills_the_gradient_in_the_parameters_dtype() -> None:
    task = TwoModes(start=None)
    for dtype in (torch.float64, torch.float32):
        model: Any = task.build_model(seed=1, lanes=5).to(dtype)
        assert task.backward(model, None, torch.Generator()) is None
        assert model.theta.grad.dtype == dtype and model.theta.grad.shape == (5, 2)
        torch.testing.assert_close(model.theta.grad, task.gradient(model.theta.detach()))


def test_starts() -> None:
    same = TwoModes().build_model(seed=1, lanes=3).get_parameter("theta").detach()
    assert torch.equal(same, torch.tensor([RIDGE] * 3, dtype=torch.float64))
    task, lanes = TwoModes(start=None), 20_000
    start = task.build_model(seed=1, lanes=lanes).get_parameter("theta").detach()
    assert float(start.abs().max()) <= 2 and torch.equal(start, task.build_model(seed=1, lanes=lanes).theta)
    # Variance of U[−2, 2] is 4/3; a sample variance of n uniforms has relative s.e. √(.8/n).
    assert abs(float(start.square().mean()) / (4 / 3) - 1) < 5 * math.sqrt(0.8 / (2 * lanes))
    assert not torch.equal(start, task.build_model(seed=2, lanes=lanes).get_parameter("theta"))


@pytest.mark.parametrize("settings", [{}, {"sharp": 0.3, "flat": 0.6, "start": None}, {"start": [0, 1]}])
def test_spec_rebuilds_the_task(settings: dict[str, Any]) -> None:
    task = TwoModes(**settings)
    again = tasks.build(TaskSpec.from_json(json.loads(json.dumps(task.spec().to_json()))))
    assert isinstance(again, TwoModes) and again.spec() == task.spec()
    assert (again.sharp, again.flat, again.start) == (task.sharp, task.flat, task.start)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("sharp", {"sharp": 0.0}), ("flat", {"flat": math.nan}), ("sharp", {"sharp": 0.5, "flat": 0.5}),
        ("sharp", {"sharp": "a"}), ("start", {"start": [1.0]}), ("start", {"start": "ab"}), ("start", {"start": 1.0}),
        ("start", {"start": [0.0, math.inf]}),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_one_line(field: str, settings: dict[str, Any]) -> None:
    with refused(field):
        TwoModes(**settings)


def test_a_chains_share_is_that_of_its_own_draws_in_the_flat_mode() -> None:
    """Modes this far apart: a draw belongs to the one on its side of the anti-diagonal."""
    task, lanes, steps = TwoModes(start=None), 8, 400
    schedule = Cyclical(steps=steps, lr=0.005, cycles=2, exploration=0.5)
    spec = ChainSpec(
        task=task.spec(), sampler=Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 1}), schedule=schedule.part(),
        steps=steps, steps_per_epoch=1, batch_size=1, seed=0, repeat=0, chain=0, lanes=lanes, block_draws=64,
    )  # fmt: skip
    blocks = [e.tensors for e in Chain(spec, task) if isinstance(e, Sample)]
    target = task.splits()["target"]
    found = target.summarise([target.reduce([target.predict(b, 0) for b in blocks], 0)])
    draws = torch.cat([b["theta"] for b in blocks]).double().numpy()
    beyond = (draws - 1) ** 2 / 0.5**2 < (draws + 1) ** 2 / 0.1**2
    assert beyond.any() and not beyond.all()
    nearest = (((draws - 1) / 0.5) ** 2).sum(-1) < (((draws + 1) / 0.1) ** 2).sum(-1)
    np.testing.assert_allclose([lane["flat_share"] for lane in found], nearest.mean(0), atol=0.02)
    for lane in found:
        assert lane["flat_share_error"] == pytest.approx(abs(lane["flat_share"] - task.flat_share), abs=1e-9)
