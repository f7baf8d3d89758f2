"""Samplers as ordinary torch optimizers: state, schedulers, seeds, refusals and the plain training loop."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raychains import samplers
from raychains.samplers import SGD, SGDM, SGHMC, SGLD, Sampler
from raychains.spec import Part
from tests.checks import refused

NAN, INF = math.nan, math.inf
VELOCITY = ("sgd", "sgdm", "sghmc", "sgld")
"""The cases of the one velocity update; `test_state` takes every kind through its state."""


def parameters(dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 3, generator=generator).to(dtype).requires_grad_() for n in (4, 2, 5)]


def groups(params: list[Tensor]) -> list[dict[str, Any]]:
    return [
        {"params": params[:2], "momentum": 0.9},
        {"params": params[2:], "lr": 0.03, "weight_decay": 0.1, "momentum": 0.5},
    ]


def make(kind: str, params: list[Tensor], **rest: Any) -> Sampler:
    """A sampler of ``kind`` over two groups; those without momentum get groups without one."""
    noise = {"temperature": 1.0} if kind in ("sgld", "sghmc") else {}
    own = {"momentum": 0.7} if kind in ("sgdm", "sghmc") else {}
    split = groups(params)
    if not own:
        split = [{k: v for k, v in g.items() if k != "momentum"} for g in split]
    return samplers.KINDS[kind](split, **{"lr": 0.1, "num_data": 20, **noise, **own, **rest})


def steps(sampler: Sampler, count: int, start: int = 0) -> None:
    """``count`` steps of deterministic gradients that depend on the parameters and the step."""
    for k in range(start, start + count):
        for group in sampler.param_groups:
            for p in group["params"]:
                p.grad = (p.detach() + math.sin(k)).to(p.dtype)
        sampler.step()


def all_parameters(sampler: Sampler) -> list[Tensor]:
    return [p.detach() for _, ps in sampler.draws() for p in ps]


def same_bits(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", VELOCITY)
def test_state_dict_continues_bit_for_bit_with_two_groups(kind: str, dtype: torch.dtype) -> None:
    straight = make(kind, parameters(dtype), seed=3)
    steps(straight, 12)

    first = make(kind, parameters(dtype), seed=3)
    steps(first, 5)
    saved, values = copy.deepcopy(first.state_dict()), [p.clone() for p in all_parameters(first)]
    second = make(kind, [v.clone().requires_grad_() for v in values], seed=99, num_data=1)
    second.load_state_dict(saved)
    steps(second, 7, start=5)
    assert same_bits(all_parameters(straight), all_parameters(second))

    without = make(kind, [v.clone().requires_grad_() for v in values], seed=99)
    steps(without, 7, start=5)
    if kind != "sgd":  # which has no state
        assert not same_bits(all_parameters(straight), all_parameters(without)), "the state decides the outcome"


def test_state_before_the_first_noise_continues_bit_for_bit() -> None:
    straight, other = (make("sghmc", parameters(), seed=s) for s in (3, 4))
    other.load_state_dict(straight.state_dict())
    steps(straight, 3)
    steps(other, 3)
    assert same_bits(all_parameters(straight), all_parameters(other))


def test_samplers_loaded_from_one_state_do_not_share_memory() -> None:
    first = make("sghmc", parameters(), seed=3)
    steps(first, 4)
    state, values = first.state_dict(), [p.clone() for p in all_parameters(first)]
    twins = [make("sghmc", [v.clone().requires_grad_() for v in values], seed=5) for _ in range(2)]
    for twin in twins:
        twin.load_state_dict(state)
    for twin in twins:
        steps(twin, 3, start=4)
    assert same_bits(all_parameters(twins[0]), all_parameters(twins[1]))


def test_state_keeps_what_must_not_be_cast_out_of_the_parameters_state() -> None:
    sampler = make("sghmc", parameters(torch.bfloat16), seed=3)
    steps(sampler, 1)
    state = sampler.state_dict()
    assert state["sampler"]["seed"] == 3 and state["sampler"]["num_data"] == 20
    assert state["sampler"]["positions"] == {"float32": sum(p.numel() for p in parameters())}
    assert {name for s in state["state"].values() for name in s} == {"velocity"}


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


def test_parameters_without_gradient_are_left_alone() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    sampler = SGHMC([used, unused], lr=0.1, momentum=0.9, num_data=1, weight_decay=0.1, seed=0)
    used.grad = torch.ones(2)
    sampler.step()
    assert torch.equal(unused.detach(), torch.ones(2)) and not torch.equal(used.detach(), torch.ones(2))
    assert unused not in sampler.state


def noise_of_one_step(seed: int | None) -> Tensor:
    p = torch.zeros(6, requires_grad=True)
    sampler = SGLD([p], lr=0.1, num_data=1, seed=seed)
    p.grad = torch.zeros(6)
    sampler.step()
    return p.detach()


def test_manual_seed_governs_the_noise_when_no_seed_is_given() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        first, then = noise_of_one_step(None), noise_of_one_step(None)
        torch.manual_seed(11)
        again = noise_of_one_step(None)
        torch.manual_seed(12)
        other = noise_of_one_step(None)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, then), "two samplers in one program have their own noise"


def test_a_given_seed_governs_the_noise_and_leaves_the_global_generator_alone() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = noise_of_one_step(5)
        state = torch.get_rng_state()
        torch.manual_seed(2)
        again = noise_of_one_step(5)
        torch.manual_seed(1)
        assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.equal(first, noise_of_one_step(6))


def test_the_global_generator_does_not_disturb_a_running_sampler() -> None:
    runs = []
    for disturb in (False, True):
        sampler = make("sghmc", parameters(), seed=1)
        for k in range(4):
            steps(sampler, 1, start=k)
            if disturb:
                torch.rand(3)
        runs.append(all_parameters(sampler))
    assert same_bits(*runs)


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


def test_a_refused_group_is_not_taken_in() -> None:
    sampler = SGLD(parameters(), lr=0.1, num_data=1)
    with refused("lr"):
        sampler.add_param_group({"params": parameters(seed=1), "lr": -1.0})
    assert len(sampler.param_groups) == 1


@pytest.mark.parametrize("kind", [SGD, SGDM, SGLD, SGHMC])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", -0.1), ("lr", NAN), ("lr", INF), ("lr", "0.1"), ("momentum", 1),
        ("momentum", -0.1), ("momentum", NAN),
        ("temperature", NAN), ("temperature", -1.0), ("temperature", INF), ("num_data", 0), ("num_data", -3),
        ("num_data", 1.5), ("num_data", True), ("weight_decay", -1e-4), ("weight_decay", NAN),
    ],
)  # fmt: skip
def test_bad_setting_is_refused_in_one_line_naming_the_field(kind: Any, field: str, value: object) -> None:
    good: dict[str, Any] = {"lr": 0.1, "num_data": 5}
    if kind in (SGDM, SGHMC):
        good["momentum"] = 0.9
    elif field == "momentum":
        with pytest.raises(TypeError, match="momentum"):
            kind(parameters(), **{**good, field: value})
        return
    with refused(field):
        kind(parameters(), **{**good, field: value})


@pytest.mark.parametrize(("kind", "instead"), [("sgd", "sgld"), ("sgdm", "sghmc")])
def test_optimisers_refuse_a_temperature_and_name_the_sampler_to_use(kind: str, instead: str) -> None:
    with refused("temperature", kind, instead):
        make(kind, parameters(), temperature=1.0)


@pytest.mark.parametrize("kind", ["sgd", "sgdm"])
def test_optimisers_refuse_a_temperature_of_a_group(kind: str) -> None:
    sampler = make(kind, parameters())
    with refused("temperature", kind):
        sampler.add_param_group({"params": parameters(seed=1), "temperature": 1.0})


def built(part: Part) -> Sampler:
    return samplers.build(part, parameters(), lr=0.1, temperature=1.0, seed=0)


def test_build_makes_what_the_part_says() -> None:
    sampler = built(
        Part(kind="sghmc", revision=SGHMC.revision, settings={"momentum": 0.8, "num_data": 7, "weight_decay": 0.2})
    )
    group = sampler.param_groups[0]
    assert isinstance(sampler, SGHMC) and sampler.num_data == 7
    assert (group["lr"], group["temperature"], group["momentum"], group["weight_decay"]) == (
        0.1,
        1.0,
        0.8,
        0.2,
    )


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(kind="sghm", revision=1), ("sampler", "sghmc")),
        (
            Part(kind="sghmc", revision=9, settings={"momentum": 0.8, "num_data": 7}),
            ("sghmc", "revision", "9"),
        ),
        (Part(kind="sghmc", revision=SGHMC.revision, settings={"num_data": 7}), ("sghmc", "momentum")),
        (Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 7, "momentum": 0.1}), ("sgld", "momentum")),
    ],
)
def test_build_refuses_in_one_line(part: Part, words: tuple[str, ...]) -> None:
    with refused(*words):
        built(part)
