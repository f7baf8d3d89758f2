"""A person's script and a person's folder as real processes: a lambda in ``__main__``, kill -9, resume; the template."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import raychains as rc
from raychains.chain import Chain
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Root

SCRIPT = '''
import sys
import time
import torch
import raychains as rc


class Slow(torch.nn.Module):
    """A class of __main__: no worker can import it."""

    def __init__(self, pause):
        super().__init__()
        self.layer, self.pause = torch.nn.Linear(3, 2), pause

    def forward(self, x):
        time.sleep(self.pause)
        return self.layer(x)


def make(scale, pause):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g) * scale
    y = (x[:, 0] > 0).long()
    return rc.Task.from_module(lambda: Slow(pause), (x[:40], y[:40]), (x[40:], y[40:]), name="slow")


if __name__ == "__main__":
    store, scale = sys.argv[1], float(sys.argv[2])
    try:
        result = rc.run(
            task=make(scale, 0.01), store=store, name="r", resume=True, chains=2, epochs=30, cycles=6,
            samples_per_cycle=1, batch_size=10, lr=0.05, sampler="csghmc", checkpoint_every=0.2, evaluators=1,
            object_store_memory=100_000_000,
        )
    except rc.UserError as error:
        sys.exit(f"refused: {error}")
    print("done:", float(result.table()["error"].iloc[0]))
'''
SECONDS = 240
"""That anything may take before a test gives up."""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the script in a folder and a session of its own; whatever is left of it at the end is killed."""
    (tmp_path / "own_script.py").write_text(SCRIPT)
    processes: list[subprocess.Popen[str]] = []

    def start(scale: float = 1.0) -> subprocess.Popen[str]:
        run = [sys.executable, "own_script.py", "store", str(scale)]
        processes.append(
            subprocess.Popen(
                run, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=here()
            )
        )  # fmt: skip
        return processes[-1]

    yield start
    for process in processes:
        kill_session(process.pid)


def kill_session(leader: int) -> None:
    """Kill every process of a session: Ray's own have process groups of their own."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def here() -> dict[str, str]:
    """The environment of a process that finds this checkout, from whatever folder."""
    paths = [str(Path(rc.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    outside = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    return {**outside, "PYTHONPATH": os.pathsep.join(paths)}


def test_killed_and_resumed_a_script_with_a_lambda_gives_the_samples_of_an_undisturbed_one(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    first, deadline = started(), time.monotonic() + SECONDS
    samples = tmp_path / "store" / "chains"
    while len(list(samples.glob("*/samples/*"))) < 3 or not list(samples.glob("*/checkpoints/*")):
        assert first.poll() is None and time.monotonic() < deadline, first.communicate()
        time.sleep(0.02)
    kill_session(first.pid)
    first.wait()
    assert len(list(samples.glob("*/samples/*"))) < 12, "it was through before it was killed"

    changed = started(scale=2.0)
    _, error = changed.communicate(timeout=SECONDS)
    assert changed.returncode == 1
    assert error.strip() == "refused: resume: task 'slow' differs from that of run 'r': training data and test data"

    again = started()
    out, error = again.communicate(timeout=SECONDS)
    assert again.returncode == 0 and out.startswith("done:"), error

    plan = rc.load(str(tmp_path / "store" / "runs" / "r")).comparison.chains()
    stores = {d: ChainStore(Root(str(tmp_path / "store")), d) for d in plan}
    assert max(s.last_incarnation() for s in stores.values()) > 1
    task = runpy.run_path(str(tmp_path / "own_script.py"))["make"](1.0, 0.0)  # a pause changes nothing that is hashed
    undisturbed = {
        (d, e.meta.index): tensors_sha256(e.tensors)
        for d, spec in plan.items()
        for e in Chain(spec, task)
        if isinstance(e, Sample)
    }
    assert len(undisturbed) == 12
    assert {(d, r.meta.index): r.sha256 for d, s in stores.items() for r in s.records()} == undisturbed


def test_the_template_runs_as_it_is_and_is_not_overwritten(tmp_path: Path) -> None:
    """As a person would: two commands in an empty folder. -P: the folder is not on Python's own path."""
    command = [sys.executable, "-P", "-m", "raychains.cli"]

    def said(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=here(), capture_output=True, text=True, timeout=SECONDS
        )
        return done.returncode, done.stdout + done.stderr

    status, text = said("init-task", "mytask.py")
    assert status == 0 and "raychains run --task mytask:make_task" in text
    written = (tmp_path / "mytask.py").read_text()
    status, text = said("init-task", "mytask.py")
    assert status == 2 and text == "raychains: file must be a new one, got 'mytask.py': it exists\n"
    assert (tmp_path / "mytask.py").read_text() == written
    for name, word in (
        ("my-task.py", "called as a Python module"),
        ("nowhere/t.py", "in a folder that can be written to"),
    ):
        status, text = said("init-task", name)
        assert status == 2 and word in text and text.count("\n") == 1, text

    more = ("--epochs", "2", "--chains", "2", "--object-store-memory", "100000000")
    status, text = said("run", "--task", "mytask:make_task", *more)
    assert status == 0, text
    (report,) = (tmp_path / "runs" / "runs").glob("mytask-make_task-*/report.html")
    result = rc.load(str(report.parent))
    assert result.comparison.task == "mytask:make_task" and len(list(tmp_path.glob("runs/chains/*/samples/*"))) == 8
    assert 0 < result.results()["error"].iloc[0] < 0.5
