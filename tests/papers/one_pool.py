"""Actors that the reproductions of a file share, each of which would start its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from raychains.api import drivers
from raychains.core.config import Common
from raychains.orchestration.cluster.worker_pool import WorkerPool


@contextmanager
def one_pool() -> Iterator[None]:
    """Have all reproductions in the body use the pool of the first: those of one store also use its actors."""
    make = drivers.worker_pool
    made: list[WorkerPool] = []
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        @contextmanager
        def shared(options: Common) -> Iterator[WorkerPool]:
            if not made:
                made.append(stack.enter_context(make(options)))
            yield made[0]

        patch.setattr(drivers, "worker_pool", shared)
        yield
