"""Checks of packs on one torch device: a chain's bytes in any row, and its path beside the same chain's by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import nn

from raychains import samplers, tasks
from raychains.chain.chain import Chain
from raychains.chain.pack import Pack
from raychains.core.spec import ChainSpec, Part
from raychains.schedules import Constant
from raychains.tasks import Task
from tests.chain.chain_cases import HALF, json_of, outcome, run, spec, state_hash
from tests.gpu.runs import Measured

WIDTH = 3
STEPS = 2 * HALF
ROUNDING = 1e-3
"""Largest difference from the chain by itself, as a share of the largest parameter's size: 24 steps of single precision
have rounding errors of some 1e-6, which products of other shapes, and MCLMC's divisions by norms, enlarge; other noise
differs by 1e-1."""

Checks = dict[str, tuple[str, Callable[[], Measured]]]
"""By name: the sampler's kind, and the check."""


def curve(dropout: bool) -> Task:
    """37 data of a curve under a small network."""
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(37, 3, generator=drawn)
    y = x[:, :1].sin() + 0.1 * torch.randn(37, 1, generator=drawn)
    middle = [nn.Dropout(0.2)] if dropout else []
    return Task.from_module(
        lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), *middle, nn.Linear(8, 1)),
        (x, y),
        (x[:4], y[:4]),
        "gaussian",
        noise=0.5,
        name="dropped curve" if dropout else "curve",
    )


def digits(sampler: str) -> tuple[ChainSpec, None]:
    return spec("digits", sampler, pack=WIDTH), None


def mixture(sampler: str) -> tuple[ChainSpec, None]:
    one = spec("mixture", sampler, pack=WIDTH)
    settings = {n: v for n, v in one.sampler.settings.items() if not n.startswith(("thermostat", "freeze"))}
    return dataclasses.replace(one, sampler=dataclasses.replace(one.sampler, settings=settings)), None


def regression(
    sampler: str, *, dropout: bool = False, precision: str = "fp32", **settings: Any
) -> tuple[ChainSpec, Task]:
    """Full batches of the curve under a constant step size."""
    task, kind = curve(dropout), samplers.KINDS[sampler]
    own = {"num_data": task.num_data, "weight_decay": 1e-3, **settings}
    fields: dict[str, Any] = {
        "task": task.spec(),
        "sampler": Part(kind=sampler, revision=kind.revision, settings=own),
        "schedule": Constant(steps=STEPS, lr=0.02, samples=4, noise_from=0.0).part(),
        "steps_per_epoch": 1,
        "batch_size": task.num_data,
        "precision": precision,
    }
    return dataclasses.replace(digits("sghmc")[0], **fields), task


CASES: dict[str, Callable[[], tuple[ChainSpec, Task | None]]] = {
    "sghmc": partial(digits, "sghmc"),
    "sgld": partial(digits, "sgld"),
    "emcmc": partial(digits, "emcmc"),
    "swag": partial(digits, "swag"),
    "sam": partial(digits, "sam"),
    "bsam-dropout": partial(regression, "bsam", dropout=True),
    "laplace": partial(digits, "laplace"),
    "sghmc-dropout": partial(regression, "sghmc", dropout=True, momentum=0.9),
    "sghmc-mixture": partial(mixture, "sghmc"),
    "sgnht-mixture": partial(mixture, "sgnht"),
    "mclmc": partial(regression, "mclmc"),
    # The energy's errors, which the step size follows, are small differences.
    "mile": partial(regression, "mclmc", precision="fp64", tune=16, preconditioner="diagonal"),
}


def checks(device: str) -> Checks:
    """Return the checks by name, each with its sampler's kind."""
    kinds = {name: make()[0].sampler.kind for name, make in CASES.items()}
    return {f"pack/{name}": (kind, partial(compare, name, device)) for name, kind in kinds.items()}


def compare(name: str, device: str) -> Measured:
    """A chain in each row beside two others against the same alone in its pack, also through a stop, and against it
    unpacked."""
    one, task = CASES[name]()

    def chain(**change: Any) -> Chain:
        own = task if task is not None else tasks.build(one.task)
        return Chain(dataclasses.replace(one, **change), own, device=device)

    alone = chain()
    straight = outcome(alone, run(alone))
    if not any(isinstance(event, list) for event in straight["events"]):
        raise RuntimeError("the chain has no samples")
    for row in (0, WIDTH - 1):
        members = [chain(chain=10 + i) for i in range(WIDTH - 1)]
        members.insert(row, chain())
        yield f"events and states that differ, in row {row} of {WIDTH}", differing(members, row, straight), 0, 0
    halves = run(resumed := chain(), HALF)
    state = resumed.state_dict()
    resumed = chain()
    resumed.load_state_dict(state)
    members = [chain(chain=10), resumed]
    told = json_of(halves)
    yield "events and states that differ, behind a stop", differing(members, 1, straight, told), 0, 0
    by_itself = chain(pack=0)
    run(by_itself)
    pairs = list(zip(alone.sampled.values(), by_itself.sampled.values(), strict=True))
    size = max(float(q.detach().abs().max()) for _, q in pairs)
    away = max(float((p.detach() - q.detach()).abs().max()) for p, q in pairs)
    yield "largest difference from the chain by itself / largest parameter", away / size, 0, ROUNDING


def differing(members: Sequence[Chain], row: int, straight: dict[str, Any], before: Sequence[Any] = ()) -> int:
    """Run members of one pack to their ends; return how many of a chain's events, and its state, are not the straight
    ones."""
    pack = Pack(members[0])
    for member in members:
        member.join(pack)

    def through(member: Chain) -> list[Any]:
        try:
            return json_of(run(member))
        finally:
            member.leave()

    with ThreadPoolExecutor(len(members)) as threads:
        told = [*before, *list(threads.map(through, members))[row]]
    events = sum(a != b for a, b in zip_longest(told, straight["events"]))
    return events + (state_hash(members[row]) != straight["state"])
