"""Which incarnation's files count: a resumed chain supersedes whatever earlier ones wrote behind its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping


class History:
    """The step from which each incarnation of a chain went on.

    Args:
        from_steps: steps by incarnation; one that is not known to have begun supersedes nothing, for it wrote nothing.
    """

    def __init__(self, from_steps: Mapping[int, int]) -> None:
        self._from_steps = dict(from_steps)

    def last_valid_step(self, incarnation: int) -> float:
        """The last step of an incarnation that belongs to the chain's one path; infinite for the newest."""
        later = [step for n, step in self._from_steps.items() if n > incarnation]
        return min(later, default=float("inf"))

    def superseded(self, incarnation: int, step: int) -> bool:
        """Whether what ``incarnation`` wrote at ``step`` no longer counts, whenever it wrote it."""
        return step > self.last_valid_step(incarnation)
