"""One chain of cSG-MCMC's Table 1 on a GPU that is lent for a quarter of an hour: its data, the chain, the page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Provide a file that takes the place of ``path`` when it is whole, whenever the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        yield file
    os.replace(partial, path)
