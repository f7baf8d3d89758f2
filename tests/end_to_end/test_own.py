"""Tasks given as objects through real Ray actors: the samples of a chain alone, results without the object, one line
else."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import raychains as rc
from raychains.api import sampling
from raychains.cli import main
from raychains.tasks import passed_tasks
from tests.checks import refused
from tests.orchestration.worlds import Hashes, stored_hashes, undisturbed_hashes
from tests.pool import unpaged

SETTINGS: dict[str, Any] = {
    "sampler": "csghmc", "chains": 2, "epochs": 4, "cycles": 2, "batch_size": 10, "lr": 0.01, "evaluators": 1,
}  # fmt: skip
G = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=G)
Y = X @ torch.tensor([1.0, -1.0, 0.5]) + 0.1 * torch.randn(60, generator=G)


def made(**settings: Any) -> Any:
    """A regression with learned noise whose network is a class of a function: only its own pickle can tell it."""

    class Net(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, width), nn.Linear(width, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(self.first(x)))

    width = settings.pop("width", 4)
    data = {"train_set": (X[:40], Y[:40]), "test_set": (X[40:], Y[40:]), "name": "own line", "noise": "learned"}
    return rc.Task.from_module(lambda: Net(width), loss="gaussian", **{**data, **settings})


@pytest.fixture(scope="module")
def settings(runs: str) -> dict[str, Any]:
    """Of all runs of this file: their workers have run other tasks before."""
    return {**SETTINGS, "store": runs}


@pytest.fixture(scope="module")
def run(settings: dict[str, Any]) -> tuple[Any, rc.Result]:
    """The task, and a run of it."""
    task = made()
    return task, rc.run(task=task, name="r", **settings)


def stored(result: rc.Result) -> Hashes:
    return stored_hashes(result.store.root, result.comparison)


def test_samples_are_those_of_chains_alone(run: tuple[Any, rc.Result]) -> None:
    _task, result = run
    found = stored(result)
    assert len(found) == 4 and found == undisturbed_hashes(result.comparison, made())
    assert result.comparison.task == "own line"
    text = Path(result.path, "plan.json").read_text()
    assert "lambda" not in text and '"name": "own line"' in text


def test_the_predictive_is_the_mixture_of_the_stored_samples(run: tuple[Any, rc.Result]) -> None:
    task, result = run
    predictive = rc.load(result.path, task=task).predictive()
    mean, std = predictive.mean_and_std(X[40:])
    model, means, variances = task.build_model(seed=0, lanes=1), [], []
    for tensors in predictive._selection.stored():
        model.load_state_dict(tensors)
        with torch.no_grad():
            means.append(model(X[40:])[:, 0].double().numpy())
        variances.append(np.exp(2 * float(tensors["log_noise"])))
    assert np.allclose(mean, np.mean(means, axis=0)) and np.array_equal(predictive(X[40:].numpy()), mean)
    second = (np.array(means) ** 2 + np.array(variances)[:, None]).mean(0)
    assert np.allclose(std, np.sqrt(second - np.mean(means, axis=0) ** 2))
    assert np.allclose(predictive.outputs(X[40:])[:, :, 0], means)
    rmse = np.sqrt(((mean - Y[40:].numpy()) ** 2).mean())
    assert result.table(full=True)["rmse"].iloc[0] == pytest.approx(rmse, rel=1e-6)


def test_results_and_report_need_no_object(run: tuple[Any, rc.Result], monkeypatch: pytest.MonkeyPatch) -> None:
    _task, result = run
    table = result.table(full=True)
    monkeypatch.setattr(passed_tasks, "_GIVEN", {})  # as in another process
    again = rc.load(result.path)
    assert again.table(full=True).equals(table) and list(again.table(full=True).columns).count("rmse") == 1
    Path(result.report).unlink()
    assert main(["report", result.path]) == 0
    page = Path(result.report).read_text()
    assert "RMSE" in page and "own line" in page
    with refused("task 'own line' was made by Task.from_module", "raychains.load(path, task=…)"):
        again.predict(X)
    with refused("task differs from the run's: layout of the model"):
        rc.load(result.path, task=made(width=5))
    with refused("task differs from the run's: it is raychains.tasks.digits:Digits here"):
        rc.load(result.path, task=rc.make_task("digits"))
    with refused("task differs from the run's: name is 'other' here, 'own line' in the run"):
        rc.load(result.path, task=made(name="other"))
    assert rc.load(result.path, task=made()).predict(X).shape == (60,)


def test_evaluate_needs_it_and_says_so(
    run: tuple[Any, rc.Result],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    task, result = run
    monkeypatch.setattr(passed_tasks, "_GIVEN", {})
    assert main(["evaluate", result.path, "--split", "train"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "task 'own line' was made by Task.from_module" in error
    evaluated = rc.evaluate(result.path, "train", task=made(), page=False)
    mean = rc.load(result.path, task=task).predict(X[:40])
    assert evaluated.table(full=True)["rmse"].iloc[0] == pytest.approx(
        np.sqrt(((mean - Y[:40].numpy()) ** 2).mean()), rel=1e-6
    )


def test_the_same_object_goes_on_and_another_is_refused_by_what_differs(
    run: tuple[Any, rc.Result], settings: dict[str, Any]
) -> None:
    _task, result = run
    with unpaged():
        again = rc.run(task=made(), name="r", resume=True, **settings)
    assert stored(again) == stored(result)
    for change, word in (
        ({"train_set": (X[:40] * 2, Y[:40])}, "training data"),
        ({"test_set": (X[41:], Y[41:])}, "test data"),
        ({"version": 2}, "version ('2' here, '1' in the run)"),
    ):
        with refused(f"resume: task 'own line' differs from that of run 'r': {word}"):
            rc.run(task=made(**change), name="r", resume=True, **settings)
    assert stored(result) == stored(again)


def test_a_streamed_set_gives_the_same_samples_in_workers(run: tuple[Any, rc.Result], settings: dict[str, Any]) -> None:
    """One of the run's chains, again."""
    _, result = run
    before = stored(result)

    class Listed:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, i: int) -> tuple[Any, Any]:
            return X[i], Y[i]

    digest = next(iter(result.comparison.chains()))
    shutil.rmtree(Path(result.store.root.location(), "chains", digest))
    assert len(stored(result)) == len(before) / 2
    sampling.sample(made(train_set=Listed(), resident=False), name="streamed", **settings)
    assert stored(result) == before


