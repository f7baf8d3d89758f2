"""What a figure was measured on and how: printed above every benchmark's results."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version


def facts() -> str:
    """Cores, load, versions and the command, as lines."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "ray"))
    return (
        f"machine: {cores} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, {libraries}; load before: {os.getloadavg()[0]:.2f}\n"
        f"command: python {shlex.join(sys.argv)}"
    )


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
