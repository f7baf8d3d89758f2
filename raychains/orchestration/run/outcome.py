"""The outcome of a run: the results of its views, announced as they come, the seconds of its chains, and what
failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raychains.planning import events
from raychains.planning.budget import Spent
from raychains.planning.comparison import Comparison
from raychains.planning.views import ViewResult


@dataclass(frozen=True, kw_only=True)
class DriverOutcome:
    """The end of a run."""

    views: dict[tuple[int, int], ViewResult] = field(default_factory=dict)
    """Results by (arm, group): of the view of all samples. Empty where the caller requested certain views."""
    requested: Sequence[ViewResult] = ()
    """Results of the views that the caller requested, in that order."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Chain seconds by digest, of the whole chain."""
    gradients: dict[str, int] = field(default_factory=dict)
    """Gradient evaluations by digest of the chains that began, of the whole chain."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons by digest of the chains that were given up, or dropped."""
    interrupted: bool = False
    """The user or another driver ended the run early."""
    samples: int = 0
    evaluated_while_sampling: float | None = None
    """Share of the predictions that were made before the last sample came; None when no chain ran."""


class Results:
    """Finished chains, and results by (arm, group), of which the callback hears once all of their chains have ended.

    Args:
        seconds: of the chains that are finished already, by digest.
        steps: that these made.
    """

    def __init__(
        self, comparison: Comparison, callback: events.Callback, seconds: dict[str, float], steps: Mapping[str, int]
    ) -> None:
        self._comparison, self._callback, self.seconds = comparison, callback, seconds
        self._specs = comparison.chains()
        self.spent = Spent(self._specs, steps)
        self.views: dict[tuple[int, int], ViewResult] = {}
        """Results that hold."""
        self._dropped: set[str] = set()
        self._unannounced: list[tuple[int, int]] = []
        self._of_chain: dict[str, list[tuple[int, int]]] = {}
        for a, arm in enumerate(comparison.arms):
            for g, group in enumerate(arm.chains):
                for spec in group:
                    self._of_chain.setdefault(spec.digest, []).append((a, g))

    @property
    def chains(self) -> int:
        """Number of the run's chains."""
        return len(self._specs)

    def finish(self, digest: str, seconds: float, steps: int) -> None:
        """Note that a chain is finished, after so many chain seconds and steps."""
        self.seconds[digest] = seconds
        self.spent.finish(digest, steps)
        self._callback.on(events.ChainFinished(digest=digest, seconds=seconds))

    def drop(self, digest: str) -> None:
        """Note that a chain was given up and its views are formed without it."""
        self._dropped.add(digest)
        self.unsettle(digest)

    def add(self, view: ViewResult) -> None:
        """Take a view's result."""
        at = (view.key.arm, view.key.group)
        self.views[at] = view
        self._unannounced.append(at)

    def announce(self) -> None:
        """Announce new results; the last samples may be evaluated before their chain ended."""
        unannounced, self._unannounced = self._unannounced, []
        for at in unannounced:
            arm, group = self._comparison.arms[at[0]], at[1]
            if all(spec.digest in self.seconds or spec.digest in self._dropped for spec in arm.chains[group]):
                metrics, took = self.views[at].metrics, arm.per_repeat(group, self.seconds)
                by_length = self._comparison.cost_is_length
                spent = None if by_length else round(arm.per_repeat(group, self.spent.made))
                done = events.ViewDone(arm=arm.name, group=group, metrics=metrics, chain_seconds=took, gradients=spent)
                self._callback.on(done)
            else:
                self._unannounced.append(at)

    def unsettle(self, digest: str) -> None:
        """Withdraw the results of a chain's views."""
        ours = self._of_chain.get(digest, [])
        for at in ours:
            self.views.pop(at, None)
        self._unannounced = [at for at in self._unannounced if at not in ours]
