"""Step-size schedules: pure functions of the step."""

from __future__ import annotations

from raychains.errors import UserError, unknown_name
from raychains.schedules.base import BURN_IN, EXPLORATION, SAMPLING, Schedule, Setting
from raychains.schedules.cyclical import Cyclical
from raychains.schedules.decreasing import Decreasing
from raychains.spec import Part

KINDS: dict[str, type[Schedule]] = {c.kind: c for c in (Cyclical, Decreasing)}

__all__ = ["BURN_IN", "EXPLORATION", "KINDS", "SAMPLING", "Cyclical", "Decreasing", "Schedule", "Setting", "build"]


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
