"""What a sampler can be built over, and settings of its groups that are misspelt or changed in the loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from raychains.samplers import SGHMC, SGLD
from tests.checks import refused


def parameter(n: int = 2) -> nn.Parameter:
    return nn.Parameter(torch.zeros(n))


def sampler(*groups: Any, **settings: Any) -> SGLD:
    return SGLD(list(groups) or [parameter()], **{"lr": 0.1, "num_data": 10, "seed": 0, **settings})


def step(built: Any) -> None:
    for p in built.parameters():
        p.grad = torch.zeros_like(p)
    built.step()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool])
def test_integer_parameters_are_refused_frozen_or_not(dtype: torch.dtype) -> None:
    frozen = nn.Parameter(torch.ones(3).to(dtype), requires_grad=False)
    with refused("params", str(dtype), "leave it out"):
        sampler(parameter(), frozen)


def tied() -> list[nn.Parameter]:
    a, b = parameter(), parameter()
    b.data = a.data
    return [a, b]


def expanded() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(1).expand(3))]


def inner() -> list[nn.Parameter]:
    whole = torch.zeros(10)
    return [nn.Parameter(whole[:6]), nn.Parameter(whole[5:])]


@pytest.mark.parametrize(("params", "words"), [(tied, "overlap"), (expanded, "expanded"), (inner, "overlap")])
def test_parameters_that_overlap_in_memory_are_refused(params: Callable[[], list[nn.Parameter]], words: str) -> None:
    with refused("params", words, "prior and noise would count twice"):
        sampler(*params())
    with refused("params", "head.bias", words):
        sampler(*((f"head.{n}", p) for n, p in zip(("bias", "weight"), params(), strict=False)))
    first, *others = params()
    if others:
        built = sampler(first)
        with refused("params", words):
            built.add_param_group({"params": others})
        assert len(built.param_groups) == 1


def test_parameters_that_share_a_buffer_without_overlap_are_sampled() -> None:
    whole = torch.zeros(10)
    step(built := sampler(nn.Parameter(whole[:5]), nn.Parameter(whole[5:])))
    assert torch.equal(whole, torch.cat([p.detach() for p in built.parameters()])) and bool(whole.all())
    sampler(*nn.LSTM(3, 4, 2).parameters())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("temprature", 0.1, "did you mean 'temperature'?"),
        ("weigth_decay", 0.1, "did you mean 'weight_decay'?"),
        ("missing_grads", "skip", "did you mean 'missing_grad'?"),
        ("T", 0.1, "'T'"),
        ("maximize", True, "'maximize'"),
        ("betas", (0.9, 0.99), "'betas'"),
    ],
)
def test_a_group_with_an_unknown_setting_is_refused(key: str, value: Any, words: str) -> None:
    with refused("params", "sgld", words):
        sampler({"params": [parameter()], key: value})
    built = sampler()
    with refused("params", "sgld", words):
        built.add_param_group({"params": [parameter()], key: value})
    assert len(built.param_groups) == 1


def test_a_setting_that_is_misspelt_in_the_loop_is_refused_at_the_next_step() -> None:
    built = sampler()
    step(built)
    built.param_groups[0].update(lr=0.05, temprature=0.5)
    with refused("temprature", "did you mean 'temperature'?"):
        step(built)


SCHEDULERS: list[Callable[[Any], Any]] = [
    lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=5),
    lambda o: lr_scheduler.CyclicLR(o, base_lr=0.1, max_lr=0.2),
    lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=0.05),
    lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    lambda o: lr_scheduler.LambdaLR(o, lambda k: np.float32(0.9) ** k),
]


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_keys_of_torchs_schedulers_and_labels_are_no_settings(schedule: Callable[[Any], Any]) -> None:
    built = SGHMC([{"params": [("w", parameter())], "name": "head"}], lr=0.1, momentum=0.9, num_data=10)
    scheduler = schedule(built)
    for _ in range(3):
        step(built)
        scheduler.step()
    again = SGHMC(
        [{**group, "params": [parameter()]} for group in built.param_groups], lr=0.1, momentum=0.9, num_data=10
    )
    again.load_state_dict(built.state_dict())
    assert again.param_groups[0]["name"] == "head" and again.param_groups[0]["param_names"] == ["w"]
    step(again)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", -0.1),
        ("lr", math.nan),
        ("lr", torch.tensor(0.1)),
        ("lr", torch.ones(2)),
        ("lr", "0.1"),
        ("temperature", -1.0),
        ("momentum", 1.0),
    ],
)
def test_a_setting_that_the_loop_puts_out_of_range_is_refused_at_the_next_step_as_at_construction(
    name: str, value: Any
) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "num_data": 10}
    with refused(name, "must"):
        SGHMC([parameter()], **{**settings, name: value})
    built = SGHMC([parameter()], **settings)
    step(built)
    before = [p.detach().clone() for p in built.parameters()]
    built.param_groups[0][name] = value
    with refused(name, "must"):
        step(built)
    assert all(torch.equal(p.detach(), q) for p, q in zip(built.parameters(), before, strict=True))
    built.param_groups[0] |= {"lr": 0.1, "temperature": 1.0, "momentum": 0.9}
    step(built)


def test_a_numpy_number_is_a_number() -> None:
    runs = []
    for kind in (float, np.float32):
        built = sampler(lr=kind(0.5), weight_decay=kind(0.25))
        step(built)
        built.param_groups[0]["lr"] = kind(0.25)
        step(built)
        runs.append(built.parameters()[0].detach())
    assert torch.equal(*runs)
