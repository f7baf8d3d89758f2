"""How many malformed inputs a session tries, by kind, and the worst that became of them: printed at its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tests.processes import peak_memory

TIMES = Fraction(os.environ.get("RAYCHAINS_FUZZ", "1/3"))
"""Which part of the examples is tried: `make test` tries a third, `make test-long` all, `make fuzz` many times as many.

The examples of a session with up to 1 are the same in every run; those of more differ from run to run.
"""
BOUND = 20
"""Seconds above which an input counts as hanging; most take milliseconds."""
MOST = 10**9
"""Bytes by which an input may make the process grow; what earlier tests left in it does not count."""


@dataclass
class Tried:
    """The inputs of one kind."""

    inputs: int = 0
    failed: int = 0
    """Those that ended in a traceback, or broke another promise of the test."""
    slow: int = 0
    """Those above `BOUND`."""
    large: int = 0
    """Those under which the process grew by more than `MOST`."""
    seconds: float = 0.0
    """The slowest."""
    peak: int = 0
    """Bytes of the process, with Python, torch and pytest, under the largest."""

    def add(self, other: Tried) -> None:
        """Count another process's inputs, too."""
        for name in ("inputs", "failed", "slow", "large"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.seconds, self.peak = max(self.seconds, other.seconds), max(self.peak, other.peak)


TRIED: dict[str, Tried] = {}
"""By kind of input."""


@contextlib.contextmanager
def tried(kind: str) -> Iterator[Tried]:
    """Count the body as one input and measure it.

    Raises:
        AssertionError: it took more than `BOUND` seconds, or the process grew by more than `MOST` bytes.
    """
    found, began = TRIED.setdefault(kind, Tried()), time.monotonic()
    found.inputs += 1
    _forget_peak()
    before = peak_memory()
    try:
        yield found
    finally:
        seconds, peak = time.monotonic() - began, peak_memory()
        found.seconds, found.peak = max(found.seconds, seconds), max(found.peak, peak)
        slow, large = seconds > BOUND, peak - before > MOST
        found.slow, found.large = found.slow + slow, found.large + large
    assert not slow, f"took {seconds:.1f} s, more than {BOUND}"
    assert not large, f"the process grew by {peak - before:,} bytes, more than {MOST:,}"


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # Linux alone has it
        Path("/proc/self/clear_refs").write_text("5")


def lines() -> list[str]:
    """Return what is printed: a line per kind, and their sum."""
    if not TRIED:
        return []
    total = Tried()
    for each in TRIED.values():
        total.add(each)
    return [
        f"{kind:<13} {t.inputs:>7,} inputs, {t.failed} with a traceback, {t.slow} above {BOUND} s, {t.large} that "
        f"took more than {MOST / 1e9:g} GB; slowest {t.seconds:.1f} s, peak {t.peak / 1e9:.2f} GB"
        for kind, t in [*sorted(TRIED.items()), ("all", total)]
    ]
