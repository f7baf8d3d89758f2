"""Ray's folder of a session that is started here: nobody else reads or writes it, and it is gone at the end."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import ray

from raychains.orchestration import ray_private
from raychains.orchestration.session import connect
from tests.processes import SECONDS


def pid() -> int:
    return os.getpid()


def test_it_is_private_and_removed_and_no_thread_stays() -> None:
    """In a process of its own: this one may have a Ray."""
    command = [sys.executable, "-c", f"from {__name__} import sessions; sessions()"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


def test_only_a_token_of_ones_own_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    ray_private.protect_token()  # there is none
    token, shared = tmp_path / ".ray" / "auth_token", tmp_path / "shared"
    token.parent.mkdir()
    shared.write_text("of a cluster")
    token.symlink_to(shared)
    ray_private.protect_token()
    assert shared.stat().st_mode & 0o044 == 0o044
    token.unlink()
    token.write_text("x")
    token.chmod(0o644)
    ray_private.protect_token()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600 and token.read_text() == "x"


def sessions() -> None:
    threads: list[set[str]] = []
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary, tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        for _ in range(2):
            session = connect("local", object_store_memory=100_000_000, temp_dir=temporary, cpus=1)
            try:
                assert ray.get(ray.remote(pid).remote()) != os.getpid()
                folder = session.folder
                assert folder is not None and folder.parent == Path(temporary)
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
                assert (
                    stat.S_IMODE(Path(home, ".ray", "auth_token").stat().st_mode) == 0o600
                )  # Ray makes it readable to all
                assert [*folder.glob("s/session_*/sockets/*")] and [*folder.glob("s/session_*/logs/*")]
            finally:
                session.close()
            assert os.listdir(temporary) == []
            threads.append({f"{t.name} {t.ident}" for t in threading.enumerate()})
        assert len(threads[1]) <= len(threads[0]), threads
