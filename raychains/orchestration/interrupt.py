"""Ctrl-C, SIGTERM and SIGHUP as a flag: the first asks for a clean stop, a second Ctrl-C interrupts at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupt:
    """Context in which SIGINT, SIGTERM and SIGHUP set `asked` instead of raising; in other threads it does nothing.

    A second SIGTERM asks for nothing new: `ray job stop` signals a whole tree of processes, of which some pass theirs
    on. Whoever handles SIGHUP, or ignores it as nohup does, goes on doing so.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
            for number in (signal.SIGINT, signal.SIGTERM, *hangup):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            if callable(before := self._before[number]):
                before(number, frame)  # the command's, which guards its cleanup, or Python's own
                return
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def sigterm_kept() -> Iterator[None]:
    """A body in which `ray.init` may take SIGTERM over: whoever handled it before has it again afterwards.

    Raises:
        KeyboardInterrupt: it came in the body, where Ray exits with its number.
    """
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
    except SystemExit as end:
        if end.code == signal.SIGTERM:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
