"""Decides on chains and evaluations whose worker dies, stalls or is on a draining node, and on chains that diverge.

These are functions of what happened and of the time that passed; they know neither Ray nor a clock.

- **A worker dies**, or its node: its chain goes on from its newest checkpoint on another one (`FailurePolicy.lost`); an
  evaluator's job is done again (`check_job`). `raychains.orchestration.chains.error_classification` says which
  errors count as a death.
- **It stalls**: it is silent for longer than its own pace explains (`ChainPace`, `EvaluatorPace`). That is announced;
  after a longer silence its process is ended, and then it died.
- **Its node is draining**: a cloud takes a spot machine back. Its chain writes a checkpoint after the current step and
  goes on elsewhere, which is no failure (`FailurePolicy.preempted`). `ChainDispatch._leave_draining_nodes` in
  `raychains.orchestration.run.chain_dispatch` hears of it and hands the coordinator's `Suspend` on, which
  `Attempt.suspend` in `raychains.orchestration.chains.attempt` obeys. An evaluator does the jobs that it has and is
  given no more (`raychains.orchestration.run.evaluator_pool`).
- **A chain diverges**: `FailurePolicy.diverged`. An error that it raised itself would recur at the same step: it fails
  at once.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from raychains.core.errors import RaychainsError, last_line
from raychains.planning import events

Policy = Literal["stop", "restart-cycle", "drop-chain"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
"""Policies for a divergence: the chain fails; it goes back to its cycle's start with fresh noise, and fails
after too many times; or its arm is evaluated without it."""
MAX_FAILURES = 3
"""Losses in a row without progress that a chain survives."""
ATTEMPTS = 10
"""Evaluators or objects that one job may lose before it is given up: a sample may be what kills them."""
DRAIN_POLL = 1.0
"""Seconds between looks at draining nodes, which have 30 seconds as a rule."""


# Failures


@dataclass(frozen=True)
class Verdict:
    """What becomes of a chain, and why."""

    remedy: Literal["again", "restart", "drop", "fail"] = "again"
    """Go on from the newest checkpoint; go back on fresh noise; give up the chain alone; give up the chain and its
    arm."""
    reason: str = ""
    alone: bool = False
    """It goes on in a process of its own: the next loss would give it up."""

    def of_those_at(self, digest: str) -> Verdict:
        """Return what becomes of the chains that start at chain ``digest``, which is given up."""
        what = "was dropped" if self.remedy == "drop" else "failed"
        return replace(self, reason=f"chain {digest[:12]}, which it starts at, {what}: {last_line(self.reason)}")


@dataclass(frozen=True)
class FailurePolicy:
    """Decides on chains.

    Args:
        max_failures: losses in a row without progress that a chain survives; the next one gives it up. Also the most
            times that a chain is restarted because it diverged.
        on_divergence: what becomes of a chain that diverges, one of `POLICIES`.
        max_preemptions: times that a chain may leave a draining node; None is any number.
    """

    max_failures: int = MAX_FAILURES
    on_divergence: Policy = "stop"
    max_preemptions: int | None = None

    def lost(self, failures: int, reason: str) -> Verdict:
        """Decide on a chain that lost its worker for the ``failures``-th time in a row without progress."""
        if failures > self.max_failures:
            return Verdict("fail", f"{reason} ({failures} losses in a row without progress)")
        return Verdict(alone=failures == self.max_failures)

    def preempted(self, preemptions: int) -> Verdict:
        """Decide on a chain that left a draining node for the ``preemptions``-th time."""
        if self.max_preemptions is not None and preemptions > self.max_preemptions:
            return Verdict("fail", f"it had to leave its node {preemptions} times")
        return Verdict()

    def diverged(self, restarts: int, reason: str) -> Verdict:
        """Decide on a chain that diverged after it was given fresh noise ``restarts`` times.

        A divergence under the same noise would come again at the same step, so a restart always takes other noise.
        """
        if self.on_divergence == "drop-chain":
            return Verdict("drop", reason)
        if self.on_divergence == "restart-cycle" and restarts < self.max_failures:
            return Verdict("restart", reason)
        if restarts:
            reason = f"{reason} (restarted {restarts} time{'s' * (restarts > 1)} with fresh noise)"
        return Verdict("fail", reason)

    def check_starts(self, deaths: int, reason: str) -> None:
        """Refuse to start more workers.

        Raises:
            RaychainsError: too many in a row died before they were up, though their nodes were well.
        """
        if deaths > self.max_failures:
            raise RaychainsError(f"{deaths} workers in a row died before they were up; the last: {reason}")


def check_job(name: str, lost: int, error: Exception) -> None:
    """Refuse to do a job again that was lost so many times, by ``error`` at last.

    Raises:
        RaychainsError: it lost too many evaluators or objects.
    """
    if lost > ATTEMPTS:
        raise RaychainsError(f"{name} lost {lost} evaluators or objects in a row: {error}") from error


# Silence


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
NOT_UP = "a worker does not come up"
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

    @property
    def loss(self) -> str:
        """The reason of the loss of a worker that is ended for it."""
        return f"{self.reason} for {self.seconds:.0f} s"


def announced(
    told: bool, stall: Stall | None, callback: events.Callback, digest: str | None = None, slot: int | None = None
) -> bool:
    """Tell a callback of a stall that was not ``told``, or of the end of one that was; return whether it knows of one
    now."""
    if stall is not None and not told:
        callback.on(events.Stalled(seconds=stall.seconds, reason=stall.reason, digest=digest, slot=slot))
    elif stall is None and told:
        callback.on(events.StallEnded(digest=digest))
    return stall is not None


@dataclass
class Liveness:
    """Signs of life of a worker: of its work, and its answers to the question where it is."""

    timeout: float = TIMEOUT
    steps: Pace = field(init=False)
    answers: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.steps, self.answers = Pace(self.timeout), Pace(self.timeout)

    def passed(self, seconds: float, *, asked: bool) -> None:
        """Note that time passed; ``asked``: an answer of the worker is outstanding."""
        self.steps.silent += seconds
        if asked:
            self.answers.silent += seconds


@dataclass
class ChainPace(Liveness):
    """The steps of one attempt at a chain, and its worker's answers.

    Args:
        timeout: seconds of silence that are always allowed.
        failures: losses of the chain's workers since it last progressed.
    """

    failures: int = 0
    told: bool = False
    """The stall at present was announced."""
    _made: int | None = None
    _held: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.allow(self.failures)

    def allow(self, failures: int) -> None:
        """Double all limits for each of so many losses."""
        self.steps.patience = self.answers.patience = 2.0**failures

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
        self.told = announced(self.told, stall, callback, digest, slot)
        return stall


@dataclass
class EvaluatorPace(Liveness):
    """An evaluator's jobs as its steps, and its answers to the question whether it is alive.

    Jobs of one ``kind`` take about as long: ``slowest`` holds the seconds of the slowest of each, 0 where only
    evaluators' first jobs are known. ``lost`` says how often the oldest job was lost.

    Args:
        timeout: seconds of silence that are always allowed.
    """

    _did: bool = False

    def did(self, slowest: MutableMapping[str, float], kind: str, lost: int) -> None:
        """Note that it did a job."""
        pace = self._pace(slowest, kind, lost)
        pace.heard()
        slowest[kind], self.steps.silent, self._did = pace.slowest, 0.0, True

    def stall(self, slowest: Mapping[str, float], kind: str, lost: int) -> Stall | None:
        """Return how it stalls; its process is the judge as long as its jobs have no pace."""
        pace, answers = self._pace(slowest, kind, lost), self.answers
        answers.patience = pace.patience
        if answers.silent > answers.limit:
            return Stall(
                answers.silent, f"{kind} is not answered, nor is its worker", answers.silent > answers.last_limit
            )
        if pace.silent > pace.limit:
            return Stall(pace.silent, f"{kind} is not answered", pace.known and pace.silent > pace.last_limit)
        return None

    def _pace(self, slowest: Mapping[str, float], kind: str, lost: int) -> Pace:
        """Return the pace of its jobs; its first one loads libraries and data."""
        known = 2 * (self._did and kind in slowest)
        return Pace(self.timeout, 2.0**lost, self.steps.silent, slowest.get(kind, 0.0), known)
