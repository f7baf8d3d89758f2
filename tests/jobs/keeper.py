"""Runs a command, and ends everything that came of it once standard input is closed: a script, Linux only.

What the command starts may take sessions of its own, as Ray's jobs do, or lose its parent. As "subreaper" this process
becomes the parent of every orphan among its descendants, so that none can hide, and clears away those that ended.

Prints as JSON the command lines of what could not be ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE, FORCED = 15.0, 120.0
"""Seconds for a polite end, and for a forced one, which takes long on a busy machine only."""


def main(command: list[str]) -> None:
    """Until standard input is closed."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be taken on")
    kept = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=reap, daemon=True).start()
    sys.stdin.read()
    ended = not Path(f"/proc/{kept.pid}").exists()  # what it left would not hear of a polite end
    end(lambda: [kept.pid], signal.SIGTERM, 2.0 if ended else PATIENCE, every=PATIENCE)
    end(descendants, signal.SIGKILL, FORCED, every=1.0)
    print(json.dumps([Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in descendants()]))


def reap() -> None:
    """Clear away children, adopted ones as well, as they end."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.1)


def end(processes: Callable[[], list[int]], how: int, seconds: float, every: float) -> None:
    """Signal processes, now and every so many seconds, until nothing is left, or for a while."""
    now = time.monotonic()
    deadline, due = now + seconds, now
    while descendants() and now < deadline:
        for pid in processes() if now >= due else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        due = now + every if now >= due else due
        time.sleep(0.05)
        now = time.monotonic()


def descendants(of: int | None = None) -> list[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found, new = set[int](), {os.getpid() if of is None else of}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return sorted(found)


if __name__ == "__main__":
    main(sys.argv[1:])
