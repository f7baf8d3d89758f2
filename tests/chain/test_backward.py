"""Gradients that are recorded once and replayed: the chain's bytes stay, and what is recorded is said."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raychains import Task
from raychains.chain.backward import EAGER, Backward, recorded
from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.data_root import rooted
from raychains.core.rng import kept_buffers, set_streams, streams
from raychains.core.spec import ChainSpec
from raychains.data import standins
from raychains.planning import methods
from raychains.tasks.module import FromModule
from tests.chain.chain_cases import CASES, outcome, run, spec
from tests.checks import refused

CPU = torch.device("cpu")


class Replayed:
    """`gpus.Graphs` on the CPU: a recording does nothing, a replay writes into the tensors that the recording left."""

    def __init__(self, backward: Backward) -> None:
        self._model, self._augmentation = backward._model, backward._augmentation
        self.recorded = self.replays = 0

    def beside(self, function: Callable[[], Any]) -> Any:
        return function()

    def record(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        before = streams(CPU), self._augmentation.get_state()
        with kept_buffers(self._model):
            loss = function()
        set_streams(CPU, before[0])
        self._augmentation.set_state(before[1])
        kept = [p.grad for p in self._model.parameters()]
        self.recorded += 1

        def replay() -> None:
            self.replays += 1
            for p in self._model.parameters():
                p.grad = None
            loss.copy_(function())
            for p, gradient in zip(self._model.parameters(), kept, strict=True):
                if gradient is not None:
                    gradient.copy_(p.grad)

        return loss, replay


def network() -> nn.Module:
    """With state, noise of its own and a parameter without a gradient."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model.register_parameter("unused", nn.Parameter(torch.zeros(2)))
    return model


def own() -> Task:
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.randn(50, 4, generator=drawn), torch.randint(0, 3, (50,), generator=drawn)
    return Task.from_module(network, (x, y), (x, y), name="own")


def of_own(task: Task, **options: Any) -> ChainSpec:
    run = Run(task="digits", epochs=8, batch_size=20, **options)
    return methods.resolve(run, task=task, sampler="sghmc").spec


def replays(one: ChainSpec, task: Task | None = None) -> Replayed:
    """Compare a chain whose gradients are recorded with one whose gradients are not; return what was recorded."""
    usual, chain = Chain(one, task), Chain(one, task)
    assert chain._backward._graphs is None  # on a CPU
    backward = chain._backward if chain._micro is None else chain._micro._backward
    graphs: Any = Replayed(backward)
    backward._graphs = graphs
    assert outcome(chain, run(chain)) == outcome(usual, run(usual))
    assert graphs.replays > one.steps // 3
    return graphs  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", ["sghmc-digits", "sam-digits", "mclmc-digits", "entropy-sgld-digits"])
def test_a_chain_with_recorded_gradients_has_the_bytes_of_one_without(case: str) -> None:
    assert replays(CASES[case]).recorded == 2  # of whole batches and of the last


def test_so_has_one_with_dropout() -> None:
    task = own()
    assert replays(of_own(task), task).recorded == 2


@pytest.mark.long
def test_so_has_one_with_augmentation_batchnorm_and_micro_batches(tmp_path: Path) -> None:
    with rooted(str(standins.make(tmp_path, train=90, corruptions=1))):
        assert replays(spec("resnet", "sam", micro_batch=10)).recorded == 2


def test_steps_before_the_first_recording_are_as_many_as_libraries_need() -> None:
    chain = Chain(CASES["sghmc-digits"])
    graphs: Any = Replayed(chain._backward)
    chain._backward._graphs = graphs
    made = []
    while chain.step < 12 and chain.advance(lambda: made.append(graphs.recorded) or chain.step >= 12):
        pass
    assert made[EAGER] == 0 and max(made) >= 1  # before step EAGER + 1, whose batch is the third of its size


class OwnLoss(FromModule):
    """A task with a loss of its own."""

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        return super().loss(model, batch, generator)


def test_ours_are_recorded_and_others_where_the_user_says_so() -> None:
    digits, mixture = CASES["sghmc-digits"], CASES["sghmc-mixture"]
    assert recorded(digits, Chain(digits).task) and not recorded(mixture, Chain(mixture).task)
    task = own()
    assert not recorded(of_own(task), task) and not recorded(of_own(task, compile="default"), task)
    assert recorded(of_own(task, compile="cuda-graphs"), task)
    x = torch.zeros(20, 4), torch.zeros(20, dtype=torch.int64)
    other = OwnLoss(network, x, x, name="other")
    with refused("compile", "be none or default", "it has its own loss()"):
        of_own(other, compile="cuda-graphs")


NOT_ALLOWED = RuntimeError("operation not permitted when stream is capturing\nand much more")


def recording_fails(one: ChainSpec, task: Task | None, failure: Exception) -> None:
    class Fails(Replayed):
        def record(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
            raise failure

    chain = Chain(one, task)
    graphs: Any = Fails(chain._backward)
    chain._backward._graphs = graphs
    run(chain)


def test_a_network_that_cannot_be_recorded_is_refused_in_one_line() -> None:
    task = own()
    with refused("compile", "be none or default", "operation not permitted"):
        recording_fails(of_own(task), task, NOT_ALLOWED)


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_a_network_that_draws_in_python_is_refused_where_it_is_recorded(draw: Callable[[], float]) -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * draw()

    data = own().source.inputs, own().source.targets  # type: ignore[attr-defined]
    task = Task.from_module(lambda: Noisy(4, 3), data, data, name="own")
    with refused("compile", "cuda-graphs", "none", "default", "NumPy"):
        replays(of_own(task), task)


def test_what_another_option_does_not_help_is_raised_as_it_is() -> None:
    task, full = own(), torch.OutOfMemoryError("no memory")
    for failure, one in ((NOT_ALLOWED, (CASES["sghmc-digits"], None)), (full, (of_own(task), task))):
        with pytest.raises(type(failure)) as found:
            recording_fails(*one, failure)
        assert found.value is failure
