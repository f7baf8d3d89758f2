"""The first steps of docs/how-to/cluster.md, as far as this machine goes: the job runs on such a head, and status reports it.

Longer work, because `test_jobs.py` runs such a job already and tests/launcher reads the same commands.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.jobs.head import Head
from tests.launcher import pages
from tests.launcher.constraints import ROOT
from tests.processes import SECONDS

SKIPPED = (
    "make install",  # these tests run in the environment that it makes
    "source .venv/bin/activate",
    "ray start",  # the fixture's head is started so, on ports of its own
    "ray stop",  # would end every Ray of this machine
)


@pytest.mark.long
def test_its_commands_run(head: Head, tmp_path: Path) -> None:
    here, _ = pages.first_steps()
    assert all(any(c.startswith(s) for c in here) for s in SKIPPED)
    environment = {**head.environment, "PYTHONPATH": str(ROOT)}
    for name in ("RAY_AUTH_MODE", "RAY_API_SERVER_ADDRESS", "FORCE_COLOR"):  # the section sets the first two
        del environment[name]
    typed = [c for c in here if not c.startswith(SKIPPED)]
    port = head.url.rpartition(":")[2]
    script = "\n".join(typed).replace(":8265", f":{port}").replace('"$PWD/runs"', shlex.quote(f"{tmp_path}/runs"))
    script = script.replace("raychains status runs/", f"python -m raychains.cli status {tmp_path}/runs/")
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.search(r"run first: finished\n +2 chains of digits: 2 finished", done.stdout), said
    assert (tmp_path / "runs/runs/first/report.html").is_file()
