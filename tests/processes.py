"""Commands in sessions of processes of their own, of which nothing is left after a test."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 900
"""That anything may take before a test gives up: what hangs, not what is slow on a busy machine."""
METRICS_EVERY = 3
"""Seconds of Ray's reports of metrics, which a test waits for."""
PATIENT_RAY = {
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_gcs_server_port_wait_time_s": "300",
    "RAY_metrics_report_interval_ms": str(1000 * METRICS_EVERY),
}
"""Settings of Ray for a busy machine, on which processes take long to come up."""
RAYCHAINS = [sys.executable, "-m", "raychains.cli"]


def peak_memory() -> int:
    """Return the most bytes that this program has had in memory; on Linux `getrusage` would begin with its parent's."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def outside() -> dict[str, str]:
    """The environment of a process that finds this checkout from whatever folder, and no cluster."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | {"PYTHONPATH": os.pathsep.join(paths)}


def kill_session(leader: int, number: int = signal.SIGKILL, kind: bytes = b"") -> int:
    """Send a signal to the session's processes whose command begins with ``kind``; how many there are.

    By session, since Ray's own have process groups of their own.
    """
    reached = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(entry.name)) == leader and (entry / "cmdline").read_bytes().startswith(kind):
                os.kill(int(entry.name), number)
                reached += 1
        except (ProcessLookupError, FileNotFoundError, PermissionError):
            continue
    return reached


def until(holds: Callable[[], object], what: str, seconds: float = SECONDS, every: float = 0.02) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(every)


def free_ports(count: int) -> list[int]:
    """Ports that nothing of this machine uses now, nor is given by chance later: they lie below those of the system's
    choice."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = random.SystemRandom().randrange(20_000, 32_000)  # above those of Ray's workers
            with suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found


def json_of(*command: str, timeout: float = SECONDS, **environment: str) -> Any:
    """What a command prints last, as JSON; lines of Ray's, which may come behind it, are passed over."""
    run: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": timeout}
    done = subprocess.run([sys.executable, *command], env=outside() | environment, **run)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    for line in reversed(done.stdout.splitlines()):
        with suppress(ValueError):
            return json.loads(line)
    raise AssertionError(f"no JSON: {done.stdout[-3000:]}")


Start = Callable[..., subprocess.Popen[str]]


@contextmanager
def sessions(**how: Any) -> Iterator[Start]:
    """Starts commands; whatever is left of them at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, **more: Any) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": outside()}
        started.append(subprocess.Popen(command, **{**pipes, **how, **more}, text=True, start_new_session=True))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            kill_session(process.pid)
            process.wait()
