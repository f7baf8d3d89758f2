"""The networks for machines without a GPU: what an interrupted chain of theirs draws is what a straight one does."""

from __future__ import annotations

import pytest

from raychains import methods, tasks
from raychains.chain import Chain, Event
from raychains.options import Run
from raychains.sample import Sample, tensors_sha256
from raychains.schedules import Cyclical
from tests.tasks import made_images


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    made_images.use(monkeypatch)


def hashes(events: list[Event]) -> list[tuple[int, str]]:
    return [(e.meta.step, tensors_sha256(e.tensors)) for e in events if isinstance(e, Sample)]


@pytest.mark.parametrize("name", ["cifar10-resnet20", "cifar10-lenet", "cifar100-lenet"])
def test_an_interrupted_chain_draws_the_same_bytes(name: str) -> None:
    options = Run(
        task=name, train_subset=120, epochs=2, cycles=1, exploration=0.25, samples_per_cycle=2, batch_size=30, lr=0.1
    )
    method = methods.resolve(options, task=methods.make_task(options, name), name=name, sampler="csghmc")
    whole = hashes(list(Chain(method.spec, method.task)))
    first = Chain(method.spec, method.task)
    drawn: list[Event] = []
    while first.step < 5:  # in the middle of the second epoch, with noise and momentum
        drawn += first.advance(stop=lambda: first.step >= 5)
    second = Chain(method.spec, tasks.build(method.spec.task))
    second.load_state_dict(first.state_dict())
    assert hashes(drawn) + hashes(list(second)) == whole and [step for step, _ in whole] == [4, 8]
    assert whole[0][1] != whole[1][1]


@pytest.mark.parametrize(
    ("name", "step", "exploration"),
    [("cifar10-resnet20", 0.2, 0.8), ("cifar10-lenet", 0.1, 0.8), ("cifar100-lenet", 0.1, 0.94)],
)
def test_settings_are_resnet18s_but_for_the_step_size(name: str, step: float, exploration: float) -> None:
    dataset = name.partition("-")[0]
    for sampler in ("csghmc", "csgld", "sgdm", "sam", "emcmc", *(["bsam"] if "resnet" in name else [])):
        small, large = (
            methods.resolve(Run(), task=tasks.make(task), name=task, sampler=sampler)
            for task in (name, f"{dataset}-resnet18")
        )
        assert small.schedule.at(1).lr == pytest.approx(large.schedule.at(1).lr * step / 0.5)
        assert (small.length, small.spec.batch_size) == (large.length, large.spec.batch_size)
        assert small.spec.sampler == large.spec.sampler
        if isinstance(small.schedule, Cyclical) and sampler.startswith("c"):
            assert small.schedule.exploration == exploration


@pytest.mark.parametrize("name", ["cifar10-lenet", "cifar100-lenet"])
def test_bsam_moves_a_network_without_normalisation_less(name: str) -> None:
    small, large = (
        methods.resolve(Run(), task=tasks.make(task), name=task, sampler="bsam")
        for task in (name, f"{name.partition('-')[0]}-resnet18")
    )
    ours, theirs = dict(small.spec.sampler.settings), dict(large.spec.sampler.settings)
    assert (small.schedule.at(1).lr, ours.pop("rho"), theirs.pop("rho")) == (0.05, 0.001, 0.01)
    assert ours == theirs and small.schedule.at(1).temperature == large.schedule.at(1).temperature == 0.25
