"""A simulated disk behind the real `Storage`: outages, refusals, slowness, late listings, and the files themselves in
memory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pyarrow import fs

from raychains.core.retry import Patience, Retrying
from raychains.store.filesystem import Storage
from tests.simulation.machine import EPOCH, Machine, Process


@dataclass
class File:
    """Bytes, when they were written, and by whom."""

    data: bytes
    written: float
    stamp: float
    """The same by the storage's clock."""
    by: str


class Disk:
    """What is stored, and what is wrong with the storage at present.

    Args:
        exclusive: a name is created for one caller only.
        lag: seconds until the listings of others show a new file.
    """

    def __init__(self, machine: Machine, *, exclusive: bool, lag: float) -> None:
        self.machine, self.exclusive, self.lag = machine, exclusive, lag
        self.files: dict[str, File] = {}
        self.folders: dict[str, set[str]] = {}
        self.away: dict[str, float] = {}
        """Until when the storage does not answer whom; '' is everybody."""
        self.fault: int | None = None
        """What writes fail with: ENOSPC, EROFS."""
        self.slow = 0.0
        self.jumped = 0.0
        """By how much its clock jumped."""
        self.was_wrong = False
        """Something was wrong with it at some time."""

    def calm(self) -> None:
        """End everything that is wrong with it."""
        self.fault, self.slow, self.lag = None, 0.0, 0.0
        self.away.clear()

    def check(self, who: str, *, write: bool = False) -> None:
        """Raise what is wrong at present."""
        now = self.machine.now
        if self.away.get("", 0.0) > now or self.away.get(who, 0.0) > now:
            raise OSError(errno.EIO, "simulated outage")
        if write and self.fault is not None:
            raise OSError(self.fault, "simulated")

    def put(self, path: str, data: bytes, by: str) -> None:
        """Write a file."""
        if path not in self.files:
            folder, _, name = path.rpartition("/")
            self.folders.setdefault(folder, set()).add(name)
            while folder:
                parent, _, name = folder.rpartition("/")
                known = self.folders.setdefault(parent, set())
                if name in known:
                    break
                known.add(name)
                folder = parent
        self.files[path] = File(data, self.machine.now, EPOCH + self.machine.now + self.jumped, by)

    def remove(self, path: str) -> None:
        """Remove a file."""
        if self.files.pop(path, None) is not None:
            folder, _, name = path.rpartition("/")
            self.folders[folder].discard(name)


class SimulatedStorage(Storage):
    """The real `Storage` of one process, with a simulated disk below its retries.

    Args:
        sleep: how this process waits.
        before: called before every change of the disk: the process may die there.
    """

    def __init__(
        self,
        disk: Disk,
        who: str,
        *,
        process: Process | None = None,
        patience: Patience | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk, self._who, self._process, self._before = disk, who, process, before
        sleep = process.sleep if process is not None else lambda seconds: None
        clock = process.monotonic if process is not None else lambda: disk.machine.now
        self._retrying = Retrying(patience, sleep=sleep, clock=clock)
        self._keep_trying = None
        self._base = self.uri = self._shown = "simulated"
        self._query, self._local = "", True

    @property
    def exclusive(self) -> bool:
        return self._disk.exclusive

    def create(self, name: str, data: bytes) -> bool:
        if self._disk.exclusive:
            return super().create(name, data)
        if self.exists(name):
            return False
        self.publish(name, data)
        return True

    def _touch(self, *, write: bool = False) -> None:
        if self._process is not None:
            self._process.check()
            self._process.debt += self._disk.slow
        if write:
            self._before()
        self._disk.check(self._who, write=write)

    def _check_inside(self, path: str) -> None:
        pass

    def _write(self, path: str, data: bytes, *, new: bool = False) -> bool:
        self._touch(write=True)
        if new and path in self._disk.files:
            return False
        self._disk.put(path, data, self._who)
        if self._process is not None:
            self._before()  # it may die between the write and what follows
        return True

    def _read(self, path: str, start: int, length: int | None) -> bytes:
        self._touch()
        if path not in self._disk.files:
            raise FileNotFoundError(path)
        data = self._disk.files[path].data
        return data[start:] if length is None else data[start : start + length]

    def delete(self, name: str) -> None:
        def attempt() -> None:
            self._touch(write=True)
            self._disk.remove(self._path(name))

        self._repeat("deleted", name, attempt)

    def _info(self, path: str) -> Any:
        def attempt() -> Any:
            self._touch()
            return self._about(path, path.rpartition("/")[2])

        return self._retrying.call("read", self._shown, attempt, self._keep_trying)

    def _about(self, path: str, name: str) -> Any:
        file = self._disk.files.get(path)
        if file is None:
            kind = fs.FileType.Directory if path in self._disk.folders else fs.FileType.NotFound
            return SimpleNamespace(base_name=name, path=path, type=kind, size=None, mtime_ns=None)
        about = {"type": fs.FileType.File, "size": len(file.data), "mtime_ns": int(file.stamp * 1e9)}
        return SimpleNamespace(base_name=name, path=path, **about)

    def _list(self, path: str, *, recursive: bool = False) -> list[Any]:
        assert not recursive

        def attempt() -> list[Any]:
            self._touch()
            return [self._about(f"{path}/{name}", name) for name in sorted(self._disk.folders.get(path, ()))]

        shown = self._repeat("listed", path, attempt)
        now, lag = self._disk.machine.now, self._disk.lag
        if not lag:
            return shown
        return [
            i
            for i in shown
            if (f := self._disk.files.get(i.path)) is None or f.by == self._who or now - f.written >= lag
        ]
