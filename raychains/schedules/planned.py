"""A stored run's own schedule as its plan describes it, for readers that do not import its class."""

from __future__ import annotations

from dataclasses import dataclass, field

from raychains.core.errors import UserError
from raychains.core.spec import Part
from raychains.schedules.schedule import Schedule, ScheduleValues


@dataclass(frozen=True, kw_only=True)
class PlannedSchedule(Schedule):
    """The length, temperature, draws and cycles of a user's schedule; its values at a step need its class."""

    path: str
    """The import path of the class."""
    draws: int
    """`kept`."""
    cycles: int = field(default=1)
    """`cycle_count`."""

    @classmethod
    def of(cls, part: Part) -> PlannedSchedule:
        """Return the schedule of a part with facts.

        Raises:
            UserError: facts or settings of the wrong kind.
        """
        facts = part.facts or {}
        carried = {name: part.settings[name] for name in ("steps", "temperature", "ramp") if name in part.settings}
        try:
            made = cls(path=part.kind, draws=facts["kept"], cycles=facts["cycle_count"], **carried)
        except (KeyError, TypeError) as error:
            raise UserError(f"schedule {part.kind}: the plan lacks {error}") from None
        object.__setattr__(made, "kind", part.kind)
        return made

    def at(self, step: int) -> ScheduleValues:
        raise UserError(
            f"schedule {self.path} must be imported for its values at each step, and be the class that the run was "
            "planned with: its names are imported only with `trust=True`"
        )

    @property
    def kept(self) -> int:
        return self.draws

    @property
    def cycle_count(self) -> int:
        return self.cycles
