"""An estimate of the rest of a run's time, from the steps made so far."""

from __future__ import annotations

from collections.abc import Mapping

from raychains.core.spec import ChainSpec


class Speed:
    """Seconds per gradient step over all chains of the run, and the time that the steps left take."""

    def __init__(self, specs: Mapping[str, ChainSpec], finished: Mapping[str, float]) -> None:
        self._left = {d: s.steps for d, s in specs.items() if d not in finished}
        self._steps = {d: s.steps for d, s in specs.items()}
        self._from: dict[str, tuple[int, float] | None] = {}
        self._made: dict[str, tuple[int, float]] = {}

    def began(self, digest: str, step: int) -> None:
        """Note that the chain starts at ``step``."""
        self._left[digest] = self._steps[digest] - step
        self._from[digest] = None

    def at(self, digest: str, step: int, seconds: float) -> None:
        """Note that the chain has come to ``step`` after ``seconds`` of chain time."""
        if digest not in self._from or step == 0:
            return
        self._left[digest] = self._steps[digest] - step
        first = self._from[digest]
        if first is None:
            self._from[digest] = (step, seconds)  # what went before may be another attempt's, or start-up
        elif step > first[0]:
            self._made[digest] = (step - first[0], seconds - first[1])

    def ended(self, digest: str) -> None:
        """Note that nothing is left of the chain in this run."""
        self._left.pop(digest, None)
        self._from.pop(digest, None)  # a status that comes late brings it back otherwise

    def steps_per_second(self, digest: str) -> float | None:
        """Return the speed of one chain since it began; None without a measurement."""
        steps, seconds = self._made.get(digest, (0, 0.0)) if digest in self._from else (0, 0.0)
        return steps / seconds if steps and seconds > 0 else None

    def remaining(self, slots: int) -> float | None:
        """Return the estimated seconds until all chains are done on ``slots`` equal slots; None without a
        measurement."""
        steps = sum(n for n, _ in self._made.values())
        if not steps:
            return None
        per_step = sum(t for _, t in self._made.values()) / steps
        return per_step * max(sum(self._left.values()) / slots, max(self._left.values(), default=0))
