"""What every wrong input must come to: a listed exit status, one plain line, in time, and a store as it was."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import math
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings, target
from hypothesis.errors import HypothesisException

import raychains
from raychains.cli import main
from raychains.plotting.style import Drawing
from raychains.report import run_page
from tests.fuzz import tally

PACKAGE = str(Path(raychains.__file__).parent)
NOT_COMPARED = ("report.html", "figures", "drivers")
"""What `raychains report` writes in a run's folder, and the leases of drivers."""


class Started(BaseException):
    """Ray would have been started now: the input was accepted. Not an Exception, so that nobody handles it."""


class Hung(BaseException):
    """An example took longer than `tally.BOUND`. Not an Exception either."""


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    status: int | None
    """None where it went on to start Ray."""
    out: str
    err: str


Kind = Literal["command line", "Python", "spec", "store", "data root"]


def examples(n: int, kind: Kind) -> Callable[[Any], Any]:
    """Try ``n * TIMES`` inputs of a kind, each in time and counted; `make test-long` runs the test too.

    `make fuzz` guides hypothesis by coverage: it looks for inputs that enter more functions of raychains.
    """

    def decorate(test: Any) -> Any:
        body = test.hypothesis.inner_test

        @functools.wraps(body)
        def one(*args: Any, **given: Any) -> None:
            with tally.tried(kind) as counts:
                try:
                    with bounded(), entered() as functions:
                        body(*args, **given)
                except HypothesisException:  # the example is no test, such as a change that changes nothing
                    counts.inputs -= 1
                    raise
                except Hung:
                    pass  # the tally says so, and hypothesis names the input
                except Exception:
                    counts.failed += 1
                    raise
            if tally.TIMES > 1:
                target(float(sum(code.co_filename.startswith(PACKAGE) for code in functions)))

        test.hypothesis.inner_test = one
        chosen = settings(
            max_examples=math.ceil(n * tally.TIMES),
            derandomize=tally.TIMES <= 1,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(test)
        return pytest.mark.fuzz(chosen)

    return decorate


@contextlib.contextmanager
def entered() -> Iterator[set[CodeType]]:
    """Collect the functions that the body enters; none in the suite, which is not guided."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note if tally.TIMES > 1 else before)
    try:
        yield codes
    finally:
        sys.setprofile(before)


@contextlib.contextmanager
def bounded(seconds: int = tally.BOUND) -> Iterator[None]:
    """Whatever takes longer hangs."""

    def hung(*_: Any) -> None:
        raise Hung

    handler, left = signal.signal(signal.SIGALRM, hung), signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(left)  # of a body that this one is part of
        signal.signal(signal.SIGALRM, handler)


def no_ray(patch: pytest.MonkeyPatch) -> None:
    """Ray may be asked for, and is never started."""

    def init(*_: Any, **__: Any) -> None:
        raise Started

    patch.setattr("ray.init", init)
    patch.setattr("ray.is_initialized", lambda: False)  # a session of other tests would be used instead
    patch.setattr("ray.shutdown", lambda: None)  # … or ended


def no_rendering(patch: pytest.MonkeyPatch) -> None:
    """Figures are drawn once and not rendered: what they read of the store stays the same, and takes a tenth of the
    time."""

    def render(drawing: Drawing) -> tuple[bytes, bytes]:
        drawing.draw()
        return b"<svg/>", b""

    patch.setattr(run_page, "render", render)


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
