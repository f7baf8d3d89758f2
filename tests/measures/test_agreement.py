"""Agreement and total variation of arms against scikit-learn and scipy on the averaged probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.spatial.distance as distance
from sklearn.metrics import accuracy_score

from raychains import measures
from raychains.inference.run_data import RunData
from raychains.measures import agreement
from raychains.plotting.style import laid_out
from raychains.report.figures import FIGURES
from tests.checks import refused
from tests.evaluation.cases import softmax_samples
from tests.measures import predicted
from tests.measures.predicted import Predicted

SPLITS = {"test": lambda: predicted.labelled(0, 80, noise=0.7)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predicted, measures.Tables]:
    run = Predicted(tmp_path_factory.mktemp("agreement"), SPLITS, arms=3)
    tables = measures.named("agreement").tables(run.context())
    run.write(tables)
    return run, tables


def test_every_pair_of_a_group_and_an_arms_repeats_equal_libraries(run: tuple[Predicted, measures.Tables]) -> None:
    it, tables = run
    names = [arm.name for arm in it.comparison.arms]
    rows = {
        (r["between"], names.index(r["first"]), r["first_group"], names.index(r["second"]), r["second_group"]): r
        for r in tables["agreement"]
    }
    pairs = {("arms", a, g, b, g) for a in range(3) for b in range(3) for g in range(2)}
    assert rows.keys() == pairs | {("repeats", a, 0, a, 1) for a in range(3)}
    for (_, a, g, b, h), row in rows.items():
        first, second = it.probabilities("test", a, g).mean(0), it.probabilities("test", b, h).mean(0)
        assert row["agreement"] == pytest.approx(accuracy_score(first.argmax(1), second.argmax(1)))
        variation = np.mean([distance.cityblock(p, q) / 2 for p, q in zip(first, second, strict=True)])
        assert row["total_variation"] == pytest.approx(variation, abs=1e-7)
    assert rows["arms", 1, 0, 1, 0]["agreement"] == 1 and rows["arms", 0, 0, 2, 0]["agreement"] < 1


def test_the_figure_has_arms_off_the_diagonal_and_repeats_on_it(run: tuple[Predicted, measures.Tables]) -> None:
    it, tables = run
    drawing = FIGURES["agreement"](RunData(it.store, it.comparison))
    assert drawing is not None
    first, last = it.comparison.arms[0].name, it.comparison.arms[2].name
    shown = {(r["first"], r["second"]): r for r in drawing.data}
    assert len(shown) == 9

    def mean(between: str, a: str, b: str) -> float:
        found = [
            r["agreement"] for r in tables["agreement"] if (r["between"], r["first"], r["second"]) == (between, a, b)
        ]
        return float(np.mean(found))

    assert shown[first, last]["agreement"] == pytest.approx(mean("arms", first, last))
    assert shown[first, first]["agreement"] == pytest.approx(mean("repeats", first, first))
    with laid_out(drawing) as figure:
        assert [axis.get_title(loc="left") for axis in figure.axes] == ["Same top class (%)", "Total variation (%)"]
        numbers = [text.get_text() for text in figure.axes[0].texts]
        assert f"{100 * mean('arms', first, last):.1f}" in numbers and len(numbers) == 9


def test_one_arm_has_a_table_and_no_figure(tmp_path: Path) -> None:
    run = Predicted(tmp_path, SPLITS, arms=1)
    tables = measures.named("agreement").tables(run.context())
    assert len(tables["agreement"]) == 3
    run.write(tables)
    assert FIGURES["agreement"](RunData(run.store, run.comparison)) is None


def test_predictives_that_are_none_are_one_line(tmp_path: Path) -> None:
    run = Predicted(tmp_path, SPLITS, arms=2)
    for sample in run.samples[1, 1]:
        sample["bias"] += float("nan")
    with refused("probabilities", "nan"):
        measures.named("agreement").tables(run.context())
    run.samples[0, 0] = []
    with refused("no samples"):
        measures.named("agreement").tables(run.context())
    run.task.predicts = "gaussian"
    assert "no classification" in str(measures.named("agreement").why_not(run.context()))


# Two predictives

P, _ = softmax_samples(0, samples=5, n=200)
TIED = np.random.default_rng(0).choice([1.0, 2.0], size=(4, 60, 5))
TIED /= TIED.sum(-1, keepdims=True)


def test_total_variation_is_the_largest_difference_over_events() -> None:
    """sup over sets A of classes of |P(A) − Q(A)|, all 2⁵ of them."""
    events = (np.arange(32)[:, None] >> np.arange(5)) & 1
    for a, b in zip(TIED[0, :10], TIED[1, :10], strict=True):
        expected = np.abs(events @ (a - b)).max()
        assert agreement.total_variation(a[None], b[None]) == pytest.approx(expected, abs=1e-12)
