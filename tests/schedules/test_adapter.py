"""`ScheduleLR` in loops of one's own: what a chain applies, torch's warm restarts, resuming, and its documented
loop."""

from __future__ import annotations

import copy
import inspect
import io
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

from raychains import samplers, tasks
from raychains.chain.chain import Chain
from raychains.core.sample import Progress
from raychains.schedules import Constant, Cyclical, Decreasing, Exponential, Linear, Schedule, ScheduleLR, Step
from tests.chain.chain_cases import sgld_on
from tests.checks import refused

K = 24
EVERY: list[Schedule] = [
    Cyclical(lr=0.02, steps=K, cycles=2, exploration=0.25, ramp=0.25),
    Decreasing(a=0.05, b=0.0, gamma=0.55, steps=K, noise_from=0.25),
    Constant(lr=0.02, steps=K, noise_from=0.5, ramp=0.2, temperature=0.3),
    Linear(lr=0.02, final_lr=0.001, steps=K, thinning=5),
    Exponential(lr=0.02, final_lr=0.001, steps=K, samples=3),
    Step(lr=0.02, milestones=(0.5, 0.75), factor=0.1, steps=K, noise_from=0.1),
]
ids: Any = {"ids": lambda s: s.kind}


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    """Torch warns of a misused scheduler: ours never makes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def a_sampler(seed: int = 0, name: str = "sghmc") -> Any:
    theta = torch.nn.Parameter(torch.linspace(-1, 1, 5))
    momentum = {"momentum": 0.9} if name in ("sghmc", "sgdm") else {}
    temperature = 0.0 if name in ("sgd", "sgdm") else 1.0
    kind: Any = samplers.KINDS[name]
    return kind([theta], lr=9.0, num_data=10, temperature=temperature, seed=seed, **momentum)


def one_step(optimizer: torch.optim.Optimizer) -> None:
    (p,) = optimizer.param_groups[0]["params"]
    p.grad = p.detach().clone()
    optimizer.step()


@pytest.mark.parametrize("schedule", EVERY, **ids)
def test_a_loop_with_the_adapter_applies_what_a_chain_applies(schedule: Schedule) -> None:
    task = tasks.make("mixture25")
    spec = sgld_on(task, schedule, block_draws=K)
    told = [e for e in Chain(spec) if isinstance(e, Progress)]
    chains = [(p.step, p.lr, p.temperature, p.stage, p.cycle) for p in told]
    sampler = a_sampler(name="sgld")
    scheduler = ScheduleLR(sampler, schedule)
    applied, kept = [], 0
    for k in range(1, K + 1):
        group = sampler.param_groups[0]
        before = group["lr"], group["temperature"]
        one_step(sampler)
        assert (group["lr"], group["temperature"]) == before
        applied.append((k, *before, scheduler.setting.stage, scheduler.setting.cycle))
        kept += scheduler.setting.keep
        scheduler.step()
    assert applied == chains and len(chains) == K
    assert kept == schedule.kept and scheduler.done


def test_cyclical_equals_torchs_warm_restarts() -> None:
    ours, theirs = (torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr) for lr in (9.0, 0.3))
    mine = ScheduleLR(ours, Cyclical(lr=0.3, steps=60, cycles=4, exploration=0.5))
    torchs = CosineAnnealingWarmRestarts(theirs, T_0=15)
    for _ in range(60):
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-13)
        assert mine.get_last_lr() == [ours.param_groups[0]["lr"]]
        assert "temperature" not in ours.param_groups[0]
        for optimizer, scheduler in ((ours, mine), (theirs, torchs)):
            optimizer.step()
            scheduler.step()


def test_all_groups_get_the_schedules_values_and_a_tensor_lr_stays_one() -> None:
    p, q = (torch.zeros(1, requires_grad=True) for _ in range(2))
    groups = [{"params": [p], "lr": 5.0}, {"params": [q], "lr": torch.tensor(7.0, dtype=torch.float64)}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    tensor = optimizer.param_groups[1]["lr"]
    scheduler = ScheduleLR(optimizer, Linear(lr=0.5, final_lr=0.25, steps=2))
    assert optimizer.param_groups[0]["lr"] == tensor.item() == 0.5
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == tensor.item() == 0.25
    saved = scheduler.state_dict()
    tensor.fill_(3.0)
    scheduler.load_state_dict(saved)
    assert optimizer.param_groups[1]["lr"] is tensor and tensor.item() == 0.25


@pytest.mark.parametrize("schedule", EVERY, **ids)
@pytest.mark.parametrize("cut", [0, 1, 7, K - 1, K])
def test_a_resumed_loop_goes_on_bit_for_bit(schedule: Schedule, cut: int) -> None:
    whole = a_sampler()
    through = ScheduleLR(whole, schedule)
    saved: Any = None
    settings = []
    for k in range(K + 1):
        if k == cut:
            file = io.BytesIO()
            state = {"theta": whole.parameters()[0], "sampler": whole.state_dict(), "scheduler": through.state_dict()}
            torch.save(state, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
        if k < K:
            one_step(whole)
            settings.append(through.setting)
            through.step()

    for begin in (0, cut):  # by the state, or by the count alone
        again = a_sampler(seed=99)
        with torch.no_grad():
            again.parameters()[0].copy_(saved["theta"])
        scheduler = ScheduleLR(again, schedule, last_step=begin)
        expected = schedule.at(begin + 1) if begin < K else schedule.at(K)._replace(keep=False)
        group = again.param_groups[0]
        assert scheduler.setting == expected and scheduler.done is (begin == K)
        assert (group["lr"], group["temperature"]) == (expected.lr, expected.temperature)
        again.load_state_dict(saved["sampler"])
        again.param_groups[0]["lr"] = again.param_groups[0]["temperature"] = 123.0
        scheduler.load_state_dict(saved["scheduler"])
        assert scheduler.get_last_lr() == [again.param_groups[0]["lr"]]
        rest = []
        for _ in range(cut, K):
            one_step(again)
            rest.append(scheduler.setting)
            scheduler.step()
        assert rest == settings[cut:] and scheduler.state_dict() == through.state_dict()
        assert torch.equal(again.parameters()[0], whole.parameters()[0])


def test_behind_the_last_step_nothing_is_kept_and_one_more_is_refused() -> None:
    sampler = a_sampler()
    scheduler = ScheduleLR(sampler, Constant(lr=0.1, steps=2))
    for k in range(2):
        assert scheduler.setting.keep and not scheduler.done, k
        one_step(sampler)
        scheduler.step()
    assert scheduler.done and not scheduler.setting.keep
    assert (sampler.param_groups[0]["lr"], sampler.param_groups[0]["temperature"]) == (0.1, 1.0)
    with refused("steps", "2", "3"):
        scheduler.step()


@pytest.mark.parametrize("name", ["sgd", "sgdm"])
def test_an_optimiser_takes_schedules_at_temperature_0_only(name: str) -> None:
    sampler = a_sampler(name=name)
    with refused("temperature", "1.0", "sgld" if name == "sgd" else "sghmc"):
        ScheduleLR(sampler, Constant(lr=0.1, steps=2))
    assert sampler.param_groups[0]["lr"] == 9.0, "a refusal leaves the optimizer as it was"
    assert ScheduleLR(sampler, Constant(lr=0.1, steps=2, temperature=0)).setting.temperature == 0


@pytest.mark.parametrize("last_step", [-1, 3, 1.0, True, None])
def test_a_last_step_out_of_range_is_refused(last_step: Any) -> None:
    with refused("last_step", repr(last_step)):
        ScheduleLR(a_sampler(), Constant(lr=0.1, steps=2), last_step=last_step)


def test_other_misuse_is_refused() -> None:
    with refused("schedule", "0.1"):
        ScheduleLR(a_sampler(), 0.1)  # type: ignore[arg-type]
    scheduler = ScheduleLR(a_sampler(), Constant(lr=0.1, steps=2))
    with refused("epoch", "1"):
        scheduler.step(1)
    with refused("another"):
        scheduler.load_state_dict({"last_epoch": 3})
    for step in ("1", 3, -1):
        with refused("step", "[0, 2]"):
            scheduler.load_state_dict({**scheduler.state_dict(), "step": step})
    with refused("schedule", "constant", "0.2"):
        scheduler.load_state_dict(ScheduleLR(a_sampler(), Constant(lr=0.2, steps=2)).state_dict())


def test_the_documented_loop_keeps_what_the_schedule_keeps() -> None:
    """The code block of the docstring is run as it stands."""
    doc = inspect.getdoc(ScheduleLR)
    assert doc is not None
    block = doc.split("::\n\n", 1)[1].split("\n\n`setting`", 1)[0]
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    schedule = Cyclical(lr=0.1, steps=10, cycles=2, exploration=0.5, samples_per_cycle=2)
    optimizer = samplers.SGHMC(model.parameters(), lr=0.1, momentum=0.9, num_data=40, seed=0)
    names: dict[str, Any] = {
        "batches": [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(10)],
        "model": model, "loss": torch.nn.functional.cross_entropy, "optimizer": optimizer, "draws": [], "copy": copy,
        "scheduler": ScheduleLR(optimizer, schedule),
    }  # fmt: skip
    exec(textwrap.dedent(block), names)
    assert names["scheduler"].done and len(names["draws"]) == schedule.kept == 4
    assert torch.equal(names["draws"][-1]["weight"], model.weight.detach())
    assert len({float(draw["weight"].sum()) for draw in names["draws"]}) == 4
