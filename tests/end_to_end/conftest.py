"""One small comparison on digits and Table 4 in full, run once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import raychains as rc
from raychains.orchestration.worker_pool import WorkerPool


@pytest.fixture(scope="module")
def pool(ray_session: None) -> Iterator[WorkerPool]:
    """Actors that one run after another of a file uses, in one store: each that is started costs seconds.

    They hold CPUs until the file's end, for which runs without the pool would wait.
    """
    with WorkerPool() as made:
        yield made


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end_to_end")


@pytest.fixture(scope="package")
def digits(ray_session: None, folder: Path) -> rc.Result:
    """Table 2's arms of SGHMC on digits: 2 repeats of 4 chains, 40 epochs."""
    return rc.compare(
        task="digits", sampler=("sghmc",), epochs=40, repeats=2, store=str(folder / "store"), name="small"
    )


@pytest.fixture(scope="package")
def table4(ray_session: None, folder: Path) -> rc.Result:
    """cSG-MCMC Table 4 at the paper's settings: 10 repeats of up to 4 chains of 50,000 steps."""
    return rc.compare(task="mixture25", store=str(folder / "store"), name="table4")
