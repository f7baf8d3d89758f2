"""`plan`: what a comparison will cost, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raychains.data.root import rooted
from raychains.errors import require
from raychains.options import Plan
from raychains.planning import Budget, budget
from raychains.schedules.base import is_number, positive_int
from raychains.store import Root

if TYPE_CHECKING:
    from raychains.planning import Comparison
    from raychains.planning.costs import Costs


def plan(options: Plan) -> tuple[Comparison, Budget, Costs]:
    """The comparison that `compare` with these options would run, its ledger and its costs.

    Raises:
        UserError: a setting out of range.
    """
    from raychains import tasks
    from raychains.experiments import comparisons
    from raychains.planning.costs import costs
    from raychains.store import opening

    for field in ("images_per_second", "price"):
        value = getattr(options, field)
        require(value is None or (is_number(value) and value > 0), field, value, "be a finite number above 0")
    if options.devices is not None:
        positive_int("devices", options.devices)
    with rooted(options.data_root):
        comparison = comparisons.compare(options).comparison
        done = opening.finished(Root(options.store), comparison.chains())
        return comparison, budget(comparison, done), costs(comparison, tasks.build(comparison.task_spec), done)
