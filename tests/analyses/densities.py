"""Stored runs of densities whose draws a test makes itself, and what an analysis of one is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from raychains import tasks
from raychains.analyses import Context
from raychains.evaluation.base import Array
from raychains.planning import Arm, Comparison
from raychains.sample import Sample, SampleMeta
from raychains.samplers import KINDS
from raychains.schedules import Constant, Cyclical
from raychains.schedules.base import Schedule
from raychains.spec import ChainSpec, Part
from raychains.store import ChainStore, Root, RunStore
from raychains.tasks import Task

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
    part = Part(kind=sampler, revision=KINDS[sampler].revision, settings={"num_data": task.num_data, **settings})
    specs = tuple(
        ChainSpec(
            task=task.spec(), sampler=part, schedule=schedule.part(), steps=schedule.steps, steps_per_epoch=1,
            batch_size=1, seed=3, repeat=0, chain=c, lanes=lanes, block_draws=BLOCK,
        )
        for c in range(len(chains))
    )  # fmt: skip
    root = Root(folder)
    for c, spec in enumerate(specs):
        store = ChainStore(root, spec.digest)
        store.begin(spec, 1, {})
        for variable, values in {"theta": chains, **(variables or {})}.items():
            publish(store, variable, values[c])
    kind = "cyclical" if isinstance(schedule, Cyclical) else "constant"
    arm = Arm(
        name="arm", label="The arm", sampler=sampler, schedule=kind, chains=(specs,), length=schedule.steps,
        published={},
    )  # fmt: skip
    plan = Comparison(task=tasks.name_of(task), unit="steps", split="target", arms=(arm,))
    return Context(
        store=RunStore(root, "made"),
        comparison=plan,
        split="target",
        task=task,
        groups=[(0, 0)],
        select=lambda arm, group: None,  # type: ignore[arg-type, return-value]
        evaluate=lambda split, requests: [],
        predictions=lambda arm, group: iter(()),
        measure=lambda split, points: [],
    )


def publish(store: ChainStore, variable: str, values: Array) -> None:
    """One chain's draws [draws, lanes, dim] as blocks."""
    for index, start in enumerate(range(0, len(values), BLOCK)):
        block = torch.from_numpy(values[start : start + BLOCK].copy())
        meta = SampleMeta(
            digest=store.digest, index=index, variable=variable, cycle=0, epoch=0, step=start + len(block), lr=0.1,
            temperature=1.0, stage="sampling", train_nll=None, draws=len(block),
        )  # fmt: skip
        store.publish_sample(Sample(meta=meta, tensors={"theta": block}), 1, {})
