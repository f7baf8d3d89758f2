"""Imports what chain workers need as Ray starts a process: `session.connect` names this module to a Ray that it starts.

An idle process, `raychains.orchestration.workers.Workers.spare`, has the imports behind it when a worker is placed in it.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from raychains.orchestration import SOURCE


def _preload() -> None:
    """Import them under one thread; what a worker holds is known only later, and libraries read the variable once."""
    unset = "OMP_NUM_THREADS" not in os.environ
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.disable()  # imports leave no garbage; the search for it takes a fifth of their time
    try:
        import raychains.orchestration.attempt  # noqa: F401
    finally:
        gc.enable()
        if unset:
            del os.environ["OMP_NUM_THREADS"]  # for Ray, which sets it to a worker's cores


if os.environ.get(SOURCE) == str(Path(__file__).parents[1]):
    _preload()
else:  # workers import the driver's raychains, whose folder they are told later
    for _name in [name for name in sys.modules if name.partition(".")[0] == "raychains"]:
        del sys.modules[_name]
    raise ImportError("not preloaded: an installed raychains, not the driver's, was found")  # which Ray passes over
