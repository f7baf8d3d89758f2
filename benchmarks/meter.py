"""Where a process's CPU time goes: functions are wrapped, and time counts for the innermost wrapped one that runs."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

OUTSIDE = "simulation"
"""The part that is no driver's work."""
REST = "loop"


class Meter:
    """CPU seconds of this process by part; one thread's calls alone may be wrapped.

    CPU time is the process's own, so that other processes of the machine matter little.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._stack = [REST]
        self._since = time.process_time()
        self._undo: list[Callable[[], None]] = []

    def enter(self, part: str) -> None:
        """Time counts for ``part`` from now on."""
        now = time.process_time()
        self.seconds[self._stack[-1]] += now - self._since
        self._stack.append(part)
        self._since = now

    def leave(self) -> None:
        """Time counts for what ran before the last `enter`."""
        now = time.process_time()
        self.seconds[self._stack.pop()] += now - self._since
        self._since = now

    def reset(self) -> None:
        """Count from nothing."""
        self.seconds.clear()
        self.calls.clear()
        self._since = time.process_time()

    def driver(self) -> float:
        """CPU seconds so far of everything but the simulation."""
        running = time.process_time() - self._since if self._stack[-1] != OUTSIDE else 0.0
        return self.seconds.total() - self.seconds[OUTSIDE] + running

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The function, whose time counts for ``part``."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.enter(part)
            self.calls[part] += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return wrapped

    def watch(self, owner: type, part: str, names: Iterable[str] = ()) -> None:
        """Count a class's public methods and properties, or those named, for ``part``."""
        for name in names or [n for n in vars(owner) if not n.startswith("_")]:
            found = vars(owner).get(name)
            if isinstance(found, property) and found.fget is not None:
                setattr(owner, name, property(self.timed(found.fget, part)))
            elif callable(found) and not isinstance(found, type):
                setattr(owner, name, self.timed(found, part))
            elif names:
                raise AttributeError(f"{owner.__name__} has no method {name}")
            else:
                continue
            self._undo.append(functools.partial(setattr, owner, name, found))

    def close(self) -> None:
        """Wrap nothing any more."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []
