"""A data root for the time of a call, and a call that downloads nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raychains.core.data_root import data_root, root_of, rooted
from raychains.data import fetch, sets
from tests.checks import refused


@pytest.mark.parametrize("before", [None, "elsewhere"])
def test_the_body_reads_the_given_root_and_what_was_set_before_comes_back(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = None if before is None else str(tmp_path / before)
    monkeypatch.delenv("RAYCHAINS_DATA", raising=False)
    if other is not None:
        monkeypatch.setenv("RAYCHAINS_DATA", other)
    with pytest.raises(KeyError), rooted(str(tmp_path)):
        assert data_root() == tmp_path
        raise KeyError
    assert os.environ.get("RAYCHAINS_DATA") == other
    with rooted(None):
        assert os.environ.get("RAYCHAINS_DATA") == other
    with refused("data_root", str(tmp_path / "none")), rooted(str(tmp_path / "none")):
        pass
    assert os.environ.get("RAYCHAINS_DATA") == other


def test_a_missing_set_is_refused_at_once_where_downloads_are_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def download(name: str, split: str, folder: Path) -> str:
        tried.append(name)
        return "no network"

    monkeypatch.setattr(fetch, "_download", download)
    with refused("cifar10", "data_batch_1"), fetch.without_downloads():
        sets.load("cifar10", "train", tmp_path)
    assert tried == []
    with refused("cifar10", "data_batch_1", "no network"):
        sets.load("cifar10", "train", tmp_path)
    assert tried == ["CIFAR10"]


def test_a_uri_is_for_prepared_sets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYCHAINS_DATA", raising=False)
    with rooted("s3://bucket/data/"):
        assert os.environ["RAYCHAINS_DATA"] == "s3://bucket/data" == root_of()
        with refused("RAYCHAINS_DATA", "s3://bucket/data", "prepared"):
            data_root()
    with refused("data_root", "gs://x", "prepared"):
        data_root("gs://x")
    assert "RAYCHAINS_DATA" not in os.environ