def test_what_cannot_travel_is_refused_before_anything_is_written(ray_session: None, tmp_path: Path) -> None:
    lock = threading.Lock()

    def model_fn() -> nn.Module:
        with lock:
            return nn.Linear(3, 1)

    task = rc.Task.from_module(model_fn, (X, Y), (X, Y), "gaussian", name="locked")
    with refused("task 'locked' must be picklable to travel to workers: TypeError", "_thread.lock"):
        rc.run(task=task, store=str(tmp_path / "store"), **SETTINGS)
    assert not list((tmp_path / "store").rglob("plan.json"))


def test_a_task_of_the_current_folder_runs_in_workers_started_elsewhere(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of this session were started from the repository; the module lies beside the run."""
    (tmp_path / "besides_workers.py").write_text(
        "import torch, raychains as rc\n"
        "def make(n=30):\n"
        "    from besides_too import data\n"
        "    return rc.Task.from_module(lambda: torch.nn.Linear(2, 2), data(n), data(n), name='beside')\n"
    )
    (tmp_path / "besides_too.py").write_text(
        "import torch\n"
        "def data(n):\n"
        "    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(1))\n"
        "    return x, (x[:, 0] > 0).long()\n"
    )
    monkeypatch.chdir(tmp_path)
    with unpaged():
        result = rc.run(task="besides_workers:make", task_settings=("n=50",), **{**settings, "chains": 1})
    assert Path(result.path).name == f"besides_workers-make-{result.comparison.digest[:8]}"
    assert len(stored(result)) == 2
    assert stored(result) == undisturbed_hashes(result.comparison)


def test_metrics_of_ones_own_stand_beside_the_built_in_ones(
    run: tuple[Any, rc.Result], settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The chains are those of the first run: metrics change no sample. One that fails on a whole split is nan, and a
    warning."""
    mean_error = rc.Metric(
        name="mae",
        label="Mean absolute error",
        better="lower",
        of=lambda rows: abs(rows["mean"] - rows["target"]).mean(),
    )
    task = made(metrics=[mean_error])
    result = rc.run(task=task, name="metrics", **settings)
    assert stored(result) == stored(run[1])
    found = result.table(full=True).iloc[0]
    mean, _ = rc.load(result.path, task=task).predictive().mean_and_std(X[40:])
    assert found["mae"] == pytest.approx(np.abs(mean - Y[40:].numpy()).mean(), rel=1e-6)
    assert "Mean absolute error" in result.table().columns and "Mean absolute error" in Path(result.report).read_text()
    assert found["rmse"] == run[1].table(full=True)["rmse"].iloc[0]
    split = task.splits()["test"]
    broken = rc.Metric(name="odd", label="Odd", better="neither", of=lambda rows: rows["nothing"])
    split.metrics = (*split.metrics, broken)
    tensors = task.build_model(seed=0, lanes=1).state_dict()
    with caplog.at_level("WARNING"):
        (measured,) = split.measure([split.reduce([split.predict(tensors, 0)], 0)])
    assert np.isnan(measured["odd"]) and measured["mae"] > 0 and "metric odd could not be computed" in caplog.text
    a = rc.Metric(name="a", label="A", better="lower")
    for wrong, line in (
        (3, "metrics must be raychains.Metric objects with a function of=, got 3"),
        (a, "metrics must be raychains.Metric objects with a function of="),
        (dataclasses.replace(a, name="nll", of=len), "metrics must have names of their own"),
        (dataclasses.replace(a, of=lambda rows: rows["x"]), "metrics: a must return a number of the rows"),
        (dataclasses.replace(a, of=lambda rows: rows), "metrics: a must return a number of the rows"),
    ):
        with refused(line):
            made(metrics=[wrong])


class Counts(nn.Linear):
    """A linear network whose scale depends on a Python counter."""

    seen = 0

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return super().forward(input) * (1 + 1 / self.seen)


def test_state_that_no_checkpoint_holds_is_refused_before_ray_starts_unless_the_run_need_not_be_exact(
    settings: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = rc.Task.from_module(lambda: Counts(3, 1), (X[:40], Y[:40, None]), (X[40:], Y[40:, None]), loss="gaussian")
    store = str(folder / "counting")
    calls: list[Any] = [
        lambda: rc.run(task=task, store=store, **SETTINGS),
        lambda: rc.sweep(task=task, store=store, epochs=40, val_split=0.2, batch_size=8, grid={"lr": [0.01, 0.02]}),
        lambda: rc.tune.trainable(task=task, store=store, epochs=40, val_split=0.2, batch_size=8, lr=0.01),
    ]
    for call in calls:
        with refused("task 'own': its model uses state that no checkpoint holds (Counts.seen)", "pass `exact=False`"):
            call()
    assert not Path(store).exists()
    result = rc.run(task=task, exact=False, name="inexact", **{**settings, "chains": 1})
    assert not any(spec.exact for spec in result.comparison.chains().values())
    page = Path(result.report).read_text()
    assert "not exact on resume" in page and "--no-exact" in page
    monkeypatch.chdir(folder)
    Path("counting_task.py").write_text(OWN_COUNTING)
    command = "run --task counting_task:make --lr .01 --epochs 40 --batch-size 8 --store"
    assert main([*command.split(), store]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "uses state that no checkpoint holds (Net.seen)" in said and "pass --no-exact, which" in said


OWN_COUNTING = """
import torch, raychains as rc

class Net(torch.nn.Linear):
    seen = 0
    def forward(self, x):
        self.seen += 1
        return super().forward(x) * (1 + 1 / self.seen)

def make():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    return rc.Task.from_module(lambda: Net(3, 1), (x, x[:, :1]), (x, x[:, :1]), loss="gaussian", name="counting")
"""


class Drawn(nn.Linear):
    """Scaled by a number that each process draws once."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * SCALE


SCALE = float(np.random.default_rng().normal())


def test_state_that_each_process_makes_once_is_refused_by_the_first_worker(settings: dict[str, Any]) -> None:
    """The trials in one process agree, a worker's differs: nothing is sampled, nor when the run is resumed."""
    task = rc.Task.from_module(
        lambda: Drawn(3, 1), loss="gaussian", train_set=(X, Y), test_set=(X, Y), name="drawn", noise=0.1
    )
    samples = Path(settings["store"]).glob
    before = {*samples("chains/*/samples/*")}
    for resume in (False, True):
        with refused(
            "task 'drawn': its model uses state that no checkpoint holds", "in another process takes another path"
        ):
            rc.run(task=task, name="drawn", resume=resume, **settings)
    assert {*samples("chains/*/samples/*")} == before
