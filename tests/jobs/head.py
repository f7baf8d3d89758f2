"""A Ray head with dashboard and token authentication on this machine, as a person starts one, and `ray job` against
it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.processes import PATIENT_RAY, SECONDS, free_ports, until

RAY = str(Path(sys.executable).with_name("ray"))
PORTS = (
    "port", "dashboard-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port",
    "metrics-export-port", "ray-client-server-port", "node-manager-port", "object-manager-port",
)  # fmt: skip
"""Options of `ray start`, each of which has a default that another Ray of this machine may use."""


class Head:
    """Started in ``folder``, a short path, which is its HOME and holds its files."""

    def __init__(self, folder: Path) -> None:
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._token = secrets.token_hex(32)
        (folder / ".ray").mkdir()
        (folder / ".ray" / "auth_token").write_text(self._token)
        self.url = f"http://127.0.0.1:{ports['dashboard-port']}"
        self.store = folder / "store"
        self.address = f"127.0.0.1:{ports['port']}"
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("RAY", "PYTHON"))}
        self.environment = {
            **outside, **PATIENT_RAY, "HOME": str(folder), "RAY_AUTH_MODE": "token", "RAY_API_SERVER_ADDRESS": self.url,
            "RAYCHAINS_STORE": str(self.store),
            "PATH": f"{Path(sys.executable).parent}:{outside['PATH']}", "FORCE_COLOR": "1",
        }  # fmt: skip
        start = [
            RAY,
            "start",
            "--head",
            "--block",
            "--node-ip-address=127.0.0.1",
            "--dashboard-host=127.0.0.1",
            "--num-cpus=4",
            "--object-store-memory=100000000",
            "--disable-usage-stats",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--temp-dir={folder}",
            *(f"--{name}={port}" for name, port in ports.items()),
        ]
        self._keeper = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("keeper.py")), *start],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def close(self) -> list[str]:
        """End it with everything that came of it; what could not be ended."""
        out, _ = self._keeper.communicate(timeout=SECONDS)
        left: list[str] = json.loads(out.splitlines()[-1])
        return left

    def ray(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`ray …` as a person types it."""
        return subprocess.run(
            [RAY, *arguments], cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=SECONDS
        )

    def api(self, path: str, body: dict[str, Any] | None = None, token: bool = True) -> Any:
        """What the head answers under /api/: `ray job` asks the same, but each time starts a Python for it."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}", data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}"} if token else {},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api(f"jobs/{name}")
        return found

    def ended(self, name: str) -> dict[str, Any]:
        """The same, once it has ended."""
        until(lambda: self.job(name)["status"] not in ("PENDING", "RUNNING"), f"the end of job {name}")
        return self.job(name)

    def log(self, name: str) -> str:
        return str(self.api(f"jobs/{name}/logs")["logs"])

    def up(self) -> bool:
        assert self._keeper.poll() is None, "the head's keeper is gone"
        try:
            return bool(self.api("cluster_status")["result"]) and self.api("jobs/") == []
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            return False
