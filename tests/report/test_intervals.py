"""Bootstrap intervals in the table of views, and the names of metrics when a task's data are not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from raychains import tasks
from raychains.core.errors import UserError
from raychains.core.spec import TaskSpec
from raychains.evaluation.bootstrap import intervals
from raychains.evaluation.classification import Classification, OutOfDistribution
from raychains.evaluation.evaluation import Evaluation
from raychains.evaluation.moments import GaussianMoments
from raychains.evaluation.regression import Regression
from raychains.inference import results
from raychains.inference.run_data import metrics_of, planned_metrics, read_metrics
from raychains.planning import Comparison
from raychains.planning.views import Request, View
from raychains.store import RunStore, Storage
from tests.measures import predicted
from tests.measures.predicted import Predicted


def test_the_equally_weighted_view_of_all_samples_has_intervals_and_no_other(tmp_path: Path) -> None:
    run = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 90, noise=0.7)}, arms=1)
    asked = [
        Request(arm=0, group=1),
        Request(arm=0, group=1, view=View(name="chain:0", kind="chains", chain=0)),
        Request(arm=0, group=1, weighting="harmonic"),
    ]
    found = run.evaluate("test", asked)
    results.write_views(run.store, run.comparison, found, 8)
    table = results.read(run.store, "views")
    for name, ends in intervals(found[0].rows, found[0].metrics[0], bins=8).items():
        columns = table[[f"{name}_low", f"{name}_high"]].to_numpy()
        assert tuple(columns[0]) == ends and columns[0][0] <= columns[0][1]
        assert (columns[1:] != columns[1:]).all(), name  # nan
    assert {"ece_mass_low", "error_high", "mutual_information_low"} <= set(table.columns)


@pytest.mark.parametrize("kind", [Classification, OutOfDistribution, Regression, GaussianMoments])
def test_without_the_data_metrics_are_those_of_the_kind_that_has_the_columns(
    kind: type[Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(spec: TaskSpec) -> tasks.Task:
        raise UserError("data set mnist: no file here")

    whole = predicted.runs.digits(sampler=("sghmc",))
    comparison = Comparison(task="mnist-mlp", unit="epochs", split="test", arms=whole.arms)
    monkeypatch.setattr(tasks, "build", gone)
    columns = {"arm", "repeat", *(m.name for m in kind.metrics)}
    store = RunStore(Storage(tmp_path), "older")
    store.write_plan({"comparison": comparison.to_json()})
    assert metrics_of(store, comparison, columns) == kind.metrics and planned_metrics(comparison) is None


def test_a_plan_has_the_metrics_of_its_split_and_no_task_is_built_to_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = predicted.runs.digits(sampler=("sghmc",))
    store = RunStore(Storage(tmp_path), "new")
    store.write_plan({"comparison": comparison.to_json(), "metrics": planned_metrics(comparison)})
    monkeypatch.setattr(tasks, "build", None)
    assert metrics_of(store, comparison) == Classification.metrics
    stored = store.plan()["metrics"]
    assert stored[0] == {
        "name": "error",
        "label": "Error (%)",
        "better": "lower",
        "scale": 100.0,
        "digits": 2,
        "minor": False,
    }
    for damaged in (
        None,
        3,
        [1],
        [{"name": "error"}],
        [{**stored[0], "scale": "x"}],
        [{**stored[0], "digits": -1}],
        [],
    ):
        assert read_metrics({"metrics": damaged}) is None
