"""The first steps of docs/how-to/cluster.md, as far as this machine goes: a job from the checkout runs on such a head as the
command does, and status reports it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

import raychains as rc
from tests.jobs.head import Head
from tests.launcher import pages
from tests.launcher.constraints import ROOT
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import SECONDS

SKIPPED = (
    "make install",  # these tests run in the environment that it makes
    "source .venv/bin/activate",
    "ray start",  # the fixture's head is started so, on ports of its own
    "ray stop",  # would end every Ray of this machine
)


@pytest.mark.long
def test_its_commands_run(head: Head, tmp_path: Path) -> None:
    """The head's own environment asks for colours; tests/launcher reads the same commands."""
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
    report = tmp_path / "runs/runs/first/report.html"
    assert report.is_file() and f"report: {report}" in said
    (name,) = set(re.findall(r"raysubmit_\w+", said))
    job, log = head.job(name), head.log(name)
    assert (job["status"], job["driver_exit_code"]) == ("SUCCEEDED", 0)
    assert re.search(r"cSGHMC, 2 chains +40/80 +1/1 ", log) and "\x1b" not in log
    chains = rc.load(str(report.parent)).comparison.chains()
    assert len(chains) == 2 and stored_hashes(tmp_path / "runs", chains) == undisturbed_hashes(chains)
