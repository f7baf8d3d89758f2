"""The mixture of 25 Gaussians: its gradient, its start, and how many modes the published chains cover."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from raychains import tasks
from raychains.chain import Chain
from raychains.sample import Sample
from raychains.samplers import SGLD
from raychains.schedules import Cyclical, Decreasing, Schedule
from raychains.spec import ChainSpec, Part, TaskSpec
from raychains.tasks.mixture import Mixture25
from tests.checks import refused


def explicit_gradient(theta: Tensor) -> Tensor:
    """∇U by autograd of the explicit density: 25 bivariate normals, not its factorised form."""
    means = torch.tensor(list(itertools.product((-4.0, -2.0, 0.0, 2.0, 4.0), repeat=2)), dtype=torch.float64)
    density = MixtureSameFamily(
        Categorical(probs=torch.full((25,), 1 / 25, dtype=torch.float64)),
        MultivariateNormal(means, 0.03 * torch.eye(2, dtype=torch.float64)),
    )
    theta = theta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(-density.log_prob(theta).sum(), theta)
    return gradient


def points() -> Tensor:
    """Everywhere in the box, near the modes, and on the ridges between them."""
    generator = torch.Generator().manual_seed(0)
    box = torch.empty(400, 2, dtype=torch.float64).uniform_(-10, 10, generator=generator)
    inside = torch.empty(400, 2, dtype=torch.float64).uniform_(-5, 5, generator=generator)
    special = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-3.0, 2.0], [4.0, -4.0], [9.9, -10.0]], dtype=torch.float64)
    return torch.cat([box, inside, special])


def test_gradient_equals_autograd_of_the_explicit_density() -> None:
    theta = points()
    torch.testing.assert_close(Mixture25().gradient(theta), explicit_gradient(theta), rtol=1e-9, atol=1e-9)


def test_backward_fills_the_gradient_and_has_no_loss() -> None:
    task = Mixture25()
    model = task.build_model(seed=3, lanes=7).double()
    assert task.backward(model, None, torch.Generator()) is None
    theta = model.get_parameter("theta")
    assert theta.grad is not None
    torch.testing.assert_close(theta.grad, explicit_gradient(theta.detach()), rtol=1e-9, atol=1e-9)


def test_gradient_noise_has_the_asked_standard_deviation_and_its_generators_seed() -> None:
    lanes, sd = 50_000, 1.5
    task = Mixture25(gradient_noise=sd)
    model = task.build_model(seed=0, lanes=lanes).double()
    theta = model.get_parameter("theta")
    clean, noises = task.gradient(theta.detach()), []
    for seed in (1, 1, 2):
        task.backward(model, None, torch.Generator().manual_seed(seed))
        assert theta.grad is not None
        noises.append(theta.grad - clean)
    n = 2 * lanes
    assert abs(float(noises[0].square().mean()) / sd**2 - 1) < 4 * math.sqrt(2 / n)
    assert abs(float(noises[0].mean())) < 4 * sd / math.sqrt(n)
    assert torch.equal(noises[0], noises[1]) and not torch.equal(noises[0], noises[2])


def test_chains_start_uniformly_in_the_box() -> None:
    lanes = 20_000
    start = Mixture25().build_model(seed=5, lanes=lanes).get_parameter("theta").detach()
    assert start.shape == (lanes, 2) and float(start.abs().max()) <= 10
    # Variance of U[−10, 10] is 100/3; a sample variance of n uniforms has relative s.e. √(.8/n).
    assert abs(float(start.double().square().mean()) / (100 / 3) - 1) < 4 * math.sqrt(0.8 / (2 * lanes))
    assert abs(float(start.mean())) < 4 * math.sqrt(100 / 3 / (2 * lanes))
    again, other = (Mixture25().build_model(seed=s, lanes=lanes).get_parameter("theta") for s in (5, 6))
    assert torch.equal(start, again) and not torch.equal(start, other)


def test_building_a_model_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    Mixture25().build_model(seed=5, lanes=3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_spec_rebuilds_the_task(noise: float) -> None:
    spec = TaskSpec.from_json(json.loads(json.dumps(Mixture25(gradient_noise=noise).spec().to_json())))
    again = tasks.build(spec)
    assert isinstance(again, Mixture25) and again.gradient_noise == noise
    assert again.spec() == spec


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "1", None])
def test_wrong_gradient_noise_is_refused(value: object) -> None:
    with refused("gradient_noise"):
        tasks.make("mixture25", gradient_noise=value)


def test_unknown_tasks_and_settings_are_refused_in_one_line() -> None:
    with refused("task", "mixture25"):
        tasks.make("mixture")
    with refused("colour"):
        tasks.make("mixture25", colour=1)
    for path in (
        "raychains.tasks.mixture:Nothing",
        "no.such.module:X",
        "raychains.tasks.mixture",
        ":X",
        "",
        "math:pi",
    ):
        with refused("task"):
            tasks.build(TaskSpec(kind=path, revision=1, fingerprint="closed form"))


def test_a_spec_of_another_revision_or_other_data_is_refused() -> None:
    kind = "raychains.tasks.mixture:Mixture25"
    with refused("revision", "2"):
        tasks.build(TaskSpec(kind=kind, revision=2, fingerprint="closed form"))
    with refused("fingerprint"):
        tasks.build(TaskSpec(kind=kind, revision=1, fingerprint="other"))


STEPS, REPEATS, CHAINS = 50_000, 10, 4
SCHEDULES: dict[str, Schedule] = {
    "cyclical": Cyclical(steps=STEPS, lr=0.09, cycles=30, exploration=0.25),
    "decreasing": Decreasing(steps=STEPS, a=0.05, b=0.0, gamma=0.55),
}


@pytest.fixture(scope="module")
def counts() -> dict[str, np.ndarray]:
    """Per schedule the draws per mode, [chains, repeats, 25].

    All chains of a schedule are lanes of one: lanes are independent, and a step of forty takes little more than one of ten.
    """
    return {name: _counts(schedule).reshape(CHAINS, REPEATS, 25) for name, schedule in SCHEDULES.items()}


def _counts(schedule: Schedule) -> np.ndarray:
    task = Mixture25()
    target = task.splits()["target"]
    spec = ChainSpec(
        task=task.spec(),
        sampler=Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 1}),
        schedule=schedule.part(),
        steps=STEPS,
        steps_per_epoch=1,
        batch_size=1,
        seed=0,
        repeat=0,
        chain=0,
        lanes=CHAINS * REPEATS,
        block_draws=2000,
    )
    return sum(target.predict(e.tensors, 0) for e in Chain(spec) if isinstance(e, Sample))


def modes(counts: np.ndarray) -> np.ndarray:
    return np.count_nonzero(counts > 100, axis=-1)


def test_a_single_cyclical_chain_covers_the_expected_number_of_modes(counts: dict[str, np.ndarray]) -> None:
    """Each cycle lands in one uniformly random mode: 25(1 − .96³⁰) = 17.65, sd of one run 1.60."""
    covered = modes(counts["cyclical"])
    assert abs(covered[0].mean() - 17.65) < 1.6, "first chain, 10 repeats"
    assert abs(covered.mean() - 17.65) < 4 * 1.6 / math.sqrt(CHAINS * REPEATS), "all 40 chains"


def test_four_cyclical_chains_together_cover_nearly_all_modes(counts: dict[str, np.ndarray]) -> None:
    """25(1 − .96¹²⁰) = 24.81, sd of one run .42."""
    assert abs(modes(counts["cyclical"].sum(0)).mean() - 24.81) < 0.45


def test_a_single_decreasing_chain_stays_in_its_first_mode(counts: dict[str, np.ndarray]) -> None:
    covered = modes(counts["decreasing"])
    assert 1.0 <= covered[0].mean() <= 1.3
    assert 1.0 <= covered.mean() <= 1.3


def test_four_decreasing_chains_cover_four_random_modes(counts: dict[str, np.ndarray]) -> None:
    """25(1 − .96⁴) = 3.77 distinct of four."""
    assert abs(modes(counts["decreasing"].sum(0)).mean() - 3.77) < 0.7
