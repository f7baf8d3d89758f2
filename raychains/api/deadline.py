"""The hours that a person gives a command that runs many things one after another, and who listens to all of them."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from raychains.listeners import Listeners
from raychains.planning import listener as told


class OutOfTime(Exception):
    """The hours that the person gave are over."""


@dataclass
class Clock:
    """The end of the time that the person gave; a listener that stops a run when it comes."""

    until: float | None
    rang: bool = field(default=False)

    @property
    def over(self) -> bool:
        """Whether it has come."""
        return self.until is not None and time.monotonic() >= self.until

    def check(self) -> None:
        """Raise `OutOfTime` if it has."""
        if self.over:
            raise OutOfTime

    def on(self, happening: told.Happening) -> None:
        """Stop what runs as Ctrl-C does: chains write checkpoints, and all goes on another time."""
        if isinstance(happening, told.Tick | told.Measuring) and self.over and not self.rang:
            self.rang = True
            signal.raise_signal(signal.SIGINT)


@dataclass(frozen=True)
class Told:
    """Hands on to listeners that outlive one run: whoever closes its own at a run's end does not close them."""

    listeners: Listeners

    def on(self, happening: told.Happening) -> None:
        """Tell them."""
        self.listeners.on(happening)
