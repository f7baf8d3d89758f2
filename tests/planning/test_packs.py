"""The width of packs that the option ``pack`` gives chains."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raychains.core.config import Run
from raychains.planning.methods import resolve
from raychains.tasks.base import Task
from raychains.tasks.digits import Digits
from raychains.tasks.mixture import Mixture25
from tests.checks import refused


def width(pack: str, task: Task | None = None, sampler: str = "sghmc", **options: Any) -> int:
    task = task if task is not None else Digits(train=90, hidden=[8])
    given = {"repeats": 1, **options}
    made = resolve(Run(task="digits", pack=pack, **given), task=task, sampler=sampler)
    assert ("packs" in " ".join(made.notes())) == (made.spec.pack > 1)
    return made.spec.pack


@pytest.mark.parametrize(
    ("found", "options"),
    [
        (4, {}),
        (12, {"repeats": 3}),
        (20, {"repeats": 9}),
        (0, {"chains": 1}),
        (4, {"sampler": "bsam"}),
        (0, {"workers_per_chain": 2}),
        (0, {"task": Digits(train=90, norm="batch")}),
        (0, {"task": Digits(train=90, hidden=[300, 300])}),
    ],
)
def test_auto_packs_several_chains_of_a_small_network_and_nothing_else(found: int, options: dict[str, Any]) -> None:
    assert width("auto", **options) == found


def test_a_width_is_taken_as_it_is_and_none_is_the_default() -> None:
    assert width("7") == 7 and width("none") == 0 and Run(task="digits").pack == "none"


def test_a_wrong_width_and_chains_that_cannot_be_packed_are_refused_in_one_line() -> None:
    for wrong in ("0", "129", "-1", "many", "2.5"):
        with refused("pack", "auto", wrong):
            width(wrong)
    with refused("pack", "7", "its gradient has noise of its own"):
        width("7", Mixture25(gradient_noise=1.0), "sgld", steps=100)
    with refused("pack", "7", "be none for chains of several workers"):
        width("7", workers_per_chain=2)


def test_densities_are_compiled_in_packs_of_one_chain_unless_more_are_asked_for() -> None:
    own = Task.from_log_density(lambda x, rows: -((rows - x) ** 2).sum(-1), dim=1, data=torch.zeros(9, 1), name="own")
    for task in (Mixture25(), own):
        given = {"steps": 100, "compile": "default", "chains": 6}
        assert [width(pack, task, **given) for pack in ("none", "4", "auto")] == [1, 4, 6]
    with refused("compile", "default", "sampler sam with its settings moves each chain by itself"):
        width("none", Mixture25(), "sam", steps=100, compile="default")
    with refused("compile", "default", "its gradient has noise of its own"):
        width("none", own, steps=100, batch_size=4, compile="default")
    with refused("pack", "7", "not elementwise over points: that takes compile default"):
        width("7", own, steps=100)


@pytest.mark.parametrize("pack", ["7", "auto"])
def test_chains_that_start_at_a_deep_ensemble_are_packed_and_so_are_its_members(pack: str) -> None:
    made = resolve(Run(task="digits", pack=pack), task=Digits(train=90, hidden=[8]), sampler="mile")
    assert made.spec.pack > 0 and made.members is not None and made.members.spec.pack == made.spec.pack


def test_packs_of_mile_may_be_compiled_and_the_members_at_which_they_start_are_not() -> None:
    task = Digits(train=90, hidden=[8])
    made = resolve(Run(task="digits", pack="7", compile="default"), task=task, sampler="mile")
    assert made.members is not None
    specs = made.spec, made.members.spec
    assert [(s.pack, s.compile, s.exact) for s in specs] == [(7, "default", False), (7, "none", True)]
    alone = resolve(Run(task="digits", compile="default"), task=task, sampler="mile")
    assert alone.members is not None and alone.members.spec.compile == "default"
    with refused("pack", "7", "it has compile default", "those of mclmc alone are compiled"):
        width("7", compile="default")
    assert width("auto", compile="default") == 0
