"""Samplers as ordinary torch optimizers: state, schedulers, seeds, refusals and the plain training loop."""

from __future__ import annotations

import copy
import math
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raychains import samplers
from raychains.core.spec import Part
from raychains.samplers import SGD, SGHMC, SGLD, Sampler
from tests.checks import refused
from tests.samplers.every_kind import build, everything, same_bits, steps

NAN, INF = math.nan, math.inf


def parameters(dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 3, generator=generator).to(dtype).requires_grad_() for n in (4, 2, 5)]


def test_samplers_loaded_from_one_state_do_not_share_memory() -> None:
    first = build("sghmc", parameters(), seed=3)
    steps(first, 4)
    state = first.state_dict()
    twins = [build("sghmc", [p.detach().clone().requires_grad_() for p in first.parameters()]) for _ in range(2)]
    for twin in twins:
        twin.load_state_dict(state)
    for twin in twins:
        steps(twin, 3, start=4)
    assert same_bits(everything(twins[0]), everything(twins[1]))


def test_another_optimizers_state_is_refused() -> None:
    params = parameters()
    with refused("SGLD", "sampler"):
        SGLD(params, lr=0.1, num_data=5).load_state_dict(torch.optim.SGD(params, lr=0.1).state_dict())


def test_torch_lr_schedulers_drive_the_step_size_and_the_noise() -> None:
    (p,) = (torch.zeros(3, requires_grad=True),)
    sampler = SGLD([p], lr=0.4, num_data=10)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(sampler, T_max=4)
    lrs, stds = [], []
    for _ in range(4):
        lrs.append(sampler.param_groups[0]["lr"])
        stds.append(sampler.effective_noise_std())
        p.grad = torch.zeros(3)
        sampler.step()
        scheduler.step()
    expected = [0.2 * (1 + math.cos(math.pi * k / 4)) for k in range(4)]
    assert lrs == pytest.approx(expected)
    assert stds == pytest.approx([math.sqrt(2 * lr / 10) for lr in expected])


def test_the_plain_training_loop_samples() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    x = torch.randn(100, 2)
    y = x @ torch.tensor([[1.0], [-2.0]]) + 0.1 * torch.randn(100, 1)
    sampler = SGHMC(model.parameters(), lr=0.1, momentum=0.9, num_data=100, temperature=0.01)
    draws = []
    for k in range(300):
        sampler.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        sampler.step()
        if k >= 100:
            draws.append(model.weight.detach().clone())
    weights = torch.stack(draws)
    # Posterior ∝ exp(−N·mse/T): sd of a weight is about √(T/2N) = .007 around least squares.
    exact = torch.linalg.lstsq(torch.cat([x, torch.ones(100, 1)], 1), y).solution[:2, 0]
    assert torch.allclose(weights.mean(0)[0], exact, atol=0.01)
    assert 0.002 < float(weights.std(0).max()) < 0.02


def test_a_closure_is_evaluated_with_gradients_and_its_value_returned() -> None:
    p = torch.ones(2, requires_grad=True)
    sampler = SGD([p], lr=0.5)

    def closure() -> Tensor:
        sampler.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert float(sampler.step(closure).detach()) == 2.0
    assert torch.equal(p.detach(), torch.zeros(2))


FRICTION = 2 * 0.1
"""Momenta of these cases lose a tenth per step."""


@pytest.mark.parametrize(
    ("kind", "own", "variance"),  # of a step's noise, at lr .3 and T/N = .5/12
    [
        ("sgld", {}, 2 * 0.3 * 0.5 / 12),
        ("sghmc", {"momentum": 0.9}, FRICTION * 0.3 * 0.5 / 12),
        ("sghmc", {"momentum": 0.6, "noise_estimate": 0.15}, 2 * 0.25 * 0.3 * 0.5 / 12),
        ("emcmc", {"momentum": 0.0}, 2 * 0.3 * 0.5 / 12),
        ("emcmc", {"momentum": 0.9}, FRICTION * 0.3 * 0.5 / 12),
        ("sgnht", {}, (1 - math.exp(-FRICTION)) * 0.3 * 0.5 / 12),
        ("atmc", {"integrator": "euler"}, FRICTION * 0.3 * 0.5 / 12),
        ("atmc", {"speed_limit": 1e4}, (1 - math.exp(-FRICTION)) * 0.3 * 0.5 / 12),
        ("entropy-sgd", {"lr": 1.0, "temperature": 0.0, "inner_noise": 0.01}, 0.01**2 * 2 * 0.2),
        ("entropy-sgld", {"inner_noise": 0.0}, 2 * 0.3 * 0.5 / 12),
        ("sgdm", {"temperature": 0.0}, 0.0),
    ],
    ids=str,
)
def test_effective_noise_std_is_what_one_step_without_gradient_injects(
    kind: str, own: dict[str, Any], variance: float
) -> None:
    count = 100_000
    p = torch.zeros(count, dtype=torch.float64, requires_grad=True)
    p.grad = torch.zeros(count, dtype=torch.float64)
    settings: dict[str, Any] = {"lr": 0.3, "num_data": 12, "temperature": 0.5, "seed": 1}
    if kind in ("sgnht", "atmc"):
        settings["momentum"] = 0.9
    if kind.startswith("entropy"):
        settings |= {"inner_steps": 1, "inner_lr": 0.2, "averaging": 0.0, "momentum": 0.0}
    sampler = build(kind, [p], **{**settings, **own})
    assert sampler.effective_noise_std() == pytest.approx(math.sqrt(variance), rel=1e-12)
    sampler.step()
    assert float(p.detach().square().mean()) == pytest.approx(variance, rel=5 * math.sqrt(2 / count))
    assert abs(float(p.detach().mean())) <= 5 * math.sqrt(variance / count)


