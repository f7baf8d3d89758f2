"""A Ray cluster of small nodes that tests may kill, and what forked processes import."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.chaos.nodes import Nodes
from tests.orchestration import lives


@pytest.fixture(scope="package", autouse=True)
def _preloaded() -> None:
    """Processes that are forked for this folder's tests have imported what they need."""
    lives.PRELOAD = [*lives.PRELOAD, "ray", "tests.chaos.tasks", "tests.chaos.command"]


@pytest.fixture(scope="package")
def cluster() -> Iterator[Nodes]:
    """A head without CPUs and two nodes of one CPU each; this process is connected to the head."""
    import ray

    assert not ray.is_initialized(), "another folder's Ray session is still there"
    before = dict(os.environ)
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"  # processes are killed on purpose
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        nodes = Nodes(folder, workers=2)
        try:
            yield nodes
        finally:
            nodes.close()
            os.environ.clear()
            os.environ.update(before)
    assert not ray.is_initialized()
