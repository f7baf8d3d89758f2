"""Made-up data of every kind, for tests that plan chains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raychains.core.data_root import rooted
from raychains.data import standins
from raychains.data.prepared import local_preparation


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = standins.make(tmp_path_factory.mktemp("papers") / "data", corruptions=2)
    local_preparation.prepare(standins.pictures_of(folder), folder / "imagenet")
    return folder


@pytest.fixture
def root(stand_ins: Path) -> Iterator[Path]:
    with rooted(str(stand_ins)):
        yield stand_ins


@pytest.fixture
def data(scale: str, request: pytest.FixtureRequest) -> None:
    """Made-up data at scale smoke, the data root's at others."""
    if scale == "smoke":
        request.getfixturevalue("root")
