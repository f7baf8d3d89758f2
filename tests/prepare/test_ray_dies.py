"""Ray dies while a set is prepared: one line soon, and the same call goes on with what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
import ray

from raychains.core.errors import RayLost
from raychains.data.prepared import sources
from raychains.data.prepared.manifest import NAME
from raychains.data.prepared.plan import Plan
from raychains.orchestration import prepare
from raychains.orchestration.cluster import session
from raychains.store import Storage
from tests.data.prepared.made import folder_of_classes
from tests.data.prepared.made import prepared as by_hand
from tests.processes import json_of


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_a_set_whose_gcs_dies_is_finished_by_the_same_call(tmp_path: Path) -> None:
    folder = folder_of_classes(tmp_path / "in", train=200, val=40)
    words = ("-m", "tests.prepare.test_ray_dies", str(folder), str(tmp_path / "out"))
    first = json_of(*words, RAY_BACKEND_LOG_LEVEL="fatal")
    assert "gcs_server on this machine died" in first["lost"] and first["lost"].endswith("repeat the call")
    assert first["seconds"] < 60 and 0 < first["kept"] < 16 and not first["connected"]
    out, more = tmp_path / "out", []
    prepare.prepare(plan_of(folder), Storage(out), progress=lambda *_: more.append(_))
    assert reports(out) == 16 and len(more) == 16 - first["kept"]
    by_hand(folder, tmp_path / "hand", shard_count=8)
    assert (tmp_path / "out" / NAME).read_bytes() == (tmp_path / "hand" / NAME).read_bytes()


def plan_of(folder: Path) -> Plan:
    return Plan(name="small", source=sources.find(folder), shards=8, row_group=7)


def reports(out: Path) -> int:
    return len(list((out / prepare.REPORTS).iterdir()))


def main(folder: Path, out: Path) -> None:
    """The set's GCS is killed when its first shard is there."""
    began, lost = [time.monotonic()], ""

    def kill(*_: object) -> None:
        if len(began) == 1:
            [started] = ray._private.worker._global_node.all_processes["gcs_server"]
            os.kill(started.process.pid, signal.SIGKILL)
            began.append(time.monotonic())

    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as short:
        joined = session.connect("local", temp_dir=short, object_store_memory=100_000_000, cpus=1)
        try:
            prepare.prepare(plan_of(folder), Storage(out), progress=kill)
        except RayLost as error:
            lost = str(error)
        finally:
            joined.close()
    told = {"lost": lost, "seconds": time.monotonic() - began[-1], "kept": reports(out)}
    time.sleep(2)  # what is left of Ray Data may ask for Ray
    print(json.dumps(told | {"connected": ray.is_initialized()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
