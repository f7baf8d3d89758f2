"""SGNHT and ATMC as optimizers: state that continues bit for bit, lanes that do not meet, and refusals."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers import Sampler
from raychains.samplers.atmc import ATMC
from raychains.samplers.sgnht import SGNHT
from tests.checks import refused

VARIANTS: list[Any] = [
    pytest.param(kind, {**own, "integrator": integrator}, id=f"{name}-{integrator}")
    for integrator in ("strang", "euler")
    for name, kind, own in [
        ("sgnht", SGNHT, {}),
        ("sgnht-scalar", SGNHT, {"thermostat": "scalar"}),
        ("atmc", ATMC, {}),
        ("atmc-relativistic", ATMC, {"speed_limit": 1.5}),
    ]
]


def parameters(dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def make(kind: type[Sampler], params: list[Tensor], own: dict[str, Any], **rest: Any) -> Sampler:
    """Two groups: the second has its own lr, decay and thermostat rate."""
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.01, "weight_decay": 0.1, "thermostat_rate": 0.02}]
    settings: dict[str, Any] = {"lr": 0.05, "num_data": 20, "thermostat_rate": 0.05, **own, **rest}
    return kind(groups, **settings)


def steps(sampler: Sampler, count: int, *, start: int = 0, disturb_lane: int | None = None) -> None:
    for k in range(start, start + count):
        for i, p in enumerate(sampler.parameters()):
            p.grad = torch.sin(p.detach() * (i + 1) + k)
            if disturb_lane is not None:
                p.grad[disturb_lane] += 3
        sampler.step()


def everything(sampler: Sampler) -> list[Tensor]:
    return [p.detach() for p in sampler.parameters()] + [t for s in sampler.state.values() for t in s.values()]


def same_bits(a: Sampler, b: Sampler) -> bool:
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(everything(a), everything(b), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("kind", "own"), VARIANTS)
def test_state_dict_continues_bit_for_bit(kind: type[Sampler], own: dict[str, Any], dtype: torch.dtype) -> None:
    shapes: tuple[tuple[int, ...], ...] = ((), (2, 3), (5, 1), (4,))
    straight = make(kind, parameters(dtype, shapes), own, seed=3)
    steps(straight, 12)

    first = make(kind, parameters(dtype, shapes), own, seed=3)
    steps(first, 5)
    saved, values = copy.deepcopy(first.state_dict()), [p.detach().clone() for p in first.parameters()]
    second = make(kind, [v.clone().requires_grad_() for v in values], own, seed=99, num_data=1)
    second.load_state_dict(saved)
    steps(second, 7, start=5)
    assert same_bits(straight, second)
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    assert {t.dtype for s in second.state.values() for t in s.values()} == {wanted}

    for name in ("momentum", "thermostat"):  # each decides the outcome
        broken = make(kind, [v.clone().requires_grad_() for v in values], own, seed=99)
        state = copy.deepcopy(saved)
        for s in state["state"].values():
            if name in s:
                s[name].zero_()
        broken.load_state_dict(state)
        steps(broken, 7, start=5)
        assert not same_bits(straight, broken)


@pytest.mark.parametrize(("kind", "own"), VARIANTS)
def test_lanes_do_not_influence_each_other(kind: type[Sampler], own: dict[str, Any]) -> None:
    """Other gradients in lane 0 leave the rest bit for bit; the first shape is [lanes], like a scalar thermostat."""
    runs = []
    for disturb_lane in (None, 0):
        sampler = make(kind, parameters(torch.float32, ((3,), (3, 4), (3, 2, 2))), own, seed=3, lanes=3)
        steps(sampler, 10, disturb_lane=disturb_lane)
        runs.append(everything(sampler))
    for calm, disturbed in zip(*runs, strict=True):
        assert calm.shape[0] == 3
        assert torch.equal(calm[1:], disturbed[1:])
        assert not torch.equal(calm[0], disturbed[0])


def test_scalar_thermostat_is_one_number_for_each_group_and_lane() -> None:
    sampler = make(SGNHT, parameters(torch.float32, ((3,), (3, 4), (3, 2, 2))), {"thermostat": "scalar"}, lanes=3)
    steps(sampler, 2)
    held = [{name: tuple(t.shape) for name, t in sampler.state[p].items()} for p in sampler.parameters()]
    assert [s.get("thermostat") for s in held] == [(3,), None, (3,)]
    assert [s["momentum"] for s in held] == [(3,), (3, 4), (3, 2, 2)]


def test_scalar_thermostat_goes_on_when_its_groups_first_parameter_has_no_gradient() -> None:
    a, b = parameters(torch.float32, ((2,), (3,)))
    sampler = SGNHT([a, b], lr=0.05, num_data=20, thermostat="scalar", thermostat_rate=0.1, seed=0)
    b.grad = torch.ones(3)
    sampler.step()
    z = 0.1 * float(sampler.state[b]["momentum"].square().mean() - 1)
    assert float(sampler.state[a]["thermostat"]) == pytest.approx(z, rel=1e-5)
    sampler.load_state_dict(sampler.state_dict())
    assert float(sampler.state[a]["thermostat"]) == pytest.approx(z, rel=1e-5)


@pytest.mark.parametrize(("kind", "own"), VARIANTS)
def test_step_size_zero_leaves_the_parameters_and_keeps_the_state_finite(
    kind: type[Sampler], own: dict[str, Any]
) -> None:
    params = parameters(torch.float32, ((2,), (3, 2), (4,)))
    before = [p.detach().clone() for p in params]
    sampler = make(kind, params, own, seed=0)
    for group in sampler.param_groups:
        group["lr"] = 0.0
    steps(sampler, 20)
    assert all(torch.equal(p, q) for p, q in zip(params, before, strict=True))
    assert all(bool(t.isfinite().all()) for t in everything(sampler))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_huge_momentum_is_still_brought_down_under_a_speed_limit(dtype: torch.dtype) -> None:
    """p²/c² would overflow single precision, and 1/M be 0 for ever."""
    theta = torch.zeros(2, dtype=dtype, requires_grad=True)
    sampler = ATMC([theta], lr=1.0, num_data=1, speed_limit=0.5, temperature=0.0)
    for gradient in (1e25, 0.0):
        theta.grad = torch.full_like(theta, gradient)
        sampler.step()
    assert torch.equal(theta.detach(), torch.full_like(theta, -1.0))


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(kind, field, value) for kind in (SGNHT, ATMC) for field, value in [
        ("lr", -0.1), ("momentum", 1), ("momentum", 1.0), ("momentum", -0.1), ("momentum", math.nan),
        ("temperature", -1.0), ("weight_decay", -1.0), ("num_data", 0), ("lanes", 0),
        ("thermostat_rate", -1e-3), ("thermostat_rate", math.inf), ("thermostat_rate", "1"), ("thermostat_rate", True),
        ("integrator", "leapfrog"), ("integrator", None),
    ]] + [(SGNHT, "thermostat", v) for v in ("lane", None, 1)]
    + [(ATMC, "speed_limit", v) for v in (0, 0.0, -1.0, math.inf, math.nan, "1", True)],
)  # fmt: skip
def test_bad_setting_is_refused_in_one_line_naming_the_field(kind: type[Sampler], field: str, value: object) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "num_data": 5, field: value}
    with refused(field):
        kind(parameters(torch.float32, ((2,), (3,))), **settings)


def test_a_groups_own_bad_setting_is_refused_and_not_taken_in() -> None:
    sampler = ATMC(parameters(torch.float32, ((2,),)), lr=0.1, num_data=5)
    with refused("speed_limit"):
        sampler.add_param_group({"params": parameters(torch.float32, ((3,),)), "speed_limit": -2.0})
    assert len(sampler.param_groups) == 1
