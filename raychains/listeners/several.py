"""Listeners: one listener made of several, none of which can hurt the run or another."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType

from raychains.errors import Interrupted, UserError
from raychains.planning.listener import Happening, Listener, Over

log = logging.getLogger(__name__)


class Listeners:
    """Hands every happening to each in turn. As a context manager it tells of the end and closes them.

    One that raises is logged, once, and still told what comes next; what it raised goes no further.

    Args:
        listeners: one, several, or None.

    Raises:
        UserError: something without a method ``on``.
    """

    def __init__(self, listeners: Listener | Sequence[Listener] | None = None) -> None:
        given = [] if listeners is None else [*listeners] if isinstance(listeners, Sequence) else [listeners]
        for one in given:
            if not callable(getattr(one, "on", None)) or isinstance(one, type):
                raise UserError(
                    f"listener must be an object with a method on(happening), or several of them, got {one!r}"
                )
        self._listeners: list[Listener] = given
        self._logged: set[int] = set()

    def add(self, listener: Listener) -> None:
        """One more, from the next happening on."""
        self._listeners.append(listener)

    def on(self, happening: Happening) -> None:
        """Tell everybody."""
        for listener in self._listeners:
            try:
                listener.on(happening)
            except Exception:
                self._log(listener, f"raised at {type(happening).__name__}; the run goes on")

    def close(self) -> None:
        """Close those that have a ``close`` method; a second time does nothing."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            try:
                close = getattr(listener, "close", None)
                if close is not None:
                    close()
            except Exception:
                self._logged.discard(id(listener))
                self._log(listener, "could not be closed")

    def _log(self, listener: Listener, what: str) -> None:
        if id(listener) not in self._logged:
            self._logged.add(id(listener))
            log.warning("listener %s %s", type(listener).__name__, what, exc_info=True)

    def __enter__(self) -> Listeners:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self.on(_over(error))
        finally:
            self.close()


def _over(error: BaseException | None) -> Over:
    if error is None:
        return Over(outcome="finished")
    stopped = isinstance(error, Interrupted | KeyboardInterrupt)
    reason = (str(error).splitlines() or [""])[0] or type(error).__name__
    return Over(outcome="stopped" if stopped else "failed", reason=reason)
