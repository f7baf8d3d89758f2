"""Step-size and temperature schedules: pure functions of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raychains.errors import UserError, unknown_name
from raychains.schedules.base import BURN_IN, EXPLORATION, SAMPLING, Schedule, Setting
from raychains.schedules.cyclical import Cyclical
from raychains.schedules.decreasing import Decreasing
from raychains.schedules.shapes import Constant, Exponential, Linear, Step
from raychains.schedules.straight import Straight
from raychains.spec import Part

KINDS: dict[str, type[Schedule]] = {c.kind: c for c in (Cyclical, Decreasing, Constant, Linear, Exponential, Step)}

__all__ = [
    "BURN_IN", "EXPLORATION", "KINDS", "SAMPLING", "Constant", "Cyclical", "Decreasing", "Exponential", "Linear",
    "Schedule", "ScheduleLR", "Setting", "Step", "Straight", "build",
]  # fmt: skip

if TYPE_CHECKING:
    from raychains.schedules.adapter import ScheduleLR
else:

    def __getattr__(name: str) -> Any:  # the adapter is torch's and is loaded on first use
        if name != "ScheduleLR":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from raychains.schedules.adapter import ScheduleLR

        return ScheduleLR


def build(part: Part) -> Schedule:
    """The schedule that a spec's part describes.

    Raises:
        UserError: an unknown kind, another revision, or settings that the schedule refuses.
    """
    if part.kind not in KINDS:
        raise unknown_name("schedule", part.kind, KINDS)
    kind = KINDS[part.kind]
    if part.revision != kind.revision:
        raise UserError(f"schedule {part.kind} revision must be {kind.revision} for this version, got {part.revision}")
    try:
        return kind(**part.settings)
    except TypeError as error:
        raise UserError(f"schedule {part.kind}: {error}") from None
