"""A person's script and a person's folder as real processes: a lambda in ``__main__``, kill -9, resume; the
templates."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import raychains as rc
from raychains.cli import main
from raychains.store import ChainStore, Storage
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import SECONDS, Start, kill_session, sessions, until

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

    def forward(self, series, there):
        self.passes += self.training
        time.sleep(self.pause * (self.passes > 50))
        return {"logits": self.layer((series * there[..., None]).sum(1))}


def collate(examples):
    """Pads series of unequal length."""
    series = torch.nn.utils.rnn.pad_sequence([x for x, _ in examples], batch_first=True)
    there = torch.arange(series.shape[1]) < torch.tensor([len(x) for x, _ in examples])[:, None]
    return {"series": series, "there": there.float(), "labels": torch.stack([y for _, y in examples])}


def make(scale, pause):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g) * scale
    y = (x[:, 0] > 0).long()
    data = [(x[i].expand(1 + i % 4, 3) / (1 + i % 4), y[i]) for i in range(60)]
    return rc.Task.from_module(lambda: Slow(pause), data[:40], data[40:], collate_fn=collate, name="slow")


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


Command = Callable[[str], tuple[int, str]]


@pytest.fixture
def said(
    runs: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Commands in the store's folder, which is not on Python's own path: their exit status, and what they print."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands append the folder
    yield lambda line: (main(line.split()), "".join(capsys.readouterr()))
    for module in ("mytask", "mydensity"):
        sys.modules.pop(module, None)


def test_the_template_runs_as_it_is_and_is_not_overwritten(said: Command, folder: Path) -> None:
    status, text = said("init-task mytask.py")
    assert status == 0 and "raychains run --task mytask:make_task" in text
    written = (folder / "mytask.py").read_text()
    status, text = said("init-task mytask.py")
    assert status == 2 and text == "raychains: FILE must be a new one, got 'mytask.py': it exists\n"
    assert (folder / "mytask.py").read_text() == written
    for name, word in (
        ("my-task.py", "called as a Python module"),
        ("nowhere/t.py", "in a folder that can be written to"),
    ):
        status, text = said(f"init-task {name}")
        assert status == 2 and word in text and text.count("\n") == 1, text

    status, text = said("run --task mytask:make_task --epochs 2 --chains 1")
    assert status == 0, text
    (report,) = (folder / "runs" / "runs").glob("mytask-make_task-*/report.html")
    result = rc.load(str(report.parent))
    (digest,) = result.comparison.chains()
    assert result.comparison.task == "mytask:make_task"
    assert len(list((folder / "runs" / "chains" / digest / "samples").iterdir())) == 4
    assert 0 < result.results()["error"].iloc[0] < 0.5


def test_the_density_that_init_density_writes_runs_in_the_folder_that_it_is_in(said: Command, folder: Path) -> None:
    status, text = said("init-density")
    assert status == 0 and "raychains run --task mydensity:make_task" in text
    for name, word in (("mydensity.py", "it exists"), ("my-density.py", "like mydensity.py")):
        status, text = said(f"init-density {name}")
        assert status == 2 and word in text
    status, text = said("run --task mydensity:make_task --steps 4000 --batch-size 20 --chains 1")
    assert status == 0, text
    (report,) = (folder / "runs" / "runs").glob("mydensity-make_task-*/report.html")
    result = rc.load(str(report.parent), trust=True)
    row = result.table(full=True).iloc[0]
    assert row["mean coefficients[0]"] == pytest.approx(1, abs=0.3)
    assert row["mean coefficients[1]"] == pytest.approx(-2, abs=0.3)
    assert result.to_arviz().posterior["coefficients"].dims == ("chain", "draw", "column")
