"""Fixtures for tests that need Ray: one session per folder, started and ended as a user's would be."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
torch.set_num_threads(1)


@pytest.fixture(scope="package")
def ray_session() -> Iterator[None]:
    """Ray on this machine with two CPUs, in a short temporary folder (socket paths are limited)."""
    import ray

    from raychains.orchestration.session import connect

    assert not ray.is_initialized(), "another folder's Ray session is still there"
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        session = connect("local", object_store_memory=200_000_000, temp_dir=folder, cpus=2)
        assert session.ours
        yield
        session.close()
    assert not ray.is_initialized()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """An empty run store."""
    return str(tmp_path / "store")
