"""Agreement and total variation of arms against scikit-learn and scipy on the averaged probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.spatial.distance as distance
from sklearn.metrics import accuracy_score

from raychains import measures
from raychains.inference.run_data import RunData
from raychains.plotting.style import laid_out
from raychains.report.figures import FIGURES
from tests.checks import refused
from tests.measures import predicted
from tests.measures.predicted import Predicted

SPLITS = {"test": lambda: predicted.labelled(0, 80, noise=0.7)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    return Predicted(tmp_path_factory.mktemp("agreement"), SPLITS, arms=3).measured("agreement")


def test_every_pair_of_a_group_and_an_arms_repeats_equal_libraries(run: Predicted) -> None:
    names = [arm.name for arm in run.comparison.arms]
    rows = {
        (r["between"], names.index(r["first"]), r["first_group"], names.index(r["second"]), r["second_group"]): r
        for r in run.tables["agreement"]
    }
    pairs = {("arms", a, g, b, g) for a in range(3) for b in range(3) for g in range(2)}
    assert rows.keys() == pairs | {("repeats", a, 0, a, 1) for a in range(3)}
    for (_, a, g, b, h), row in rows.items():
        first, second = run.probabilities("test", a, g).mean(0), run.probabilities("test", b, h).mean(0)
        assert row["agreement"] == pytest.approx(accuracy_score(first.argmax(1), second.argmax(1)))
        variation = np.mean([distance.cityblock(p, q) / 2 for p, q in zip(first, second, strict=True)])
        assert row["total_variation"] == pytest.approx(variation, abs=1e-7)
    assert rows["arms", 1, 0, 1, 0]["agreement"] == 1 and rows["arms", 0, 0, 2, 0]["agreement"] < 1


def test_the_figure_has_arms_off_the_diagonal_and_repeats_on_it(run: Predicted) -> None:
    drawing = FIGURES["agreement"](RunData(run.store, run.comparison))
    assert drawing is not None
    first, last = run.comparison.arms[0].name, run.comparison.arms[2].name
    shown = {(r["first"], r["second"]): r for r in drawing.data}
    assert len(shown) == 9

    def mean(between: str, a: str, b: str) -> float:
        of = [r for r in run.tables["agreement"] if (r["between"], r["first"], r["second"]) == (between, a, b)]
        return float(np.mean([r["agreement"] for r in of]))

    assert shown[first, last]["agreement"] == pytest.approx(mean("arms", first, last))
    assert shown[first, first]["agreement"] == pytest.approx(mean("repeats", first, first))
    with laid_out(drawing) as figure:
        assert [axis.get_title(loc="left") for axis in figure.axes] == ["Same top class (%)", "Total variation (%)"]
        numbers = [text.get_text() for text in figure.axes[0].texts]
        assert f"{100 * mean('arms', first, last):.1f}" in numbers and len(numbers) == 9


def test_one_arm_has_a_table_and_no_figure(tmp_path: Path) -> None:
    run = Predicted(tmp_path, SPLITS, arms=1).measured("agreement")
    assert len(run.tables["agreement"]) == 3
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
