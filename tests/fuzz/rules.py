"""What every wrong input must come to: a listed exit status, one plain line, in time, and a store as it was."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from raychains.cli import main

BOUND = 20
"""Seconds after which an example counts as hanging; they take milliseconds."""
NOT_COMPARED = ("report.html", "figures", "drivers")
"""What `raychains report` writes in a run's folder, and the leases of drivers."""


class Started(BaseException):
    """Ray would have been started now: the input was accepted. Not an Exception, so that nobody handles it."""


class Hung(BaseException):
    """An example took longer than `BOUND`."""


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    status: int | None
    """None where it went on to start Ray."""
    out: str
    err: str


TIMES = int(os.environ.get("RAYCHAINS_FUZZ", "1"))
"""`make fuzz` tries so many times as many examples, other ones in every run."""


def examples(n: int) -> settings:
    """The same ``n`` examples in every run of the suite."""
    return settings(
        max_examples=n * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@contextlib.contextmanager
def bounded(seconds: int = BOUND) -> Iterator[None]:
    """Whatever takes longer hangs."""

    def hung(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def no_ray(patch: pytest.MonkeyPatch) -> None:
    """Ray may be asked for, and is never started."""

    def init(*_: Any, **__: Any) -> None:
        raise Started

    patch.setattr("ray.init", init)
    patch.setattr("ray.is_initialized", lambda: False)  # a session of other tests would be used instead


class _Tracebacks(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().formatException(record.exc_info))


@contextlib.contextmanager
def no_traceback_is_logged() -> Iterator[None]:
    """Nothing in the body logs an exception."""
    handler = _Tracebacks()
    logging.getLogger("raychains").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("raychains").removeHandler(handler)
    assert not handler.found, handler.found[0]


def say(argv: list[str]) -> Said:
    """Run a command in this process: any exception that leaves it is a traceback, and fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with bounded(), no_traceback_is_logged(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(argv)
        except Started:
            return Said(None, out.getvalue(), err.getvalue())
    said = Said(status, out.getvalue(), err.getvalue())
    assert status in (0, 2, 3), said
    if status and not (status == 2 and not argv):
        assert said.err.startswith("raychains: ") and said.err.count("\n") == 1, said
        assert said.err[:-1].isprintable(), said
    assert "Traceback" not in said.out + said.err, said
    return said


def comes_to_one_line(call: Callable[[], Any]) -> Any:
    """What ``call`` returns; None when it raises what people see as one line with exit status 2 or 3."""
    from raychains.core.errors import RaychainsError

    with bounded():
        try:
            return call()
        except RaychainsError as error:
            assert error.exit_status in (2, 3), repr(error)
            assert str(error) and "\n" not in str(error), repr(error)
            return None


def tree(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` with its sha256, but for what a report rewrites."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part in NOT_COMPARED for part in path.parts)
    }
