"""Chains that stop early: against a training loop in plain torch, and resumed anywhere."""

from __future__ import annotations

import copy
import dataclasses
import random
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains import tasks
from raychains.chain.chain import Chain
from raychains.chain.random_streams import stream_seed
from raychains.core.config import Run
from raychains.core.rng import GLOBALS
from raychains.core.sample import Progress, Sample
from raychains.core.spec import ChainSpec, EarlyStop
from raychains.planning import methods
from raychains.tasks import Task
from tests.chain.chain_cases import run
from tests.checks import refused

TRAIN = {"train": 120, "hidden": [12]}
LOW, HIGH = 4, 50
"""Patience after which a chain stops early, and with which it makes every step."""


def member(task: Task, patience: int = LOW, epochs: int = 40, **change: Any) -> ChainSpec:
    options = Run(init_from=f"deep-ensemble:{epochs},{patience}", lr="deep-ensemble=.03", batch_size=20)
    spec = methods.resolve(options, task=task, sampler="deep-ensemble").spec
    return dataclasses.replace(spec, **change)


@pytest.fixture(scope="module")
def task() -> Task:
    return tasks.make("digits", **TRAIN)


def by_hand(spec: ChainSpec, task: Task) -> tuple[dict[str, Tensor], int, list[float]]:
    """The best weights, the steps made and the held-out losses of a loop with `torch.optim.AdamW` and early
    stopping."""
    stop = spec.early_stop
    assert stop is not None
    source: Any = task.source  # type: ignore[attr-defined]
    order = torch.randperm(120, generator=torch.Generator().manual_seed(stream_seed(spec, "held-out")))
    held, learned = order[:18], order[18:].sort().values  # 15 % of 120
    model = task.build_model(seed=stream_seed(spec, "init"), lanes=1)
    decay = spec.sampler.settings["weight_decay"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03, weight_decay=decay, foreach=False)
    losses: list[float] = []
    best: dict[str, Tensor] = {}
    steps = since = 0
    for epoch in range(spec.steps // spec.steps_per_epoch):
        shuffled = torch.randperm(102, generator=torch.Generator().manual_seed(stream_seed(spec, "order", epoch)))
        for batch in learned[shuffled].split(20):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(source.inputs[batch]), source.targets[batch]).backward()
            optimizer.step()
            steps += 1
        with torch.no_grad():
            losses.append(float(torch.nn.functional.cross_entropy(model(source.inputs[held]), source.targets[held])))
        since += 1
        if losses[-1] == min(losses):
            best, since = copy.deepcopy(model.state_dict()), 0
        if since == stop.patience:
            break
    return best, steps, losses


@pytest.mark.parametrize(("patience", "pack"), [(LOW, 0), (LOW, 3), (HIGH, 0)])
def test_its_sample_is_the_best_weights_of_a_plain_loop_and_it_stops_where_that_does(
    task: Task, patience: int, pack: int
) -> None:
    spec = member(task, patience, pack=pack)
    best, steps, losses = by_hand(spec, task)
    chain = Chain(spec, task)
    events = run(chain)
    [sample] = [e for e in events if isinstance(e, Sample)]
    assert chain.done and chain.step == sample.meta.step == steps
    assert (steps < spec.steps) == (patience == LOW) and sample.meta.index == 0
    told = [e.held_out_loss for e in events if isinstance(e, Progress)]
    assert np.allclose([t for t in told if t is not None], losses, rtol=1e-5) and len(told) == len(losses)
    assert int(np.argmin(losses)) < len(losses) - 1, "the last weights are the best: the test would see nothing"
    for name, value in best.items():
        torch.testing.assert_close(sample.tensors[name], value, rtol=1e-4, atol=1e-6)


def test_it_measures_while_no_other_thread_builds_a_network_or_uses_the_global_streams(task: Task) -> None:
    chain = Chain(member(task), task)
    assert chain._early is not None
    with ThreadPoolExecutor(1) as thread:
        with GLOBALS:
            measuring = thread.submit(chain._early.measure, chain.model, chain.device)
            assert not wait([measuring], timeout=0.2).done
        measuring.result()
    assert chain._early.loss is not None


