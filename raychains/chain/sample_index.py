"""The number of a chain's samples, and the position of each: functions of its spec alone."""

from __future__ import annotations

from raychains import samplers, schedules
from raychains.core.sample import SampleMeta
from raychains.core.spec import ChainSpec


def expected_samples(spec: ChainSpec, variable: str | None = None) -> int:
    """Return how many samples (or blocks) of all variables, or of one, the whole chain yields."""
    kept = schedules.build(spec.schedule).kept
    if spec.block_draws:
        kept = -(-kept // spec.block_draws)
    return kept * (samples_per_keep(spec) if variable is None else per_keep(spec)[variable])


def position(spec: ChainSpec, meta: SampleMeta) -> int:
    """Return the position of a sample among all samples of its chain, in the order in which the chain yields them, from
    0."""
    counts = per_keep(spec)
    before = list(counts).index(meta.variable)
    keep, nth = divmod(meta.index, counts[meta.variable])
    return keep * samples_per_keep(spec) + sum(list(counts.values())[:before]) + nth


def per_keep(spec: ChainSpec) -> dict[str, int]:
    """Return the samples of each variable that one kept step, or one block of them, yields."""
    variables = samplers.variables(spec.sampler)
    return dict.fromkeys(variables, 1) if spec.block_draws else dict(variables)


def samples_per_keep(spec: ChainSpec) -> int:
    """Return the samples of all variables that one kept step, or one block of them, yields."""
    return sum(per_keep(spec).values())
