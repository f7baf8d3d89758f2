"""The page of an experiment that the user ran with Ray Tune: the tables of a sweep, from what Tune logged."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ray import tune

import raychains as rc
from raychains.api import plans
from raychains.api.sweep import SweepResult
from raychains.core.config import Run, Sweep
from raychains.core.errors import ChainsFailed, UserError
from raychains.store import Storage, SweepStore
from tests.sweeps.worlds import TASK, undrawn

pytestmark = pytest.mark.usefixtures("ray_session")

EPOCHS = 8
ONE_AT_A_TIME = tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1)
"""Trials take over one another's process."""


def halfway(trial: str, result: dict[str, Any]) -> bool:
    """Return whether a trial is one of the last point and through two of its four cycles: a user's way of stopping."""
    return is_last(**result["config"]) and result["cycle"] == 1


def is_last(cycles: int, exploration: float, **_: Any) -> bool:
    """Return whether a point is the last one of the grid."""
    return cycles == 4 and exploration == 0.5


@pytest.fixture
def quick() -> Iterator[None]:
    """Figures are no part of the test."""
    with undrawn():
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> tuple[Any, Any, Path]:
    """2 × 2 points with two repeats each, the last of which is stopped halfway: the experiment's results, its trainable
    and the run store."""
    folder = tmp_path_factory.mktemp("tune")
    trainable = rc.tune.trainable(
        task=TASK,
        epochs=EPOCHS,
        val_split=40,
        samples_per_cycle=1,
        thinning=1,
        sampler="csgld",
        store=str(folder / "store"),
    )
    space = {"exploration": [0.0, 0.5], "cycles": [2, 4], "repeat": [0, 1]}
    tuner = tune.Tuner(
        trainable,
        param_space={name: tune.grid_search(values) for name, values in space.items()},
        tune_config=ONE_AT_A_TIME,
        run_config=tune.RunConfig(name="mine", storage_path=str(folder / "tune"), verbose=0, stop=halfway),
    )
    return tuner.fit(), trainable, folder / "store"


@pytest.fixture(scope="module")
def found(ran: tuple[Any, Any, Path]) -> SweepResult:
    """The experiment's report."""
    results, trainable, _ = ran
    return rc.tune.report(results, trainable)


def test_the_table_has_what_the_trials_reported(ran: tuple[Any, Any, Path], found: SweepResult) -> None:
    results, _, store = ran
    assert found.path == str(store / "sweeps" / "mine") and Path(found.report).stat().st_size > 10_000
    table = found.table(full=True).set_index("digest")
    assert len(table) == 8 and table.groupby("point").size().eq(2).all()
    for result in results:
        row, last = table.loc[result.metrics["digest"]], result.metrics
        assert (row["nll"], row["epoch"], row["gradients"]) == (
            last["nll"],
            last["epoch"],
            last["gradient_evaluations"],
        )
        assert (row["exploration"], row["cycles"], row["repeat"]) == tuple(
            last["config"][n] for n in ("exploration", "cycles", "repeat")
        )
        assert row["status"] == ("stopped" if is_last(row["cycles"], row["exploration"]) else "finished")
    reported = {result.metrics["digest"]: len(result.metrics_dataframe) for result in results}
    assert found.reports().groupby("digest").size().to_dict() == reported
    assert {path.stem for path in Path(found.path, "figures").glob("*.svg")} >= {"map", "progress", "cycles"}


def test_the_best_points_file_makes_its_chains(found: SweepResult) -> None:
    finished = found.table(full=True).query("status == 'finished'")
    whole = finished.groupby("point").filter(lambda rows: len(rows) == 2)
    best = whole[whole["point"] == whole.groupby("point")["nll"].mean().idxmin()]
    options = Run(**found.best, chains=1, repeats=2)
    assert set(plans.run(options).comparison.chains()) == set(best["digest"])


@pytest.mark.usefixtures("quick")
def test_another_metric_decides_when_asked(ran: tuple[Any, Any, Path]) -> None:
    results, trainable, _ = ran
    found = rc.tune.report(results, trainable, metric="error", name="by-error")
    assert found.store.plan()["metric"] == "error" and found.path.endswith("/sweeps/by-error")
    assert rc.tune.report(results, trainable, metric="nll", name="by-error").store.plan()["metric"] == "nll"


