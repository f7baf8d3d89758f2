"""A store whose run is in the middle."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raychains.store import ChainStore, Storage
from tests.status.worlds import THEIRS, advance, begin, comparison, diagnosis, enter, finish, planned


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of six chains in the middle: finished, running after a loss, waiting, stopped, given up,
    waiting."""
    folder = tmp_path_factory.mktemp("made")
    root, plan = Storage(folder), comparison(6)
    done, lost, _, old, given_up, _ = plan.chains().values()
    planned(root, plan)
    finish(root, [done])
    begin(root, lost, 1, host="node-1")
    advance(root, lost, 1, to=45)  # behind the checkpoint from which the next worker went on: superseded
    begin(root, lost, 2, from_step=30, host="node-2")
    advance(root, lost, 2, to=40)
    begin(root, old, 1, driver=THEIRS)
    advance(root, old, 1, to=20)
    begin(root, given_up, 1)
    ChainStore(root, given_up.digest).publish_diagnosis(diagnosis(given_up.digest), 20, 1)
    return folder


@pytest.fixture
def middle(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    enter(Storage(tmp_path), given_up=[list(comparison(6).chains())[4]])
    return tmp_path / "runs" / "small"
