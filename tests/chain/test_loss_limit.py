"""A chain whose losses stay finite but leave all bounds has diverged, wherever it resumes; ordinary chains pass."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import nn

from raychains import Task
from raychains.chain.chain import Chain
from raychains.chain.divergence import JUDGED_FROM, Diverged, loss_limit
from raychains.chain.divergence_replay import Diagnosis, diagnose
from raychains.chain.pack import Pack
from raychains.core.sample import Progress, Sample
from raychains.core.spec import ChainSpec
from raychains.schedules import Cyclical
from tests.chain.chain_cases import chain_spec, run, stored

N, STEPS, EPOCH = 100, 400, 5
WILD = 0.03
"""A step size that is too long."""


def table() -> Task:
    """A regression whose network gives σ too, with a few targets far from all others: a long step runs away in it."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N, 4, generator=g)
    y = 3 * x[:, 0] + 0.1 * torch.randn(N, generator=g) + 40 * (torch.rand(N, generator=g) < 0.03)
    y = (y - y.mean()) / y.std()

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2))

    return Task.from_module(network, (x, y), (x, y), loss="heteroscedastic", name="outliers")


def chain_of(task: Task, lr: float, *, temperature: float = 1.0, chain: int = 0, **change: Any) -> ChainSpec:
    schedule = Cyclical(
        steps=STEPS, lr=lr, cycles=4, exploration=0.25, samples_per_cycle=3, thinning=2, temperature=temperature
    )
    settings = {"momentum": 0.9, "weight_decay": 1 / N}
    fields = {"steps_per_epoch": EPOCH, "batch_size": 20, "seed": 0, "chain": chain, **change}
    return chain_spec(task, "sghmc", schedule, settings, **fields)


@pytest.mark.parametrize(
    ("start", "parameters", "num_data", "temperature", "limit"),
    [
        (2.3, 17_610, 500, 1.0, 2.3 + 35.22),  # dT/N
        (2.3, 17_610, 500, 100.0, 2.3 + 7_044.0),  # 2dT/N above T = 1
        (2.3, 17_610, 500, 0.0, 2.3 + 11.5),  # an optimiser: five times the start's
        (0.01, 31, 5_000, 1.0, 0.01 + 10.0),  # a trained start: ten nats
        (-1.5, 31, 5_000, 1.0, -1.5 + 10.0),
        (-3000.0, 31, 5_000, 1.0, -3000.0 + 15_000.0),
        (2e10, 301, 300, 1.0, 1.2e11),  # targets that nobody standardised
    ],
)
def test_the_limit_allows_for_the_temperature_and_for_the_size_of_the_first_loss(
    start: float, parameters: int, num_data: int, temperature: float, limit: float
) -> None:
    found = loss_limit(start, parameters=parameters, num_data=num_data, temperature=temperature)
    assert found == pytest.approx(limit)


def seen(chain: Chain) -> tuple[int, float | None, list[Any]]:
    told: list[Any] = []
    with pytest.raises(Diverged) as caught:
        while events := chain.advance():
            told += events
    return caught.value.step, caught.value.loss, told


def test_a_chain_that_runs_away_diverges_at_the_same_step_alone_resumed_and_packed() -> None:
    task = table()
    made = chain_of(task, WILD)
    step, loss, told = seen(Chain(made, task))
    assert loss is not None and math.isfinite(loss) and step >= JUDGED_FROM
    first = Chain(made, task)
    run(first, until=EPOCH + 1)
    start = first.state_dict()["start_loss"]
    assert start <= next(e.loss for e in told if isinstance(e, Progress))
    limit = loss_limit(start, parameters=sum(p.numel() for p in first.sampled.values()), num_data=N, temperature=1.0)
    assert loss > limit
    kept = [e.meta.train_nll for e in told if isinstance(e, Sample)]
    assert all(nll is not None and nll <= limit for nll in kept), "what it kept before is within the limit"
    for cut in (1, EPOCH - 1, step - 1):
        before, after = Chain(made, task), Chain(made, task)
        run(before, until=cut)
        after.load_state_dict(stored(before.state_dict()))
        assert seen(after)[:2] == (step, loss)
    packed = dataclasses.replace(made, pack=3)
    alone, beside = Chain(packed, task), Chain(packed, task)
    one = seen(alone)
    assert one[1] is not None and math.isfinite(one[1])
    pack = Pack(beside)
    beside.join(pack)
    assert seen(beside)[:2] == one[:2]
    first, rest = Chain(packed, task), Chain(packed, task)
    run(first, until=3)
    rest.load_state_dict(stored(first.state_dict()))
    assert seen(rest)[:2] == one[:2]


def test_the_replay_says_what_the_loss_was() -> None:
    task = table()
    chain = Chain(chain_of(task, WILD), task)
    with pytest.raises(Diverged) as caught:
        run(chain)
    assert "where the chain began with" in str(caught.value) and "smaller lr" in str(caught.value)
    found = diagnose(chain.spec, None, caught.value, task=task)
    assert (found.kind, found.step, found.loss) == ("loss", caught.value.step, caught.value.loss)
    assert found.sentence().startswith(
        f"the loss became {caught.value.loss:.4g}, far above the first one, at step {found.step} of {STEPS}"
    )
    assert "NaN" not in found.sentence() and "last finite" not in found.sentence()
    assert Diagnosis.from_json(found.to_json()) == found


@pytest.mark.parametrize("temperature", [0.0, 1.0, 30.0])
def test_the_same_network_with_a_short_step_passes_at_any_temperature(temperature: float) -> None:
    task = table()
    chain = Chain(chain_of(task, 1e-3, temperature=temperature), task)
    assert sum(isinstance(e, Sample) for e in run(chain)) == 12


def test_early_losses_are_not_judged_nor_a_few_minibatches_alone() -> None:
    """The last record counts where fewer minibatches than an epoch's were seen since it."""
    task = table()
    chain = Chain(chain_of(task, 1e-3), task)
    run(chain, until=JUDGED_FROM + 1)
    for losses, count, fails in (((1.0, 1e9), 2, False), ((1e9, 1e9), 2, True), ((1.0, 1e9), EPOCH, True)):
        chain.losses.recorded, chain.losses.count = losses[0], count
        chain._failure = None
        if fails:
            with pytest.raises(Diverged):
                chain._check_loss(losses[1])
        else:
            chain._check_loss(losses[1])
    chain.step = JUDGED_FROM - 1
    chain._failure, chain.losses.recorded = None, 1e9
    chain._check_loss(1e9)


def test_a_checkpoint_of_a_version_without_the_losses_goes_on_unjudged() -> None:
    task = table()
    made = chain_of(task, WILD)
    before, after = Chain(made, task), Chain(made, task)
    run(before, until=7)
    state = stored(before.state_dict())
    del state["start_loss"], state["recorded_loss"]
    after.load_state_dict(state)
    step = seen(Chain(made, task))[0]
    run(after, until=step)
    assert after.step >= step
