"""Ray's folder of a session that is started here: nobody else reads or writes it, and it is gone at the end, even after
a loss."""

from __future__ import annotations

import json
import os
import signal
import stat
import tempfile
import threading
from pathlib import Path

import psutil
import pytest
import ray

from raychains.orchestration.cluster import ray_private
from raychains.orchestration.cluster.session import connect
from tests.processes import json_of, until


def pid() -> int:
    return os.getpid()


@pytest.mark.long
def test_it_is_private_and_removed_and_nothing_is_left_though_a_gcs_that_was_told_to_end_hangs() -> None:
    """The second Ray of a process, which this one may have too: its GCS closes its port, and does not end; its
    raylet's agents would look for it for long."""
    lost, children, living = json_of("-c", f"from {__name__} import sessions; sessions()")
    assert lost.startswith("Ray's gcs_server on this machine") and children >= 2 and living == []


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
    """Start Ray twice and end it, the second one with a GCS that was told to end; print what is left of that."""
    threads: list[set[str]] = []
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary, tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        for told in (False, True):
            session = connect("local", object_store_memory=100_000_000, temp_dir=temporary, cpus=1)
            try:
                assert ray.get(ray.remote(pid).remote()) != os.getpid()
                folder = session.folder
                assert folder is not None and folder.parent == Path(temporary)
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
                token = Path(home, ".ray", "auth_token")
                assert stat.S_IMODE(token.stat().st_mode) == 0o600  # Ray makes it readable to all
                assert [*folder.glob("s/session_*/sockets/*")] and [*folder.glob("s/session_*/logs/*")]
                if told:
                    children = end_gcs()
                    until(lambda: session.watch.lost, "the loss", seconds=60)  # noqa: B023
            finally:
                session.close()
            assert os.listdir(temporary) == []
            threads.append({f"{t.name} {t.ident}" for t in threading.enumerate()})
        assert len(threads[1]) <= len(threads[0]), threads
        psutil.wait_procs(children, timeout=5)
        living = [child.pid for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        print(json.dumps([session.watch.lost, len(children), living]))


def end_gcs() -> list[psutil.Process]:
    """Tell this process's GCS to end; the processes that its raylet started."""
    started = ray._private.worker._global_node.all_processes
    [raylet], [gcs] = started["raylet"], started["gcs_server"]
    children: list[psutil.Process] = psutil.Process(raylet.process.pid).children()
    os.kill(gcs.process.pid, signal.SIGTERM)
    return children
