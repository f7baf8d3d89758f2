"""How `raychains run --budget` spends epochs: as the chains did that came nearest to true posteriors at about as many steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raychains import samplers
from raychains.core.config import Run
from raychains.core.errors import require
from raychains.planning import draws, methods
from raychains.tasks import Task

SAMPLER, EXPLORATION = "csghmc", 0.5
"""The method and the β of all ways that are chosen."""
DRAWS = 48
"""Kept draws of all chains together."""


@dataclass(frozen=True)
class Way:
    """One way to divide a budget."""

    chains: int
    cycles: int
    ratio: float
    """Total variation to the true posterior's predictive over that of the nearest way of any method, the mean of four data sets."""


NEAREST: Mapping[int, tuple[Way, ...]] = {
    2_000: (Way(1, 4, 1.13), Way(2, 4, 1.19), Way(4, 1, 1.24), Way(8, 1, 1.39)),
    8_000: (Way(1, 4, 1.27), Way(2, 4, 1.11), Way(4, 4, 1.07), Way(8, 1, 1.18)),
    30_000: (Way(1, 4, 1.51), Way(2, 4, 1.27), Way(4, 4, 1.09), Way(8, 4, 1.04)),
}
"""By about so many steps of all chains together the nearest way of each number of chains: docs/results/posterior-budgets."""
CHOSEN = ("sampler", "schedule", "chains", "cycles", "exploration", "burn_in", "epochs", "steps")
"""Options that a budget chooses."""
DEFAULTS = {f.name: f.default for f in dataclasses.fields(Run)}


def spend(options: Run, task: Task) -> tuple[Run, str]:
    """Return the options with the method, chains, epochs, cycles and β of a budget, and the reason in a line.

    Chains are at least as many as run at once, as far as `options` say that, so that no slot is idle.

    Raises:
        UserError: a density, an option that the budget chooses, or fewer epochs than chains.
    """
    budget, name = options.budget, options.task
    assert budget is not None
    require(not task.low_dimensional, "budget", budget, f"be left out for task {name}, which has no epochs: give steps")
    for field in CHOSEN:
        given = getattr(options, field)
        require(given == DEFAULTS[field], field, given, "be left out beside budget, which chooses it")
    at_once = min(options.concurrent or 1, max(way.chains for ways in NEAREST.values() for way in ways))
    require(budget >= at_once, "budget", budget, f"be at least an epoch for each of {at_once} chains that run at once")
    base = methods.defaults(name, task).of(samplers.method(SAMPLER).kind)
    per_epoch = math.ceil(task.num_data / (options.batch_size if options.batch_size is not None else base.batch_size))
    steps = budget * per_epoch
    tried = min(NEAREST, key=lambda known: abs(math.log(known / steps)))
    way = min((w for w in NEAREST[tried] if at_once <= w.chains <= budget), key=lambda w: w.ratio)
    epochs = budget // way.chains
    own: dict[str, Any] = {"sampler": SAMPLER, "chains": way.chains, "epochs": epochs}
    own |= draws.cyclical(epochs * per_epoch, DRAWS // way.chains, way.cycles, EXPLORATION)
    own |= {
        field: given for field in ("samples_per_cycle", "thinning") if (given := getattr(options, field)) is not None
    }
    label, plural = samplers.method(SAMPLER).label, "s" * (way.chains > 1)
    beside = f", of those with at least {at_once} chains" * (at_once > 1)
    reason = (
        f"budget of {budget:,} epochs ({steps:,} steps): {label}, {way.chains} chain{plural} of {epochs:,} epochs and {way.cycles} cycles, "
        f"β = {EXPLORATION}; of the ways tried at about {tried:,} steps it came nearest to true posteriors{beside} (docs/how-to/budget.md)"
    )
    return dataclasses.replace(options, budget=None, **own), reason
