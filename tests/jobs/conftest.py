"""One head for the tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.head import Head
from tests.processes import until


@pytest.fixture(scope="package")
def head() -> Iterator[Head]:
    """A head that takes jobs; nothing that came of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="rcj", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made = Head(Path(folder))
        try:
            until(made.up, "the head")
            yield made
        finally:
            left = made.close()
        assert not left, left
