"""The stall policy: how long a chain or an evaluation may be silent before that is said, and before another worker takes over.

Everything is derived from the own pace of what is watched, as functions of what was heard and of the time that passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from raychains.planning import events

TIMEOUT = 30.0
"""Seconds of silence that are always allowed, unless the user says otherwise."""
SLOWEST = 20.0
"""A silence is a stall when it is so many times longer than the slowest interval between signs of life."""
FIRST = 10.0
"""The same in units of the timeout before two signs: imports, data and compilation have no pace yet."""
GIVEN_UP = 3.0
"""The work goes to another worker after so many times the silence that counts as a stall."""
FIRST_GIVEN_UP = 60.0
"""The same in units of the timeout before two signs."""
NO_ANSWER = "its worker does not answer"
LONGEST_LOOK = 5.0
"""Seconds between two looks that count as silence; what is longer was a pause of the driver itself."""


@dataclass
class Pace:
    """Signs of life of one kind, and the silence since the last one."""

    timeout: float = TIMEOUT
    patience: float = 1.0
    """Factor of all limits: each retry without progress doubles it, so that slow work is not cut off for ever."""
    silent: float = 0.0
    """Seconds since the last sign, or since the beginning."""
    slowest: float = 0.0
    """The longest interval between two signs."""
    signs: int = 0
    first: float = 0.0
    """Seconds until the first sign."""

    def heard(self, signs: int = 1) -> None:
        """Note so many signs, spread over the silence."""
        if not self.signs:
            self.first = self.silent
        else:
            # A stall that ended by itself is allowed to come again, but does not set the pace.
            usual = self.silent <= self.limit
            self.slowest = max(self.slowest, self.silent / signs if usual else self.silent / SLOWEST)
        self.silent = 0.0
        self.signs += signs

    @property
    def known(self) -> bool:
        """Return whether there is a pace: two signs have one interval."""
        return self.signs > 1

    @property
    def limit(self) -> float:
        """Seconds of silence after which it is a stall."""
        usual = max(self.timeout, SLOWEST * self.slowest) if self.known else self.timeout * FIRST
        return usual * self.patience

    @property
    def last_limit(self) -> float:
        """Seconds of silence after which it is given up; never less than twice the time of the first sign."""
        if not self.known:
            return self.timeout * FIRST_GIVEN_UP * self.patience
        return max(GIVEN_UP * self.limit, 2.0 * self.first)


@dataclass(frozen=True)
class Stall:
    """Something that was silent for longer than its pace explains."""

    seconds: float
    reason: str
    given_up: bool = False
    """Its worker is to be replaced."""


@dataclass
class ChainPace:
    """The steps of one attempt at a chain, and its worker's answers to the question where it is.

    Args:
        timeout: seconds of silence that are always allowed.
        failures: losses of the chain's workers since it last progressed.
    """

    timeout: float = TIMEOUT
    failures: int = 0
    steps: Pace = field(init=False)
    answers: Pace = field(init=False)
    told: bool = False
    """The stall at present was announced."""
    _made: int | None = None
    _held: str | None = None

    def __post_init__(self) -> None:
        self.steps, self.answers = Pace(self.timeout), Pace(self.timeout)
        self.allow(self.failures)

    def allow(self, failures: int) -> None:
        """Double all limits for each of so many losses."""
        self.steps.patience = self.answers.patience = 2.0**failures

    def passed(self, seconds: float, *, asked: bool) -> None:
        """Note that time passed; ``asked``: an answer of the worker is outstanding."""
        self.steps.silent += seconds
        if asked:
            self.answers.silent += seconds

    def answered(self, made: int, *, held: str | None = None, waiting: bool = False) -> None:
        """Note the worker's answer.

        Args:
            made: steps of the chain so far.
            held: why it makes none now although all is well with its process: another worker would fare no better.
            waiting: the storage is away, which is announced by itself.
        """
        self.answers.heard()
        self._held = held
        if waiting:
            self.steps.silent = 0.0
        elif self._made is not None and made > self._made:
            self.steps.heard(made - self._made)
        self._made = made

    def stall(self) -> Stall | None:
        """Return how it stalls; None where it does not."""
        steps, answers = self.steps, self.answers
        if answers.silent > answers.limit:
            # Before the first steps it may load data in one call that lets nothing else run.
            late = answers.silent > answers.last_limit if steps.known else steps.silent > steps.last_limit
            return Stall(answers.silent, NO_ANSWER, late)
        if steps.silent > steps.limit:
            what = "it makes no step" if steps.known else "it has not made two steps"
            what = NO_ANSWER if answers.silent > steps.silent / 2 else what
            late = steps.silent > steps.last_limit and self._held is None
            return Stall(steps.silent, f"{what}: {self._held}" if self._held is not None else what, late)
        return None

    def announce(self, callback: events.Callback, *, digest: str | None, slot: int, reason: str = "") -> Stall | None:
        """Return how it stalls, and tell the callback where that is new, or over.

        Args:
            callback: is told of chain ``digest`` in ``slot``.
            reason: instead of the stall's own.
        """
        stall = self.stall()
        if stall is not None and reason:
            stall = replace(stall, reason=reason)
        if stall is not None and not self.told:
            callback.on(events.Stalled(seconds=stall.seconds, reason=stall.reason, digest=digest, slot=slot))
        elif stall is None and self.told:
            callback.on(events.StallEnded(digest=digest))
        self.told = stall is not None
        return stall
