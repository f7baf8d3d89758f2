"""Actors that the runs of a file share, where nothing is claimed of processes; and runs without a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raychains.orchestration.cluster.worker_pool import WorkerPool
from raychains.orchestration.cluster.workers import Workers
from raychains.orchestration.run import evaluator_pool, launch
from raychains.report import run_page
from raychains.report.sweep import sweep_page


@contextmanager
def pooled() -> Iterator[WorkerPool]:
    """Have runs and evaluations of this process take their actors from one pool, in the body, during which Ray is
    connected.

    Each process imports torch once then. Actors stay as long as the runs have one store and one time between
    checkpoints.
    """
    with WorkerPool() as pool, pytest.MonkeyPatch.context() as patch:

        def on_pool(workers: Workers | None) -> Workers:
            return workers if workers is not None else pool

        for module in (launch, evaluator_pool):
            patch.setattr(module, "on_ray", on_pool)
        yield pool


@contextmanager
def unpaged() -> Iterator[None]:
    """Have runs and sweeps draw no page in the body: figures take longer than small chains."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (run_page, sweep_page):
            patch.setattr(module, "write", lambda *_: None)
        yield
