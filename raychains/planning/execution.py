"""How chains are carried out: the workers of each, micro-batches and packs, from the options."""

from __future__ import annotations

import dataclasses
import math

from raychains.chain import packable, planned_network
from raychains.core.spec import ChainSpec
from raychains.planning.method_settings import MethodSettings


def micro_batch(s: MethodSettings) -> int | None:
    """Return the examples of a micro-batch; None where a batch is taken whole."""
    if s.options.micro_batch is None and s.options.workers > 1:
        return math.ceil(s.lengths.batch_size / s.options.workers)
    return s.options.micro_batch


PACKED, SMALL = 20, 50_000
"""Chains of a pack, and parameters of a chain, up to which ``auto`` packs.

Measured on one thread of a CPU, SGHMC, by CPU time per chain and step against chains by themselves
(`benchmarks/packs.py`): with 20 chains 2.5 times as fast at 17,610 parameters in batches of 50, 3.4 times at 946 on
1,202 data; an earlier version with 5 chains 2.0 and 2.4 times, with one chain alone .9 and 1.4 times. Of samplers that
move each chain by itself, with 20 chains at 17,610 parameters: SAM 1.9, bSAM 1.5, Laplace 1.1 times. Larger networks
spend their steps in their products.
"""


def pack_refusal(s: MethodSettings, spec: ChainSpec) -> str | None:
    """Return why chains of a spec cannot be packed, where the options ask for packs; None where they can."""
    compiled = s.task.low_dimensional and spec.compile != "none"  # packs do that
    if s.options.pack == "none" and not compiled:
        return None
    return packable.refusal(dataclasses.replace(spec, pack=1), s.task)


def pack_width(s: MethodSettings, spec: ChainSpec, why: str | None) -> int:
    """Return the width of the packs of chains of a spec, which cannot be packed because of ``why``; 0 steps each by
    itself."""
    asked, task = s.options.pack, s.task
    compiled = task.low_dimensional and spec.compile != "none"
    if asked == "none":
        return int(compiled)
    if asked != "auto":
        return int(asked)
    width = min(PACKED, s.options.chains * s.repeats)
    if compiled:
        return width
    if width == 1 or s.options.workers > 1 or task.low_dimensional or why is not None:
        return 0
    return width if planned_network.parameters_of(task) <= SMALL else 0
