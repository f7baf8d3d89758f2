"""Deaths at chosen moments inside Ray's worker processes, and a record of what each process was doing.

A mortal task calls `arm` when its model is built in a worker. From then on this process keeps a *life*: a small file
that says how many steps were made and which file is being published. When the kill that is planned for the chain comes
due, its marker is written and the process (or its raylet, or the driver) gets SIGKILL right there. Kills are placed by
counting steps and publishes, so that they come at the same places on a fast machine and on a slow one.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from raychains.chain.chain import Chain
from raychains.store import Storage
from tests.orchestration.lives import ATTEMPT

LIFE_BYTES = 600
ORPHAN_STEPS, ORPHAN_PAUSE = 10, 0.05
"""Steps that an orphan makes at most, and the seconds that each takes at least: then it waits for its end, however late
that comes, so that its successor has as much to do on a slow machine."""
_NAME = re.compile(
    r"chains/([0-9a-f]+)/(?:(samples|checkpoints|progress|incarnations)/(\d+).*|(?:samples|progress)\.parquet)"
)
_KINDS = {"samples": "sample", "checkpoints": "checkpoint", "progress": "progress", "incarnations": "begin"}

_here = threading.local()
"""The kill that is due in the publish that this thread is in, and the size of its data."""
_life: Life | None = None
_patched = False


class Life:
    """One attempt of one chain in this process; or the driver's own, or an evaluator's."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self.counts: dict[str, int] = {}
        self.orphan: int | None = None
        """Steps made since the node or driver was killed: this process goes on until Ray ends it."""
        self.now: dict[str, Any] = {
            "key": key,
            "pid": os.getpid(),
            "began": time.monotonic(),
            "from_step": 0,
            "steps": 0,
            "durable": 0,
            "busy": 0,
            "writing": "",
        }
        planned = json.loads((folder / "plan.json").read_text())[key]
        left = [(n, k) for n, k in enumerate(planned) if not (folder / f"killed-{key}-{n}").exists()]
        self.number, self.kill = left[0] if left else (-1, None)
        (folder / "lives").mkdir(exist_ok=True)
        name = f"{key}-{os.getpid()}-{len(list((folder / 'lives').glob(f'{key}-{os.getpid()}-*')))}"
        self._file = os.open(folder / "lives" / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self.write()

    def step(self) -> None:
        """A step begins; those that are made while the writer writes are its ``busy`` ones since the last
        checkpoint."""
        while self.orphan == ORPHAN_STEPS or self._ahead():
            time.sleep(0.001)
        self.now["steps"] += 1
        self.now["busy"] += bool(self.now["writing"])
        self.count("step")
        self.write()
        if self.orphan is not None:
            self.orphan += 1
            time.sleep(ORPHAN_PAUSE)

    def _ahead(self) -> bool:
        """Whether the chain might end before the planned of its checkpoints, as the writer is still at an earlier
        one."""
        k = self.kill
        timed = k is not None and k["where"] in ("checkpoint", "progress")
        return timed and bool(self.now["writing"]) and self.counts.get(k["where"], 0) < k["nth"]

    def write(self) -> None:
        """One write of fixed length: whoever reads the file finds one state or the next, also after SIGKILL."""
        os.pwrite(self._file, json.dumps(self.now).ljust(LIFE_BYTES).encode(), 0)

    def due(self, where: str, moment: str) -> bool:
        """Whether the kill of this life is at the present count of ``where``, and at ``moment``."""
        k = self.kill
        return k is not None and (k["where"], k["nth"], k["moment"]) == (where, self.counts.get(where, 0), moment)

    def count(self, where: str) -> None:
        """One more of ``where``."""
        self.counts[where] = self.counts.get(where, 0) + 1

    def enter(self, name: str) -> None:
        self.now["writing"] = name
        self.write()

    def resume(self, step: int) -> None:
        """The chain goes on behind ``step``."""
        self.now["from_step"] = self.now["durable"] = step
        self.write()

    def leave(self, kind: str, name: str) -> None:
        self.now["writing"] = ""
        if kind == "checkpoint":
            self.now["durable"], self.now["busy"] = int(name.rpartition("/")[2].partition("-")[0]), 0
        self.write()

    def die(self, **about: Any) -> None:
        kill, self.kill = self.kill, None
        assert kill is not None
        if kill["target"] != "worker":
            self.orphan = 0
        marker = json.dumps({**kill, **self.now, **about, "counts": self.counts})
        with open(self.folder / f"killed-{self.key}-{self.number}", "x") as f:
            f.write(marker)
        if kill["target"] == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kill["target"] == "node":
            raylet = os.getppid()
            assert "raylet" in Path(f"/proc/{raylet}/comm").read_text()
            os.kill(raylet, signal.SIGKILL)
        else:
            os.kill(int((self.folder / "driver").read_text()), signal.SIGKILL)


def in_worker() -> bool:
    """Whether this process is an actor's, or one that tests start for an attempt; tasks are built in others as well."""
    if multiprocessing.current_process().name == ATTEMPT:
        return True
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def arm(folder: str, key: str, *, anywhere: bool = False) -> None:
    """A chain begins in this process."""
    global _life, _patched
    if not (anywhere or in_worker()) or not (Path(folder) / "plan.json").exists():
        return
    if key not in json.loads((Path(folder) / "plan.json").read_text()):
        return  # a model that is built for something else
    _life = Life(Path(folder), key)
    if not _patched:
        _patched = True
        _patch()


def step() -> None:
    if _life is not None:
        _life.step()


def in_step() -> None:
    """The step's gradient is there, its update is not."""
    if _life is not None and _life.due("step", "gradient"):
        _life.die()


def in_prediction() -> None:
    """An evaluator is about to predict a sample."""
    if _life is not None:
        _life.count("predict")
        if _life.due("predict", "before"):
            _life.die()


def _kind(name: str) -> str | None:
    if name.startswith("runs/"):
        return name.rpartition("/")[2].partition(".")[0]
    found = _NAME.fullmatch(name)
    return None if found is None else _KINDS.get(found[2], "finish")


def _patch() -> None:
    """Count and interrupt what this process publishes, by the functions that any way of publishing goes through."""
    publish, replace, load = Storage.publish, os.replace, Chain.load_state_dict

    def loaded(self: Chain, state: dict[str, Any]) -> None:
        load(self, state)
        if _life is not None:
            _life.resume(self.step)

    def counted(self: Storage, name: str, data: bytes, *args: Any, **kwargs: Any) -> Any:
        life, kind = _life, _kind(name)
        if life is None or kind is None:
            return publish(self, name, data, *args, **kwargs)
        life.count(kind)
        life.enter(name)
        final = Path(self.location(name))
        _here.kind, _here.length, _here.was = kind, len(data), _size(final)
        if life.due(kind, "before"):
            life.die(length=len(data), temporary=None, final=_size(final), was=_here.was)
        try:
            result = publish(self, name, data, *args, **kwargs)
        finally:
            _here.kind = None
        if life.due(kind, "returned"):
            life.die(length=len(data), temporary=None, final=_size(final), was=_here.was)
        life.leave(kind, name)
        return result

    def replaced(source: Any, target: Any, **kwargs: Any) -> None:
        life, kind = _life, getattr(_here, "kind", None)
        moment = life.kill["moment"] if life is not None and life.kill is not None else ""
        if life is None or kind is None or not life.due(kind, moment):
            return replace(source, target, **kwargs)
        whole = Path(source).read_bytes()
        if moment in ("half", "torn"):
            os.truncate(source, len(whole) // 2)
        if moment in ("torn", "renamed"):
            replace(source, target, **kwargs)
        if moment in ("half", "written", "torn", "renamed"):
            life.die(length=_here.length, temporary=_size(source), final=_size(target), was=_here.was)
        if moment == "half":  # an orphan goes on with its write
            Path(source).write_bytes(whole)
        if moment not in ("torn", "renamed"):
            replace(source, target, **kwargs)

    Storage.publish = counted  # type: ignore[method-assign]
    os.replace = replaced  # type: ignore[assignment]
    Chain.load_state_dict = loaded  # type: ignore[method-assign]


def _size(path: Any) -> int | None:
    return os.stat(path).st_size if os.path.exists(path) else None
