"""The identity of this process, in terms that another process of the same machine can check."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TABLE = Path("/proc/self/ns/pid")


def here() -> dict[str, Any]:
    """Return host, place (this boot and its process table), pid and start of this process."""
    return {
        "host": _plain(socket.gethostname()) or "unknown",
        "place": place(),
        "pid": os.getpid(),
        "process": _state_and_start(os.getpid())[1],
    }


def place() -> str:
    """Return what two processes have in common that see each other under their pids: containers have tables of their
    own."""
    try:
        return _plain(f"{_BOOT.read_text().strip()}:{os.readlink(_TABLE)}")
    except OSError:  # no /proc: a pid with its start's date must do
        return _plain(f"host:{socket.gethostname()}")


def gone(where: str, pid: int, start: str) -> bool:
    """Return whether a process is known to have ended; False when that cannot be seen from here."""
    if where != place() or pid <= 0:
        return False
    state, started = _state_and_start(pid)
    return state != "unknown" and (state == "ended" or started != start)


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return ("runs" | "ended" | "unknown", start)."""
    if _BOOT.exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return ("ended" if fields[0] in "ZX" else "runs"), fields[19]
        except (FileNotFoundError, ProcessLookupError):
            return ("unknown" if _exists(pid) else "ended"), "-"  # /proc may hide other people's processes
        except (OSError, IndexError):
            return "unknown", "-"
    try:
        asked = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
        fields = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown", "-"
    if not fields:
        return "ended", "-"
    return ("ended" if fields[0].startswith("Z") else "runs"), _plain("_".join(fields[1:]))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _plain(text: str) -> str:
    """Return printable ASCII without spaces, at most 255 characters."""
    return "".join(c if "!" <= c <= "~" else "_" for c in text)[:255]
