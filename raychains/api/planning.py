"""`plan`: what a comparison will cost, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raychains.data.root import rooted
from raychains.errors import UserError, require
from raychains.options import Plan
from raychains.planning import Budget, budget
from raychains.schedules.base import is_number, positive_int
from raychains.store import Root

if TYPE_CHECKING:
    from raychains.planning import Comparison
    from raychains.planning.costs import Costs


def rate(options: Plan) -> float | None:
    """Gradient evaluations a second of one slot: as given, or as the finished chains of ``measured_on`` had; None: neither.

    Raises:
        UserError: no such run, or none of its chains is finished.
    """
    from raychains.api.result import load
    from raychains.planning import gradient_evaluations
    from raychains.store import ChainStore, opening

    if options.measured_on is None:
        return options.images_per_second
    run = load(options.measured_on)
    chains, root = run.comparison.chains(), run.store.root
    finished = opening.finished(root, chains)
    seconds = sum(ChainStore(root, digest).seconds() for digest in finished)
    if not seconds:
        raise UserError(f"measured_on must be a run with finished chains, got {options.measured_on!r}")
    return sum(gradient_evaluations(chains[digest]) for digest in finished) / seconds


def plan(options: Plan) -> tuple[Comparison, Budget, Costs]:
    """The comparison that `compare` with these options would run, its ledger and its costs.

    Raises:
        UserError: a setting out of range.
    """
    from raychains import tasks
    from raychains.experiments import comparisons
    from raychains.planning.costs import costs
    from raychains.store import opening

    if options.measured_on is not None and options.images_per_second is not None:
        raise UserError(f"measured_on must be left out beside images_per_second, got {options.measured_on!r}")
    for field in ("images_per_second", "price"):
        value = getattr(options, field)
        require(value is None or (is_number(value) and value > 0), field, value, "be a finite number above 0")
    if options.devices is not None:
        positive_int("devices", options.devices)
    with rooted(options.data_root):
        comparison = comparisons.compare(options).comparison
        done = opening.finished(Root(options.store), comparison.chains())
        return comparison, budget(comparison, done), costs(comparison, tasks.build(comparison.task_spec), done)
