"""One pool of actors and one store for the runs of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raychains.orchestration.cluster.worker_pool import WorkerPool
from tests.pool import pooled


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the store ``runs`` is: in it, commands and calls that name no store share one."""
    return tmp_path_factory.mktemp("end_to_end")


@pytest.fixture(scope="package")
def pool(ray_session: None) -> Iterator[WorkerPool]:
    """Actors that one run after another takes, whatever starts it; those of `runs` stay from file to file.

    They hold CPUs, for which a sweep's trials wait.
    """
    with pooled() as made:
        yield made


@pytest.fixture(scope="package")
def runs(pool: WorkerPool, folder: Path) -> str:
    """The store that files share, and with it their actors: each that is started costs seconds."""
    return str(folder / "runs")
