"""The division of `raychains run --budget` into chains and cycles that came nearest to true posteriors at about as many steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from raychains import samplers
from raychains.core.config import Run
from raychains.core.errors import require
from raychains.planning import draws, methods
from raychains.tasks import Task

SAMPLER, EXPLORATION = "csghmc", 0.5
"""The method and the β of all ways that are chosen."""
DRAWS = 48
"""Kept draws of all chains together, at least, where there is room."""


@dataclass(frozen=True)
class Division:
    """One way to divide a budget."""

    chains: int
    cycles: int
    """Cycles of each chain."""
    ratio: float
    """Total variation to the true posterior's predictive over the smallest of all minibatch methods and divisions, mean of four data sets."""


NEAREST: Mapping[int, tuple[Division, ...]] = {
    2_000: (Division(1, 4, 1.13), Division(2, 4, 1.19), Division(4, 1, 1.24), Division(8, 1, 1.39)),
    8_000: (Division(1, 4, 1.27), Division(2, 4, 1.11), Division(4, 4, 1.07), Division(8, 1, 1.18)),
    30_000: (Division(1, 4, 1.51), Division(2, 4, 1.27), Division(4, 4, 1.09), Division(8, 4, 1.04)),
}
"""By about so many steps of all chains together the better of 1 and 4 cycles for each number of chains:
docs/results/posterior-budgets."""
MOST_CHAINS = 8
LEAST_STEPS = 16
"""The fewest of a cycle; shorter chains have a single cycle."""
CHOSEN = ("sampler", "schedule", "chains", "cycles", "exploration", "burn_in", "epochs", "steps")
"""Options that a budget chooses."""
DEFAULTS = {f.name: f.default for f in dataclasses.fields(Run)}


def spend(options: Run, task: Task) -> tuple[Run, str]:
    """Return the options with the method, chains, epochs, cycles and β that a budget chooses, and the reason in a line.

    There are at least as many chains as run at once by ``concurrent``, up to `MOST_CHAINS`.

    Raises:
        UserError: a density, an option that the budget chooses, or fewer epochs than chains that run at once.
    """
    budget, name, method = options.budget, options.task, samplers.method(SAMPLER)
    assert budget is not None
    require(not task.low_dimensional, "budget", budget, f"be left out for task {name}, which has no epochs: give steps")
    for field in CHOSEN:
        given = getattr(options, field)
        require(given == DEFAULTS[field], field, given, "be left out beside `budget`, which chooses it")
    at_once = min(options.concurrent or 1, MOST_CHAINS)
    least = min(d.chains for ways in NEAREST.values() for d in ways if d.chains >= at_once)
    require(budget >= least, "budget", budget, f"be at least an epoch for each of {least} chains")
    batch = (
        options.batch_size
        if options.batch_size is not None
        else methods.defaults(name, task).of(method.kind).batch_size
    )
    per_epoch = math.ceil(task.num_data / batch)
    steps = budget * per_epoch
    tried = min(NEAREST, key=lambda known: abs(math.log(known / steps)))
    best = min((d for d in NEAREST[tried] if at_once <= d.chains <= budget), key=lambda d: d.ratio)
    epochs = budget // best.chains
    length = epochs * per_epoch
    require(length > 1, "budget", budget, "give every chain two steps")
    if length < LEAST_STEPS * best.cycles:
        best = dataclasses.replace(best, cycles=1)
    own = draws.cyclical(length, _kept(options, best, length), best.cycles, EXPLORATION)
    if options.thinning is not None:
        own["thinning"] = options.thinning
    chains, cycles = (f"{n} {word}{'s' * (n > 1)}" for n, word in ((best.chains, "chain"), (best.cycles, "cycle")))
    beside = f" with at least {at_once} chains" * (at_once > 1)
    reason = (
        f"budget of {budget:,} epochs a repeat ({steps:,} steps): {method.label}, {chains} of {epochs:,} epochs and {cycles}, β = {EXPLORATION}; "
        f"at about {tried:,} steps nearest to true posteriors of the divisions that were tried{beside} (docs/how-to/budget.md)"
    )
    return dataclasses.replace(options, budget=None, sampler=SAMPLER, chains=best.chains, epochs=epochs, **own), reason


def _kept(options: Run, best: Division, steps: int) -> int:
    """Return the draws that a chain of so many steps keeps: those that are asked for, else its part of `DRAWS` as far as there is room."""
    if options.samples_per_cycle is not None:
        return options.samples_per_cycle * best.cycles
    room = (int((1 - EXPLORATION) * (steps // best.cycles)) - 1) // (options.thinning or 1)
    return best.cycles * max(1, min(math.ceil(DRAWS / best.chains / best.cycles), room))
