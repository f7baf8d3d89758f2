"""Scripts that start Ray clusters of their own, each in a session of processes that ends with its test."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.processes import PATIENT_RAY, SECONDS, sessions
from tests.processes import ROOT as REPOSITORY


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Runs a module of this folder and gives what it printed; processes that it left are ended, and are a failure."""

    def run(name: str) -> dict[str, Any]:
        folder, home = tmp_path_factory.mktemp(name), tmp_path_factory.mktemp("home")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        environment |= {"PYTHONPATH": str(REPOSITORY), "HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0", **PATIENT_RAY}
        with sessions(cwd=REPOSITORY, env=environment) as start:
            process = start(sys.executable, "-m", f"tests.cluster.{name}", str(folder))
            out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, out[-3000:] + err[-6000:]
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert found.pop("left") == 0, "processes of the cluster outlived it"
        return found

    return run
