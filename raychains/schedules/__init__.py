"""Step-size and temperature schedules: pure functions of the step.

Every file of this folder is searched for schedules, so that a new one is registered by being there. A user's own
schedule is named by its import path, ``module:Class``, or by the short name that its package gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raychains.core import registry
from raychains.core.registry import Kinds
from raychains.core.spec import Part
from raychains.schedules.cyclical import Cyclical
from raychains.schedules.decreasing import Decreasing
from raychains.schedules.planned import PlannedSchedule
from raychains.schedules.schedule import BURN_IN, EXPLORATION, SAMPLING, NonCyclical, Schedule, ScheduleValues
from raychains.schedules.shapes import Constant, Exponential, Linear, Step

__all__ = [
    "BURN_IN",
    "EXPLORATION",
    "KINDS",
    "SAMPLING",
    "Constant",
    "Cyclical",
    "Decreasing",
    "Exponential",
    "Linear",
    "NonCyclical",
    "Schedule",
    "ScheduleLR",
    "ScheduleValues",
    "Step",
    "build",
    "facts",
]

if TYPE_CHECKING:
    from raychains.schedules.adapter import ScheduleLR
else:

    def __getattr__(name: str) -> Any:  # the adapter is torch's and is loaded on first use
        if name != "ScheduleLR":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from raychains.schedules.adapter import ScheduleLR

        return ScheduleLR


KINDS: Kinds[Schedule] = Kinds("schedule", Schedule, __name__, skip=("adapter", "planned"))


def build(part: Part) -> Schedule:
    """Build the schedule that a spec's part describes; of a stored plan's that is not imported, what the plan says of
    it.

    Raises:
        UserError: an unknown kind, another revision or source, or settings that the schedule refuses.
    """
    if part.facts is not None and not registry.is_usable(KINDS, part):
        return PlannedSchedule.of(part)
    return registry.build("schedule", KINDS, part)


def facts(part: Part) -> dict[str, Any]:
    """Return what a plan stores of a user's schedule, for `Part.facts`."""
    schedule = build(part)
    return {"kept": schedule.kept, "cycle_count": schedule.cycle_count}
