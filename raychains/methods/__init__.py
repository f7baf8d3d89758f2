"""Methods: a name and a task give sampler, schedule and the paper's settings; the only way to a `ChainSpec`."""

from raychains.methods.defaults import DEFAULTS, Defaults, defaults
from raychains.methods.names import METHODS, Named, label, named, noise_free
from raychains.methods.resolve import (
    BLOCK_DRAWS,
    Method,
    check_chains,
    check_total,
    check_used,
    make_task,
    repeats_and_lanes,
    resolve,
)
from raychains.methods.workers import workers_of

__all__ = [
    "BLOCK_DRAWS", "DEFAULTS", "METHODS", "Defaults", "Method", "Named", "check_chains", "check_total", "check_used",
    "defaults", "label", "make_task", "named", "noise_free", "repeats_and_lanes", "resolve",
    "workers_of",
]  # fmt: skip
