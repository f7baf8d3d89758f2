"""All draws of a low-dimensional chain, with the step and the cycle of each, from its stored blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raychains import schedules
from raychains.evaluation.base import Array
from raychains.sample import THETA
from raychains.spec import ChainSpec
from raychains.store import ChainStore, Root, codec


@dataclass(frozen=True, kw_only=True)
class Draws:
    """One variable's draws in their order."""

    values: Array
    """[draws, lanes, dim], all parameters side by side in the model's order."""
    step: Array
    """[draws], the step after which each was kept."""
    cycle: Array
    """[draws], from 0."""


def read(root: Root, spec: ChainSpec, variable: str = THETA) -> Draws:
    """The draws of one finished chain.

    Raises:
        Corrupt: a block is torn or altered.
    """
    store = ChainStore(root, spec.digest)
    blocks = []
    for record in store.records():
        if record.meta.variable == variable:
            tensors = codec.decode(store.read_sample(record.file))[0]
            parts = [t.numpy().reshape(*t.shape[:2], -1) for t in tensors.values()]
            blocks.append(np.concatenate(parts, axis=2))
    values = np.concatenate(blocks)
    schedule = schedules.build(spec.schedule)
    kept = [(k, setting.cycle) for k in range(1, spec.steps + 1) if (setting := schedule.at(k)).keep]
    # A sampler may yield several draws of a variable at each kept step.
    each = np.repeat(np.array(kept), len(values) // len(kept), axis=0)
    return Draws(values=values, step=each[:, 0], cycle=each[:, 1])
