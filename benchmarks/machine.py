"""What a figure was measured on and how: printed above every benchmark's results."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median


def facts() -> str:
    """Cores, load, versions and the command, as lines."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "ray"))
    return (
        f"machine: {cores} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, {libraries}; load before: {os.getloadavg()[0]:.2f}\n"
        f"command: python {shlex.join(sys.argv)}"
    )


def ratio(ones: Sequence[float], others: Sequence[float]) -> str:
    """How many times as much the first are: the median over rounds, and every round's."""
    each = [one / other for one, other in zip(ones, others, strict=True)]
    return f"{median(each):.2f} × (rounds: {', '.join(f'{r:.2f}' for r in each)})"
