"""Missing files of a data set, downloaded by torchvision in a process of its own and put in place when complete."""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from raychains.core.errors import UserError
from raychains.data.catalogue import Entry

STALLED = 60.0
"""Seconds without a new byte after which a download is given up."""
_LOOK = 0.2
_logger = logging.getLogger(__name__)
_forbidden = contextvars.ContextVar("downloads are forbidden", default=False)

# torchvision takes seconds to import, and its timeout is the process's: both stay out of the caller.
_PROGRAM = """
import socket, sys
socket.setdefaulttimeout(10)
from torchvision import datasets
name, split, folder = sys.argv[1:]
which = {"split": split} if name == "SVHN" else {"train": split == "train"}
getattr(datasets, name)(folder, download=True, **which)
"""


@contextlib.contextmanager
def without_downloads() -> Iterator[None]:
    """Refuse a missing data set at once in the body, for callers that can do without it."""
    token = _forbidden.set(True)
    try:
        yield
    finally:
        _forbidden.reset(token)


def fetch(entry: Entry, split: str, root: Path, missing: Callable[[], list[Path]]) -> None:
    """Download what ``missing()`` names; another process that does so at the same time is waited for.

    Raises:
        UserError: which file is missing, where it was looked for, and why it could not be had.
    """
    if entry.torchvision is None:
        raise UserError(f"{_first(entry, missing())}; put there: {entry.source}")
    if _forbidden.get():
        raise UserError(_first(entry, missing()))
    if not _writable(root):
        raise UserError(f"{_first(entry, missing())}, and it cannot be downloaded: {root} is not writable")
    root.mkdir(parents=True, exist_ok=True)
    with alone(root):
        if not missing():
            return
        _logger.info("downloading data set %s to %s", entry.name, root)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as folder:
            reason = _download(entry.torchvision, split, Path(folder))
            if reason is None:
                _place(Path(folder) / entry.folder, root / entry.folder, entry)
    if still := missing():
        raise UserError(f"{_first(entry, still)}, and the download failed: {reason or 'it did not hold this file'}")


def _first(entry: Entry, missing: list[Path]) -> str:
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return f"data set {entry.name}: no file {missing[0]}{more}"


def _writable(root: Path) -> bool:
    """Return whether files can be made in ``root``, or ``root`` itself in the nearest folder that exists.

    A folder whose mode lets no user write counts as not writable for the superuser too.
    """
    there = next(p for p in (root, *root.parents) if p.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK) and bool(there.stat().st_mode & 0o222)


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold a lock on ``root``, so that one process writes below it at a time; a file system without locks has none."""
    folder = os.open(root, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _download(name: str, split: str, folder: Path) -> str | None:
    """Let torchvision's class ``name`` download into ``folder``; why that failed, or None."""
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-c", _PROGRAM, name, split, str(folder)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process:
            try:
                stalled = _stalls(process, folder)
            finally:
                process.kill()
        if stalled:
            return f"no data for {STALLED:.0f} s"
        if process.returncode == 0:
            return None
        output.seek(0)
        lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else f"torchvision ended with status {process.returncode}"


def _stalls(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Wait for the process; True when the folder has stopped growing before it ended."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        now = sum(_size(p) for p in folder.rglob("*"))
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > STALLED:
            return True
        time.sleep(_LOOK)
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a temporary file of the download's, gone again
        return 0


def _place(downloaded: Path, to: Path, entry: Entry) -> None:
    """Move the data set's files into place, each at once, so that no process reads half of one."""
    to.mkdir(parents=True, exist_ok=True)
    for file in (file for files in entry.splits.values() for file in files):
        if (downloaded / file.name).is_file():
            os.replace(downloaded / file.name, to / file.name)
