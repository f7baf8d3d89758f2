"""A person's script and a person's folder as real processes: a lambda in ``__main__``, kill -9, resume; the template."""

from __future__ import annotations

import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import raychains as rc
from raychains.cli import main
from raychains.store import ChainStore, Storage
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import SECONDS, Start, kill_session, outside, sessions, until

SCRIPT = '''
import sys
import time
import torch
import raychains as rc


class Slow(torch.nn.Module):
    """A class of __main__: no worker can import it."""

    def __init__(self, pause):
        super().__init__()
        self.layer, self.pause, self.passes = torch.nn.Linear(3, 2), pause, 0

    def forward(self, x):
        self.passes += self.training
        time.sleep(self.pause * (self.passes > 50))
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
            task=make(scale, float(sys.argv[3])), store=store, name="r", resume=True, chains=2, epochs=30, cycles=6,
            samples_per_cycle=1, batch_size=10, lr=0.05, sampler="csghmc", checkpoint_every=0.2, evaluators=1,
            object_store_memory=100_000_000, progress=False,
        )
    except rc.UserError as error:
        sys.exit(f"refused: {error}")
    print("done:", float(result.table(full=True)["error"].iloc[0]))
'''


@pytest.mark.long
def test_killed_and_resumed_a_script_with_a_lambda_gives_the_samples_of_an_undisturbed_one(tmp_path: Path) -> None:
    (tmp_path / "own_script.py").write_text(SCRIPT)
    with sessions(cwd=tmp_path) as start:
        kill_and_resume(partial(start, sys.executable, "own_script.py", "store"), tmp_path)
    store = str(tmp_path / "store")
    plan = rc.load(f"{store}/runs/r").comparison
    assert max(ChainStore(Storage(store), d).last_attempt() for d in plan.chains()) > 1
    task = runpy.run_path(str(tmp_path / "own_script.py"))["make"](1.0, 0.0)  # a pause changes nothing that is hashed
    undisturbed = undisturbed_hashes(plan, task)
    assert len(undisturbed) == 12 and stored_hashes(store, plan) == undisturbed


def kill_and_resume(start: Start, folder: Path) -> None:
    """Kill the script in its middle; with other data it is refused, with the same it goes on to its end."""
    first, samples = start("1.0", "1.0"), folder / "store" / "chains"  # 70 of 120 steps take a second

    def both_on_their_way() -> bool:
        assert first.poll() is None, first.communicate()
        return len(list(samples.glob("*/samples/*"))) >= 3 and bool(list(samples.glob("*/checkpoints/*")))

    until(both_on_their_way, "three samples and a checkpoint")
    kill_session(first.pid)
    first.wait()
    assert len(list(samples.glob("*/samples/*"))) < 12, "it was through before it was killed"

    changed = start("2.0", "0.0")
    _, error = changed.communicate(timeout=SECONDS)
    assert changed.returncode == 1
    assert error.strip() == "refused: resume: task 'slow' differs from that of run 'r': training data and test data"

    again = start("1.0", "0.0")
    out, error = again.communicate(timeout=SECONDS)
    assert again.returncode == 0 and out.startswith("done:") and out.count("\n") == 1, error
    assert error == "", "without progress it is silent"


def test_the_template_runs_as_it_is_and_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a person would: in an empty folder. -P: the folder is not on Python's own path."""
    monkeypatch.chdir(tmp_path)

    def said(*arguments: str) -> tuple[int, str]:
        return main([*arguments]), "".join(capsys.readouterr())

    status, text = said("init-task", "mytask.py")
    assert status == 0 and "raychains run --task mytask:make_task" in text
    written = (tmp_path / "mytask.py").read_text()
    status, text = said("init-task", "mytask.py")
    assert status == 2 and text == "raychains: FILE must be a new one, got 'mytask.py': it exists\n"
    assert (tmp_path / "mytask.py").read_text() == written
    for name, word in (
        ("my-task.py", "called as a Python module"),
        ("nowhere/t.py", "in a folder that can be written to"),
    ):
        status, text = said("init-task", name)
        assert status == 2 and word in text and text.count("\n") == 1, text

    more = ("--epochs", "2", "--chains", "2", "--object-store-memory", "100000000")
    command = [sys.executable, "-P", "-m", "raychains.cli", "run", "--task", "mytask:make_task", *more]
    done = subprocess.run(command, cwd=tmp_path, env=outside(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = (tmp_path / "runs" / "runs").glob("mytask-make_task-*/report.html")
    result = rc.load(str(report.parent))
    assert result.comparison.task == "mytask:make_task" and len(list(tmp_path.glob("runs/chains/*/samples/*"))) == 8
    assert 0 < result.results()["error"].iloc[0] < 0.5


def test_the_density_that_init_density_writes_runs_in_the_folder_that_it_is_in(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init-density"]) == 0 and "raychains run --task mydensity:make_task" in capsys.readouterr().out
    assert main(["init-density"]) == 2 and "it exists" in capsys.readouterr().err
    assert main(["init-density", "my-density.py"]) == 2 and "like mydensity.py" in capsys.readouterr().err
    before = list(sys.path)
    try:  # in this process; the test above has one of its own
        command = "run --task mydensity:make_task --steps 4000 --batch-size 20 --chains 2"
        assert main(command.split()) == 0, capsys.readouterr()
    finally:
        sys.path[:] = before
        sys.modules.pop("mydensity", None)
    (report,) = (tmp_path / "runs" / "runs").glob("mydensity-make_task-*/report.html")
    result = rc.load(str(report.parent), trust=True)
    row = result.table(full=True).iloc[0]
    assert row["mean coefficients[0]"] == pytest.approx(1, abs=0.3)
    assert row["mean coefficients[1]"] == pytest.approx(-2, abs=0.3)
    assert result.to_arviz().posterior["coefficients"].dims == ("chain", "draw", "column")
