"""CallbackList: several callbacks as one, none of which can hurt the run or another."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType

from raychains.core.errors import Interrupted, format_error, require
from raychains.planning.events import Callback, RunEnded, RunEvent

log = logging.getLogger(__name__)

Callbacks = Callback | Sequence[Callback] | None


class CallbackList:
    """Hands every event to each callback in turn. As a context manager it announces the run's end and closes them.

    A callback that raises is logged, once, and still gets later events; its exception goes no further.

    Args:
        callbacks: one, several, or None.

    Raises:
        UserError: something without a method ``on``.
    """

    def __init__(self, callbacks: Callbacks = None) -> None:
        self._callbacks = _listed(callbacks)
        for one in self._callbacks:
            require(_hears(one), "callback", one, "be an object with a method on(event), or a list of such objects")
        self._logged: set[int] = set()

    def add(self, callback: Callback) -> None:
        """Add one more callback, from the next event on."""
        self._callbacks.append(callback)

    def on(self, event: RunEvent) -> None:
        """Hand the event to every callback."""
        for callback in self._callbacks:
            try:
                callback.on(event)
            except Exception:
                self._log(callback, f"raised at {type(event).__name__}; the run continues")

    def close(self) -> None:
        """Close those that have a ``close`` method; a second call does nothing."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                close = getattr(callback, "close", None)
                if close is not None:
                    close()
            except Exception:
                self._logged.discard(id(callback))
                self._log(callback, "could not be closed")

    def _log(self, callback: Callback, what: str) -> None:
        if id(callback) not in self._logged:
            self._logged.add(id(callback))
            log.warning("callback %s %s", type(callback).__name__, what, exc_info=True)

    def __enter__(self) -> CallbackList:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self.on(_run_ended(error))
        finally:
            self.close()


def _hears(one: object) -> bool:
    """Return whether something is an object with a method ``on``."""
    try:
        return callable(getattr(one, "on", None)) and not isinstance(one, type)
    except Exception:  # of a user's class
        return False


def _listed(callbacks: Callbacks) -> list[Callback]:
    if callbacks is None:
        return []
    return [*callbacks] if isinstance(callbacks, list | tuple) else [callbacks]  # type: ignore[list-item]


def _run_ended(error: BaseException | None) -> RunEnded:
    if error is None:
        return RunEnded(outcome="finished")
    stopped = isinstance(error, Interrupted | KeyboardInterrupt)
    return RunEnded(outcome="stopped" if stopped else "failed", reason=format_error(error))