def test_a_noise_estimate_may_be_the_whole_friction_though_it_rounds() -> None:
    for m in (0.9, 0.7, 0.1):
        theta = torch.zeros(1, requires_grad=True)
        sampler = SGHMC([theta], lr=0.1, momentum=m, num_data=1, noise_estimate=round(1 - m, 10))
        assert sampler.effective_noise_std() < 1e-8


def noise_of_one_step(seed: int | None) -> Tensor:
    p = torch.zeros(6, requires_grad=True)
    sampler = SGLD([p], lr=0.1, num_data=1, seed=seed)
    p.grad = torch.zeros(6)
    sampler.step()
    return p.detach()


def test_a_given_seed_or_else_torchs_governs_the_noise() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        first, then = noise_of_one_step(None), noise_of_one_step(None)
        torch.manual_seed(12)
        given, other = noise_of_one_step(5), noise_of_one_step(None)
        torch.manual_seed(11)
        assert torch.equal(given, noise_of_one_step(5))
        assert torch.equal(first, noise_of_one_step(None)), "a given seed leaves the global generator alone"
        found = [first, then, given, other, noise_of_one_step(6)]
    assert len({tuple(noise.tolist()) for noise in found}) == 5, "two samplers in one program have their own noise"


def test_sparse_gradient_is_refused_in_one_line() -> None:
    layer = nn.Embedding(4, 2, sparse=True)
    layer(torch.tensor([1])).sum().backward()
    with refused("SGLD", "sparse"):
        SGLD(layer.parameters(), lr=0.1, num_data=1).step()


def test_complex_parameter_is_refused_in_one_line_and_not_taken_in() -> None:
    z = torch.zeros(2, dtype=torch.complex64, requires_grad=True)
    with refused("SGHMC", "complex64"):
        SGHMC([z], lr=0.1, momentum=0.5, num_data=1)
    sampler = SGLD(parameters(), lr=0.1, num_data=1)
    with refused("SGLD", "complex64"):
        sampler.add_param_group({"params": [z]})
    assert len(sampler.param_groups) == 1