def test_what_is_wrong_is_one_line(ran: tuple[Any, Any, Path]) -> None:
    results, trainable, store = ran
    with pytest.raises(
        UserError, match=r"^trainable must be a class that rc.tune.trainable returned, got <class 'int'>$"
    ):
        rc.tune.report(results, int)  # type: ignore[type-var]
    with pytest.raises(UserError, match=r"^metric must be one of .*, got 'nl'; did you mean 'nll'\?$"):
        rc.tune.report(results, trainable, metric="nl")
    planned = plans.sweep(Sweep(task=TASK, epochs=2, val_split=40, grid=("cycles=1",), exploration=0.5))
    SweepStore(Storage(store), "ours").write_plan(planned.plan.to_json())
    with pytest.raises(UserError, match=r"^name must be that of an experiment or a new one, got 'ours': it is a sweep"):
        rc.tune.report(results, trainable, name="ours")


@pytest.mark.usefixtures("quick")
def test_trials_without_a_report_are_left_out_and_those_that_broke_are_failed_points(tmp_path: Path) -> None:
    """The task breaks in its twelfth of 16 steps: after the first of two cycles, or the second of four."""
    trainable = rc.tune.trainable(
        task="tests.sweeps.tasks:Breaking", epochs=4, val_split=40, exploration=0.0, samples_per_cycle=1,
        store=str(tmp_path / "store"),
    )  # fmt: skip
    run = tune.RunConfig(name="some", storage_path=str(tmp_path / "tune"), verbose=0)
    results = tune.Tuner(
        trainable, param_space={"cycles": tune.grid_search([2, 4000, 4])}, tune_config=ONE_AT_A_TIME, run_config=run
    ).fit()
    assert len(results.errors) == 3
    with pytest.raises(
        ChainsFailed, match=r"^2 chains of the sweep failed; what was computed is in .*/sweeps/some; the first, "
    ):
        rc.tune.report(results, trainable)
    folder = tmp_path / "store" / "sweeps" / "some"
    rows = pd.read_parquet(folder / "results.parquet")
    assert list(rows["status"]) == ["failed"] * 2 and list(rows["cycles"]) == [2, 4] and list(rows["cycle"]) == [0, 1]
    assert rows["reason"].str.endswith("ZeroDivisionError: the user's own mistake").all()
    note = "1 of 3 trials ended without a report and are left out; the first: "
    [said] = [n for n in SweepStore(Storage(tmp_path / "store"), "some").plan()["notes"] if n.startswith(note)]
    assert said.endswith("cycles must be at most the number of steps (16), got 4000")
    assert note in (folder / "report.html").read_text()


@pytest.mark.usefixtures("quick")
def test_seeds_and_lengths_may_differ_between_trials(tmp_path: Path) -> None:
    trainable = rc.tune.trainable(
        task=TASK,
        epochs=4,
        val_split=40,
        exploration=0.0,
        samples_per_cycle=1,
        cycles=2,
        store=str(tmp_path / "store"),
        allow_unequal_budget=True,
        init_from=rc.make_task(TASK).build_model(seed=3, lanes=1),
    )
    lengths = tune.sample_from(lambda config: 2 + 2 * config["seed"])
    run = tune.RunConfig(name="some", storage_path=str(tmp_path / "tune"), verbose=0)
    tuner = tune.Tuner(
        trainable, param_space={"seed": tune.grid_search([0, 1]), "epochs": lengths}, tune_config=ONE_AT_A_TIME,
        run_config=run,
    )  # fmt: skip
    found = rc.tune.report(tuner.fit(), trainable)
    rows = found.table(full=True)
    assert sorted(zip(rows["seed"], rows["epochs"], strict=True)) == [(0, 2), (1, 4)]
    assert set(rows["status"]) == {"finished"}
    assert set(plans.run(Run(**found.best, chains=1)).comparison.chains()) < set(rows["digest"])
    assert pickle.loads(pickle.dumps(found)).best == found.best
