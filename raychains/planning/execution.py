"""How many chains one worker steps as one program, from the options."""

from __future__ import annotations

import dataclasses

from raychains.chain import packable, planned_network
from raychains.core.errors import require
from raychains.core.spec import ChainSpec
from raychains.planning.method_settings import MethodSettings

PACKED, SMALL = 20, 50_000
"""Chains of a pack, and parameters of a chain, up to which ``auto`` packs.

Measured on one thread of a CPU, SGHMC, by CPU time per chain and step against chains by themselves
(`benchmarks/packs.py`): with 20 chains 2.5 times as fast at 17,610 parameters in batches of 50, 3.4 times at 946 on
1,202 data; an earlier version with 5 chains 2.0 and 2.4 times, with one chain alone .9 and 1.4 times. Of samplers that
move each chain by itself, with 20 chains at 17,610 parameters: SAM 1.9, bSAM 1.5, Laplace 1.1 times. Larger networks
spend their steps in their products.
"""


def pack_width(s: MethodSettings, spec: ChainSpec) -> int:
    """Return the width of the packs of chains of a spec; 0 steps each by itself.

    Raises:
        UserError: a pack, or compiled steps of a density, of chains that cannot be packed.
    """
    asked, task, workers = s.options.pack, s.task, s.options.workers
    compiled = task.low_dimensional and spec.compile != "none"  # packs do that
    if asked == "none" and not compiled:
        return 0
    why = packable.refusal(dataclasses.replace(spec, pack=1), task)
    require(why is None or not compiled, "compile", spec.compile, f"be none for task {s.name} here: {why}")
    if asked == "none":
        return 1
    if asked == "auto":
        width = min(PACKED, s.options.chains * s.repeats)
        if compiled:
            return width
        if width == 1 or workers > 1 or task.low_dimensional or why is not None:
            return 0
        return width if planned_network.parameters_of(task) <= SMALL else 0
    require(workers == 1, "pack", asked, "be none for chains of several workers")
    require(why is None, "pack", asked, f"be left out for this chain: {why}")
    return int(asked)
