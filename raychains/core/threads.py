"""torch's threads of one operation, set for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int | None = None) -> Iterator[None]:
    """Give torch's operations so many threads in the body, None as many as before, and set them back to what they were
    after it."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
