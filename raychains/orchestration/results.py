"""The results of a run's views as they come, and when people hear of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raychains.orchestration.outcome import ViewResult
from raychains.planning import listener as told
from raychains.planning.comparison import Comparison


class Results:
    """Results by (arm, group), of which the listener is told once all of their chains have ended.

    Args:
        comparison: whose arms and groups.
        listener: told of them.
    """

    def __init__(self, comparison: Comparison, listener: told.Listener) -> None:
        self._comparison, self._listener = comparison, listener
        self.views: dict[tuple[int, int], ViewResult] = {}
        """Those that hold."""
        self._untold: list[tuple[int, int]] = []
        self._of_chain: dict[str, list[tuple[int, int]]] = {}
        for a, arm in enumerate(comparison.arms):
            for g, group in enumerate(arm.chains):
                for spec in group:
                    self._of_chain.setdefault(spec.digest, []).append((a, g))

    def add(self, view: ViewResult) -> None:
        """A view is evaluated."""
        at = (view.key.arm, view.key.group)
        self.views[at] = view
        self._untold.append(at)

    def tell(self, seconds: Mapping[str, float], dropped: Callable[[str], bool]) -> None:
        """Tell of new ones; the last samples may be evaluated before their chain said that it ended.

        Args:
            seconds: of the finished chains by digest.
            dropped: whether a chain was given up and its views are formed without it.
        """
        untold, self._untold = self._untold, []
        for at in untold:
            arm, group = self._comparison.arms[at[0]], at[1]
            if all(spec.digest in seconds or dropped(spec.digest) for spec in arm.chains[group]):
                metrics, took = self.views[at].metrics, arm.seconds(group, seconds)
                self._listener.on(told.ViewDone(arm=arm.name, group=group, metrics=metrics, chain_seconds=took))
            else:
                self._untold.append(at)

    def unsettle(self, digest: str) -> None:
        """The views of a chain that had results have them no more."""
        ours = self._of_chain.get(digest, [])
        for at in ours:
            self.views.pop(at, None)
        self._untold = [at for at in self._untold if at not in ours]
