"""Stored runs of densities whose draws a test makes itself, and what an analysis of one is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from raychains import tasks
from raychains.core.sample import Sample
from raychains.evaluation.evaluation import Array
from raychains.measures import Context
from raychains.planning import Comparison
from raychains.schedules import Constant
from raychains.schedules.schedule import Schedule
from raychains.store import ChainStore, RunStore, Storage
from raychains.tasks import Task
from tests.measures.made import context_of
from tests.orchestration.worlds import arm_of, chain_spec, meta

BLOCK = 300


def stored(
    folder: Path,
    task: Task,
    chains: Sequence[Array],
    *,
    schedule: Schedule | None = None,
    temperature: float = 1.0,
    sampler: str = "sgld",
    variables: dict[str, Sequence[Array]] | None = None,
    **settings: Any,
) -> Context:
    """One arm whose chains drew θ as given, [draws, lanes, dim] each; ``variables`` are drawn beside it."""
    draws, lanes = chains[0].shape[:2]
    schedule = schedule if schedule is not None else Constant(lr=0.1, steps=draws, temperature=temperature)
    assert schedule.kept == draws
    specs = [
        chain_spec(task, sampler, schedule, settings, chain=c, lanes=lanes, block_draws=BLOCK)
        for c in range(len(chains))
    ]
    root = Storage(folder)
    for c, spec in enumerate(specs):
        store = ChainStore(root, spec.digest)
        store.begin(spec, 1, {})
        for variable, values in {"theta": chains, **(variables or {})}.items():
            publish(store, variable, values[c])
    plan = Comparison(task=tasks.name_of(task), unit="steps", split="target", arms=(arm_of("arm", *specs),))
    return context_of(RunStore(root, "made"), plan, "target", task)


def publish(store: ChainStore, variable: str, values: Array) -> None:
    """One chain's draws [draws, lanes, dim] as blocks."""
    for index, start in enumerate(range(0, len(values), BLOCK)):
        block = torch.from_numpy(values[start : start + BLOCK].copy())
        about = meta(store.digest, index, variable=variable, epoch=0, step=start + len(block), draws=len(block))
        store.publish_sample(Sample(meta=about, tensors={"theta": block}), 1, {})
