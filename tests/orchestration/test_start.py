"""A Ray of this machine whose processes die while it starts."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from raychains.core.errors import RayLost
from raychains.orchestration.cluster import ray_private, session
from tests.processes import sessions

TIMED_OUT = "The current node timed out during startup.\nThis could happen because …"


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `ray.init` was called with; it raises what Ray raises when the raylet died."""
    calls: list[dict[str, Any]] = []

    def init(**options: Any) -> None:
        calls.append(options)
        raise Exception(TIMED_OUT)

    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other files of the folder share a session
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "init", init)
    return calls


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        yield Path(folder)


def test_it_is_started_once_more_and_then_refused_in_one_line(starts: list[dict[str, Any]], short: Path) -> None:
    with pytest.raises(RayLost) as lost:
        session.connect("local", temp_dir=str(short), object_store_memory=100_000_000)
    assert len(starts) == 2 and starts[0] == starts[1] and list(short.iterdir()) == []
    assert "timed out during startup" in str(lost.value) and str(lost.value).endswith("repeat the call")
    assert "\n" not in str(lost.value) and lost.value.exit_status == 4


def test_a_second_start_that_succeeds_is_all_that_is_needed(
    starts: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, short: Path
) -> None:
    failing = ray.init
    monkeypatch.setattr(ray, "init", lambda **options: failing(**options) if not starts else starts.append(options))
    monkeypatch.setattr(session, "Session", lambda **how: how)
    monkeypatch.setattr(session, "_wait_for_a_worker", lambda: None)
    made: Any = session.connect("local", temp_dir=str(short), object_store_memory=100_000_000)
    assert len(starts) == 2 and made["ours"] and made["folder"].parent == short


HOLDS = """
import sys, time
from ray._raylet import setproctitle
held = open(sys.argv[1])
setproctitle(sys.argv[2])
print("[]", flush=True)
time.sleep(600)
"""


def test_what_holds_a_file_of_the_folder_is_killed_if_it_is_rays(short: Path) -> None:
    (short / "logs").mkdir()
    mine, other = short / "logs" / "agent.log", short.parent / f"{short.name}.log"
    with sessions(stdout=subprocess.PIPE) as start:
        cases = [(mine, "ray::Agent"), (mine, "tail -f"), (other, "ray::Agent")]
        for file, _ in cases:
            file.touch()
        processes = [start(sys.executable, "-c", HOLDS, str(file), title) for file, title in cases]
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "[]\n"
        ray_private.kill_left(short)
        assert processes[0].wait(10) == -signal.SIGKILL
        assert [process.poll() for process in processes[1:]] == [None, None]
    other.unlink()