def test_members_hold_out_examples_of_their_own_and_never_step_on_them(task: Task) -> None:
    chains = [Chain(member(task, chain=n), task) for n in range(2)]
    parts = [set(c._early.held_out.tolist()) for c in chains if c._early is not None]
    assert [len(p) for p in parts] == [18, 18] and parts[0] != parts[1]
    for chain, held in zip(chains, parts, strict=True):
        seen = {int(i) for epoch in range(3) for batch in chain.order(epoch) for i in batch}
        assert seen == set(range(120)) - held


@pytest.mark.parametrize("pack", [0, 3])
def test_it_resumes_bit_for_bit_from_every_step_around_the_best_and_the_last(task: Task, pack: int) -> None:
    spec = member(task, pack=pack)
    whole = Chain(spec, task)
    [expected] = [e for e in run(whole) if isinstance(e, Sample)]
    for cut in (1, 6, 7, whole.step // 2, whole.step - 1):
        first = Chain(spec, task)
        run(first, cut)
        assert first.step == cut
        second = Chain(spec, task)
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        [found] = [e for e in run(second) if isinstance(e, Sample)]
        assert second.step == whole.step and found.meta == expected.meta
        assert all(torch.equal(found.tensors[n], t) for n, t in expected.tensors.items())


class Drawing(torch.nn.Module):
    """Draws from every stream in training, and from torch's when it predicts; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(8, 3),
        )
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        noise = torch.rand(()) + random.random() + float(np.random.rand())
        return self.net(x) * (1 + 1e-3 * noise)


def drawing() -> Task:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 4, generator=generator), torch.randint(3, (60,), generator=generator)
    return tasks.Task.from_module(Drawing, (x, y), (x, y), name="drawing")


def test_a_measurement_moves_no_stream_and_no_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    task = drawing()
    tasks.give(task)
    spec = member(task, HIGH, epochs=4)
    measured = Chain(spec, task)
    until = spec.steps - 1
    run(measured, until)
    blind = Chain(spec, task)
    assert blind._early is not None
    monkeypatch.setattr(type(blind._early), "measure", lambda self, model, device: None)
    run(blind, until)
    for name, value in measured.model.state_dict().items():
        assert torch.equal(value, blind.model.state_dict()[name]), name
    assert int(measured.model.state_dict()["calls"]) == until
    assert measured.model.training


def test_losses_that_are_not_finite_are_never_the_best(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([float("nan"), float("inf"), 2.0, float("nan"), 1.0, 3.0, *[4.0] * 50])
    monkeypatch.setattr(type(task), "held_out_loss", lambda self, model, batch: torch.tensor(next(found)))
    chain = Chain(member(task, 3), task)
    run(chain, 5 * chain.spec.steps_per_epoch)
    early = chain._early
    assert early is not None and early.state_dict()["best_loss"] == 1.0 and not early.over
    run(chain)
    assert chain.step == 8 * chain.spec.steps_per_epoch


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"early_stop": EarlyStop(share=0.999, patience=1)}, ("early_stop share", "leave one of the 120")),
        ({"micro_batch": 5}, ("micro_batch", "early_stop")),
        ({"block_draws": 5}, ("early_stop", "densities")),
    ],
)
def test_what_does_not_fit_is_refused(task: Task, change: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        Chain(ChainSpec.from_json(member(task, **change).to_json()), task)


def test_samplers_that_inject_noise_and_several_samples_are_refused(task: Task) -> None:
    noisy = methods.resolve(Run(epochs=4, batch_size=20), task=task, sampler="sghmc").spec
    with refused("early_stop", "inject noise"):
        Chain(dataclasses.replace(noisy, early_stop=EarlyStop(share=0.15, patience=2), steps_per_epoch=6), task)


def test_a_task_that_draws_its_own_batches_cannot_hold_any_out() -> None:
    class Plain(Task):
        num_data, fingerprint = 10, "plain"

        def build_model(self, *, seed: int, lanes: int) -> torch.nn.Module:
            return torch.nn.Linear(1, 1)

        def epoch(self, *, seed: int, batch_size: int) -> Any:
            return [None]

        def splits(self) -> Any:
            return {}

    with refused("Plain", "epoch_among", "held_out_loss"):
        Plain().epoch_among(torch.arange(3), seed=0, batch_size=1)
