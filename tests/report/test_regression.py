"""Figures of regressions: their numbers against the predictive's own, and nothing of them for classifiers."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import nn

from raychains import Task, tasks
from raychains.api import plans
from raychains.core.config import Run
from raychains.inference.run_data import RunData
from raychains.report.figures import regression_figures
from tests.report import runs
from tests.report.figures import drawing_of, nothing_covered

NAMES = ("intervals", "pit", "coverage")


@pytest.fixture(scope="module", params=[1, 2], ids=["one output", "two outputs"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """Predictions of 170 examples, more than are drawn."""
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(170, 3, generator=drawn)
    y = x[:, : request.param].sin() + 0.3 * torch.randn(170, request.param, generator=drawn)
    task = tasks.give(Task.from_module(lambda: nn.Linear(3, request.param), (x, y), (x, y), "gaussian", name="line"))
    options = Run(task="line", chains=2, epochs=6, cycles=2, exploration=0.5, repeats=2, batch_size=50, lr=0.01)
    comparison = plans.run(options, task=task).comparison
    return RunData(runs.store_run(tmp_path_factory.mktemp("line"), comparison), comparison)


def test_they_show_what_the_first_repeat_predicts(run: RunData) -> None:
    assert run.rows is not None
    rows = run.rows.to_pandas()
    rows = rows[rows["group"] == 0]
    target, mean, std, pit = (np.array(rows[name].tolist()).reshape(170, -1) for name in regression_figures.NEEDED)
    shown = drawing_of(run, "intervals").data
    assert len(shown) == regression_figures.SHOWN and [row["mean"] for row in shown] == sorted(
        row["mean"] for row in shown
    )
    z = NormalDist().inv_cdf(0.95)
    for row in shown:
        i = row["example"]
        expected = (target[i, 0], mean[i, 0], mean[i, 0] - z * std[i, 0], mean[i, 0] + z * std[i, 0])
        assert tuple(row[name] for name in ("target", "mean", "low", "high")) == pytest.approx(expected)
    counts = [row["count"] for row in drawing_of(run, "pit").data]
    assert counts == [int(((k / 10 <= pit) & (pit < (k + 1) / 10)).sum()) for k in range(10)]
    bands = {(row["low"], row["high"]) for row in drawing_of(run, "pit").data}
    assert bands == {(10.0, 25.0)} if pit.size == 170 else len(bands) == 1
    covered = {round(row["nominal"], 2): row["covered"] for row in drawing_of(run, "coverage").data}
    by_metric = {level: np.mean([(abs(p - 0.5) <= level / 2) for p in pit.reshape(-1)]) for level in (0.5, 0.9)}
    assert covered[0.5] == pytest.approx(by_metric[0.5]) and covered[0.9] == pytest.approx(by_metric[0.9])
    first = run.results.query("repeat == 0").iloc[0]
    assert covered[0.9] == pytest.approx(first["coverage_90"])


def test_axes_are_labelled_and_legends_cover_nothing(run: RunData) -> None:
    labels = {
        "intervals": {"Target", "Predicted"},
        "pit": {"Predicted probability of less", "Targets"},
        "coverage": {"Nominal probability", "Share of targets inside"},
    }
    for name in NAMES:
        assert labels[name] <= nothing_covered(drawing_of(run, name))
        assert "of the first repeat" in drawing_of(run, name).caption