COMMON: dict[str, list[Any]] = {
    "lr": [-0.1, NAN, INF, "0.1"], "num_data": [0, -3, 1.5, True], "lanes": [0, 3], "temperature": [NAN, -1.0, INF],
    "weight_decay": [-1e-4, NAN, INF],
}  # fmt: skip
LOOP: dict[str, list[Any]] = {
    "inner_steps": [0, 2.0], "inner_lr": [0.0], "inner_noise": [-1e-4, NAN], "gamma": [0.0, "0.1"],
    "gamma_growth": [-0.1], "averaging": [1.0, -0.1],
}  # fmt: skip
THERMOSTAT: dict[str, list[Any]] = {"thermostat_rate": [-1e-3, INF, "1", True], "integrator": ["leapfrog", None]}
TWICE: dict[str, list[Any]] = {"rho": [0.0, -0.1, NAN, "0.1"], "m_sharpness": [0, 1.5]}
OWN: dict[str, dict[str, list[Any]]] = {
    "sghmc": {"noise_estimate": [-0.1, 0.31, NAN, "0.1", True]},
    "psgld": {"alpha": [1.0, -0.1, NAN], "eps": [0.0, "1e-5"], "freeze_preconditioner_after": [0, 2.5, True]},
    "sgnht": {**THERMOSTAT, "thermostat": ["lane", None, 1]},
    "atmc": {**THERMOSTAT, "speed_limit": [0, 0.0, -1.0, INF, NAN, "1", True]},
    "emcmc": {
        "eta": [0.0, -1.0, NAN, INF, "1", None, True], "anchor_decay": [-0.1, NAN, "0"], "update": ["both", 1, None],
    },
    "adamw": {"beta1": [1.0, -0.1], "beta2": [1.0, -0.1], "eps": [0.0]},
    "entropy-sgd": LOOP,
    "entropy-sgld": LOOP,
    "sam": TWICE,
    "swag": {"collect_every": [0, 1.5], "rank": [1, "9"], "scale": [0.0, NAN]},
    "mclmc": {
        "length": [0.0, -1.0, NAN, INF, "3", True], "tune": [-1, 1.5, True, "9"],
        "energy_error": [0.0, NAN, "1"], "preconditioner": ["diag", None, "diagonal"],
    },
    "laplace": {"prediction_samples": [0, True]},
    "bsam": {
        **TWICE, "beta1": [1.0, -0.1], "beta2": [1.0, 0.0], "damping": [-0.1, "1"], "s0": [0.0],
        "prediction_samples": [0, True],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", samplers.KINDS)
def test_bad_settings_are_refused_in_one_line_naming_the_field_and_a_groups_are_not_taken_in(kind: str) -> None:
    sampler = build(kind, [torch.ones(2, requires_grad=True)])
    (group,) = sampler.param_groups
    momentum = {"momentum": [1, 1.0, -0.1, NAN]} if "momentum" in signature(samplers.KINDS[kind]).parameters else {}
    for field, values in {**COMMON, **momentum, **OWN.get(kind, {})}.items():
        for value in values:
            with refused(field):
                build(kind, [torch.ones(2, requires_grad=True)], **{field: value})
            if field in group:
                with refused(field):
                    sampler.add_param_group({"params": [torch.ones(2, requires_grad=True)], field: value})
    assert len(sampler.param_groups) == 1


@pytest.mark.parametrize("kind", ["mclmc", "laplace"])
def test_groups_that_only_move_together_have_one_temperature(kind: str) -> None:
    sampler = build(kind, parameters())
    with refused("temperature", "0.25", "that of the first group"):
        sampler.add_param_group({"params": parameters(seed=1), "temperature": 0.25})
    sampler.add_param_group({"params": parameters(seed=1), "lr": 0.25, "weight_decay": 0.25})
    assert len(sampler.param_groups) == 2


@pytest.mark.parametrize("kind", [kind for kind, c in samplers.KINDS.items() if c.noisy_counterpart is not None])
def test_optimisers_refuse_a_temperature_and_name_the_sampler_to_use(kind: str) -> None:
    instead = {"sgd": "sgld", "sgdm": "sghmc", "sam": "bsam", "entropy-sgd": "entropy-sgld", "adamw": "psgld"}[kind]
    with refused("temperature", kind, instead):
        build(kind, parameters(), temperature=1.0)
    sampler = build(kind, parameters())
    with refused("temperature", kind, instead):
        sampler.add_param_group({"params": parameters(seed=1), "temperature": 1.0})
    sampler.param_groups[0]["temperature"] = 1.0
    with refused("temperature", kind, instead):
        steps(sampler, 1)


def built(part: Part) -> Sampler:
    return samplers.build(part, parameters(), lr=0.1, temperature=1.0, seed=0)


def test_build_makes_what_the_part_says() -> None:
    sampler = built(
        Part(kind="sghmc", revision=SGHMC.revision, settings={"momentum": 0.8, "num_data": 7, "weight_decay": 0.2})
    )
    group = sampler.param_groups[0]
    assert isinstance(sampler, SGHMC) and sampler.num_data == 7
    assert (group["lr"], group["temperature"], group["momentum"], group["weight_decay"]) == (0.1, 1.0, 0.8, 0.2)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(kind="sghm", revision=1), ("sampler", "sghmc")),
        (Part(kind="psmile", revision=2), ("sampler psmile was removed in this version", "mclmc or mile")),
        (Part(kind="sghmc", revision=9, settings={"momentum": 0.8, "num_data": 7}), ("sghmc", "revision", "9")),
        (Part(kind="sghmc", revision=SGHMC.revision, settings={"num_data": 7}), ("sghmc", "momentum")),
        (Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 7, "momentum": 0.1}), ("sgld", "momentum")),
    ],
)
def test_build_refuses_in_one_line(part: Part, words: tuple[str, ...]) -> None:
    with refused(*words):
        built(part)


def test_parameters_join_a_sampler_that_was_loaded() -> None:
    sampler = build("mclmc", parameters())
    sampler.load_state_dict(sampler.state_dict())
    sampler.add_param_group({"params": parameters(seed=1)})
    assert len(copy.deepcopy(sampler).param_groups) == 2
