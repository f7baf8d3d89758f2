"""A run against predictions of the user's own: differences by hand, their intervals, and wrong predictions in one
line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import log_loss
from torch import nn

from raychains import measures
from raychains.evaluation.regression import Regression
from raychains.inference.run_data import RunData
from raychains.measures import against
from raychains.report.figures import FIGURES
from tests.checks import refused
from tests.measures import predicted
from tests.measures.predicted import CLASSES, Predicted
from tests.report.figures import nothing_covered

N = 90


@pytest.fixture
def run(tmp_path: Path) -> Predicted:
    return Predicted(tmp_path, {"test": lambda: predicted.labelled(0, N, noise=0.7)})


def test_differences_are_those_of_the_two_predictives(run: Predicted, tmp_path: Path) -> None:
    mine = np.random.default_rng(0).dirichlet(np.full(CLASSES, 0.5), size=N)
    np.save(tmp_path / "mine.npy", mine)
    measure = measures.named("against")
    context = run.context(against=str(tmp_path / "mine.npy"))
    assert measure.why_not(context) is None
    rows = measure.tables(context)["against"]
    labels = run.task.splits()["test"]._labels  # type: ignore[attr-defined]
    for arm, group in run.groups:
        own = {r["metric"]: r for r in rows if (r["arm"], r["group"]) == (run.comparison.arms[arm].name, group)}
        assert set(own) == {"error", "nll", "brier"}
        ours = run.probabilities("test", arm, group).mean(0)
        for name, row in own.items():
            found = []
            for p in (ours, mine):
                one_hot = np.eye(CLASSES)[labels]
                by_hand = {
                    "error": (p.argmax(1) != labels).astype(float),
                    "nll": -np.log(p[np.arange(N), labels]),
                    "brier": ((p - one_hot) ** 2).sum(1),
                }
                found.append(by_hand[name])
            assert row["value"] == pytest.approx(found[0].mean()) and row["against"] == pytest.approx(found[1].mean())
            difference = found[0] - found[1]
            assert row["difference"] == pytest.approx(difference.mean())
            half = 1.96 * stats.sem(difference)
            assert row["low"] == pytest.approx(difference.mean() - half, abs=0.3 * half)
            assert row["high"] == pytest.approx(difference.mean() + half, abs=0.3 * half)
        assert own["nll"]["value"] == pytest.approx(log_loss(labels, ours / ours.sum(1, keepdims=True)), rel=1e-5)
    run.store.write_table("against", rows)
    data = RunData(run.store, run.comparison)
    drawing = FIGURES["against"](data)
    assert drawing is not None and len(drawing.data) == 6 and "first repeat" in drawing.caption
    assert "NLL (nats), difference   ← better" in nothing_covered(drawing)
    lines = measure.in_words(data)
    assert len(lines) == 2 and "against your predictions: Error (%) " in lines[0] and "difference" in lines[0]


def test_the_predictive_itself_differs_by_nothing(run: Predicted) -> None:
    own = run.probabilities("test", 0, 0).mean(0)
    rows = measures.named("against").tables(run.context(against=own))["against"]
    for row in (r for r in rows if (r["arm"], r["group"]) == (run.comparison.arms[0].name, 0)):
        assert [row[name] for name in ("difference", "low", "high")] == pytest.approx([0, 0, 0], abs=1e-6)


def line(outputs: int = 1) -> Regression:
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.randn(N, 2, generator=drawn), torch.randn(N, outputs, generator=drawn).numpy()
    return Regression(model=nn.Linear(2, outputs), inputs=x, targets=y, noise=1.0, fingerprint="line")


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_regressions_predictions_are_gaussians(outputs: int) -> None:
    drawn = np.random.default_rng(1)
    means, sd = drawn.normal(size=(N, outputs)), drawn.uniform(0.3, 2, size=(N, 1))
    split = line(outputs)
    rows = against.predicted(np.hstack([means, sd]), split)
    expected = stats.norm.logpdf(split.targets, means, sd).sum(1)
    np.testing.assert_allclose(rows["log_p"], expected)
    z = (split.targets - means) / sd
    crps = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(rows["crps"], crps.mean(1), rtol=1e-6)


def test_wrong_predictions_are_one_line(run: Predicted, tmp_path: Path) -> None:
    split = run.task.splits()["test"]
    (tmp_path / "mine.npy").write_bytes(b"no array")
    uniform = np.full((N, CLASSES), 1 / CLASSES)
    for given, words in (
        (None, ("against must be given",)),
        (str(tmp_path / "gone.npy"), ("against must be an existing file",)),
        (str(tmp_path / "mine.npy"), ("against must be a .npy file",)),
        (uniform[:-1], ("against must have the shape", f"[{N}, {CLASSES}]", f"[{N - 1}, {CLASSES}]")),
        (uniform * 2, ("against must hold probabilities",)),
    ):
        with refused(*words):
            against.predicted(given, split)
    good = np.ones((N, 2))
    for given, words in (
        (good[:, :1], ("against must have the shape", f"[{N}, 2]", "means and a standard deviation")),
        (good * [1, -1], ("against must hold finite means and positive deviations", "-1")),
        (good * [np.nan, 1], ("against must hold finite means",)),
    ):
        with refused(*words):
            against.predicted(given, line())
