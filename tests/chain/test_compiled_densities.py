"""Compiled steps of densities: the path of steps that are not compiled, also after a checkpoint and beside other
packs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import raychains as rc
from raychains.chain import packed_density
from raychains.chain.chain import Chain
from raychains.chain.packed_density import PackedDensity
from raychains.core.errors import UserError
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec
from raychains.schedules import Cyclical
from raychains.tasks import Task
from raychains.tasks.mixture import Mixture25
from tests.chain.chain_cases import chain_spec

STEPS = 600  # three between two records

DATA = torch.linspace(-1, 2, 30).double()


def logp(x: dict[str, Tensor], rows: Tensor) -> Tensor:
    return torch.distributions.StudentT(4, x["mean"], x["width"].exp()).log_prob(rows)


def log_prior(x: dict[str, Tensor]) -> Tensor:
    return -0.5 * (x["mean"] ** 2 + x["width"].square().sum())


def own() -> Task:
    start = {"mean": 0.0, "width": 0.0}
    return Task.from_log_density(logp, init=start, data=DATA, log_prior=log_prior, name="own")


CASES = {
    "mixture, SGHMC": (Mixture25, "sghmc", {"momentum": 0.9, "weight_decay": 1e-3}, 3),
    "mixture, pSGLD": (Mixture25, "psgld", {}, 2),
    "own with data, SGLD": (own, "sgld", {}, 1),
}


def spec(case: str, **change: Any) -> ChainSpec:
    make, kind, settings, width = CASES[case]
    task = make()
    schedule = Cyclical(steps=STEPS, lr=0.02, cycles=2, exploration=0.4, samples_per_cycle=20)
    fields: dict[str, Any] = {
        "batch_size": task.num_data,
        "lanes": 4,
        "block_draws": 7,
        "precision": "fp64",  # so that paths stay together
        "pack": width,
        "compile": "default",
        "exact": False,
    }
    return chain_spec(task, kind, schedule, {"weight_decay": 0.0, **settings}, **{**fields, **change})


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make compiled functions short, and note how many steps each call makes."""
    monkeypatch.setattr(packed_density, "COMPILED", 2)
    made, ours = [], PackedDensity._compiled_steps

    def noted(self: PackedDensity, number: int, *rest: Any) -> None:
        ours(self, number, *rest)
        made.append(packed_density.COMPILED)

    monkeypatch.setattr(PackedDensity, "_compiled_steps", noted)
    return made


def draws(chain: Chain, until: int = STEPS) -> list[Tensor]:
    found = []
    while events := chain.advance(lambda: chain.step >= until):
        found += [e.tensors["theta"] for e in events if isinstance(e, Sample)]
    return found


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run compiled functions as torch has traced them, without a compiler, which takes seconds for each."""
    monkeypatch.setattr(packed_density, "compiled", lambda function, *tensors: make_fx(function)(*tensors))


@pytest.mark.usefixtures("traced")
def test_a_chain_may_stop_at_every_cycles_end(compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts go back to checkpoints there: the steps that are made at once end with their cycle."""
    monkeypatch.setattr("raychains.chain.chain.LOG_POINTS", 3)
    schedule = Cyclical(steps=302, lr=0.02, cycles=2, exploration=0.4, samples_per_cycle=20)
    chain = Chain(spec("mixture, SGHMC", steps=302, schedule=schedule.part(), block_draws=1000))
    asked: set[int] = set()
    while not chain.done:
        chain.advance(lambda: bool(asked.add(chain.step)))
    assert 151 in asked and len(asked) < 302 and compiled


@pytest.mark.parametrize(
    ("case", "by"),
    [
        ("mixture, SGHMC", "compiler"),
        ("mixture, pSGLD", "trace"),
        ("own with data, SGLD", "trace"),
        pytest.param("own with data, SGLD", "compiler", marks=pytest.mark.long),
        pytest.param("mixture, pSGLD", "compiler", marks=pytest.mark.long),
    ],
)
def test_compiled_steps_follow_the_path_of_others_to_rounding_through_a_checkpoint(
    case: str, by: str, compiled: list[int], request: pytest.FixtureRequest
) -> None:
    if by == "trace":
        request.getfixturevalue("traced")
    one, task = spec(case), CASES[case][0]()
    plain = draws(Chain(dataclasses.replace(one, compile="none", pack=0), task))
    assert not compiled
    chain = Chain(one, task)
    beside = Chain(dataclasses.replace(one, chain=1, pack=one.pack + 1), task)  # another program in the same process
    draws(beside, 50)
    found = draws(chain, 301)
    state = chain.state_dict()
    again = Chain(one, task)
    again.load_state_dict(state)
    found += draws(again)
    assert sum(compiled) > 0.6 * STEPS
    torch.testing.assert_close(torch.cat(found), torch.cat(plain), rtol=1e-7, atol=1e-9)
    assert torch.cat(plain).std() > 0.01


def test_a_density_that_torch_cannot_trace_is_refused_in_one_line(compiled: list[int]) -> None:
    class Branching(rc.LogDensity):
        dim = 1

        def gradient(self, theta: Tensor) -> Tensor:
            return theta if theta.sum().item() > 0 else -theta

    one = spec("own with data, SGLD", batch_size=1)
    task = Branching()
    one = dataclasses.replace(
        one,
        task=task.spec(),
        sampler=dataclasses.replace(one.sampler, settings={**one.sampler.settings, "num_data": 1}),
    )
    chain = Chain(one, task)
    with pytest.raises(UserError, match=r"^compile must be none for this task, got default: \S") as raised:
        draws(chain)
    assert "\n" not in str(raised.value)
    assert not compiled
