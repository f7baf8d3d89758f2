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
from raychains.orchestration import prepare, session
from raychains.store import Storage
from tests.data.prepared.made import folder_of_classes
from tests.data.prepared.made import prepared as by_hand
from tests.processes import json_of


@pytest.mark.long
def test_a_set_whose_gcs_dies_is_finished_by_the_same_call(tmp_path: Path) -> None:
    folder = folder_of_classes(tmp_path / "in", train=200, val=40)
    words = ("-m", "tests.prepare.test_ray_dies", str(folder), str(tmp_path / "out"))
    first, again = (json_of(*words, how, RAY_BACKEND_LOG_LEVEL="fatal") for how in ("killed", "left alone"))
    assert "gcs_server on this machine died" in first["lost"] and first["lost"].endswith("repeat the call")
    assert first["seconds"] < 60 and 0 < first["kept"] < 16 and not first["connected"]
    assert again["lost"] == "" and again["kept"] == 16
    by_hand(folder, tmp_path / "hand", shard_count=8)
    assert (tmp_path / "out" / NAME).read_bytes() == (tmp_path / "hand" / NAME).read_bytes()


def main(folder: Path, out: Path, how: str) -> None:
    plan = Plan(name="small", source=sources.find(folder), shards=8, row_group=7)
    began, lost = [time.monotonic()], ""

    def kill(*_: object) -> None:
        if how == "killed" and len(began) == 1:
            [started] = ray._private.worker._global_node.all_processes["gcs_server"]
            os.kill(started.process.pid, signal.SIGKILL)
            began.append(time.monotonic())

    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as short:
        joined = session.connect("local", temp_dir=short, object_store_memory=100_000_000, cpus=1)
        try:
            prepare.prepare(plan, Storage(out), progress=kill)
        except RayLost as error:
            lost = str(error)
        finally:
            joined.close()
    told = {"lost": lost, "seconds": time.monotonic() - began[-1], "kept": len(list((out / prepare.REPORTS).iterdir()))}
    time.sleep(2)  # what is left of Ray Data may ask for Ray
    print(json.dumps(told | {"connected": ray.is_initialized()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
