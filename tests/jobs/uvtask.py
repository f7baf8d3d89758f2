"""A person's own module whose task needs a package that only the environment of `uv run` has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import extra_ten  # type: ignore[import-not-found]
import slowtask  # type: ignore[import-not-found]

import raychains as rc


def make(note: str) -> rc.Task:
    (Path(note) / str(os.getpid())).write_text(f"{sys.prefix}\n{extra_ten.__file__}\n{os.getcwd()}")
    return slowtask.make()
