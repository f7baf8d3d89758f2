"""`raychains evaluate` as people call it: views, weights and measures of a run, and what it says to wrong wishes."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import raychains as rc
from raychains import tasks
from raychains.api import sampling
from raychains.cli import main
from tests.checks import refused

MEASURES = ("agreement", "diversity", "interpolation", "diagnostics", "flatness", "fidelity")
TABLES = {
    "views", "weights", "agreement", "distances", "embedding", "disagreement", "interpolation", "diagnostics",
    "autocorrelation", "fisher", "directions", "plane", "fidelity",
}  # fmt: skip


class Commanded(NamedTuple):
    """A run that the command has evaluated."""

    result: rc.Result
    own: np.ndarray
    """Its probabilities on the test split, which fidelity was measured against."""
    said: str


@pytest.fixture(scope="module")
def commanded(runs: str, tmp_path_factory: pytest.TempPathFactory) -> Commanded:
    file = str(tmp_path_factory.mktemp("evaluated") / "own.npy")
    task: Any = tasks.make("digits", train=100, hidden=[16], val_split=0.2)
    result = sampling.sample(
        task, epochs=10, cycles=2, chains=2, samples_per_cycle=3, exploration=0.2, repeats=1, store=runs,
        name="evaluated", concurrent=1,
    )  # fmt: skip
    split = task.splits()["test"]
    draws = list(result.predictive()._selection.stored())
    own = np.concatenate(
        [np.mean([np.exp(split.predict(d, i).astype(float)) for d in draws], axis=0) for i in range(split.shards)]
    )
    np.save(file, own)
    asked = ["--views", "chains", "cycles", "samples", "without-chain", "first:2", "--weights", "harmonic", "stacking"]
    asked += ["--measures", *MEASURES, "--reference", file, "--bins", "8"]
    with redirect_stdout(io.StringIO()) as said:
        assert main(["evaluate", result.path, *asked]) == 0
    return Commanded(result, own, said.getvalue())


@pytest.fixture(scope="module")
def evaluated(commanded: Commanded) -> rc.Result:
    return commanded.result


def test_every_measure_has_its_table_its_figures_and_its_place_in_the_page(evaluated: rc.Result) -> None:
    folder = Path(evaluated.path)
    assert {f.stem for f in folder.glob("*.parquet")} >= TABLES
    page = (folder / "report.html").read_text()
    drawn = {f.stem for f in (folder / "figures").glob("*.svg")}
    assert {"views", "weights", "embedding", "interpolation", "disagreement", "fidelity"} <= drawn
    for name in drawn:
        assert f'id="{name}"' in page and (folder / "figures" / f"{name}.png").exists()
    assert "could not be drawn" not in page


def test_views_are_what_predicting_with_their_samples_gives(evaluated: rc.Result) -> None:
    views = evaluated.store.table("views").to_pandas().set_index(["view", "weighting"])
    predictive = evaluated.predictive()
    assert len(predictive) == 12 and views.loc[("all", "equal"), "samples"] == 12
    results = evaluated.results().iloc[0]
    for metric in ("error", "nll", "brier"):
        assert views.loc[("all", "equal"), metric] == pytest.approx(results[metric], rel=1e-12)
    kinds = views.reset_index().groupby("kind").size().to_dict()
    assert kinds == {"all": 3, "chains": 2, "cycles": 2, "samples": 12, "without-chain": 2, "first": 1}
    # Of two chains, leaving one out is the other.
    for a, b in ((0, 1), (1, 0)):
        alone, without = views.loc[(f"chain:{a}", "equal")], views.loc[(f"without-chain:{b}", "equal")]
        assert alone["nll"] == pytest.approx(without["nll"], rel=1e-12) and alone["samples"] == 6
    singles = views[views["kind"] == "samples"]
    assert views.loc[("all", "equal"), "nll"] <= singles["nll"].mean() + 1e-12, "Jensen's inequality"
    low, high = (views.loc[("all", "equal"), f"error_{end}"] for end in ("low", "high"))
    assert low <= results["error"] <= high and low < high


def test_weights_sum_to_one_and_weighted_views_differ(evaluated: rc.Result) -> None:
    weights = evaluated.store.table("weights").to_pandas()
    sums = weights.groupby("weighting")["weight"].sum()
    assert set(sums.index) == {"harmonic", "stacking"} and np.allclose(sums, 1)
    views = evaluated.store.table("views").to_pandas().set_index(["view", "weighting"])
    nll = {w: views.loc[("all", w), "nll"] for w in ("equal", "harmonic", "stacking")}
    assert len(set(nll.values())) == 3


@contextmanager
def without_samples(run: rc.Result) -> Iterator[None]:
    """Whoever reads a sample of the run in the body finds none."""
    chains = [Path(run.path).parents[1] / "chains" / digest for digest in run.comparison.chains()]
    hidden = {folder: folder / "hidden" for folder in chains}
    for folder, away in hidden.items():
        away.mkdir()
        for file in (folder / "samples").iterdir():
            shutil.move(file, away)
    try:
        yield
    finally:
        for folder, away in hidden.items():
            for file in away.iterdir():
                shutil.move(file, folder / "samples")
            away.rmdir()


def of_all_samples(run: rc.Result) -> Any:
    """The row of fidelity of as many samples as there are."""
    table = run.store.table("fidelity").to_pandas()
    return table[table["samples"] == table["samples"].max()].iloc[0]


def test_a_file_of_probabilities_is_the_reference_that_fidelity_is_measured_against(commanded: Commanded) -> None:
    result, _, said = commanded
    label = result.comparison.arms[0].label
    assert any(line.startswith(f"fidelity of {label}: agreement ") for line in said.splitlines())
    assert "The reference: own.npy." in said.splitlines() and "report: " in said
    found = of_all_samples(result)
    assert found["agreement"] == 1 and found["total_variation"] < 1e-6


def test_kept_predictions_are_not_made_again_and_probabilities_may_be_an_array(
    commanded: Commanded, tmp_path: Path
) -> None:
    run, own, _ = commanded
    before, turned = run.results(), np.roll(own, 1, axis=1)
    asked: dict[str, Any] = {"measures": "fidelity", "page": False}
    with without_samples(run):
        rc.evaluate(run.path, views=["chains"], reference=turned, **asked)
    after, found = run.results(), of_all_samples(run)
    assert after["nll"].tolist() == before["nll"].tolist()
    assert after["ece"].tolist() == before["ece"].tolist(), "in as many bins as asked for before"
    expected = np.abs(own - turned).sum(axis=1).mean() / 2
    assert found["agreement"] == 0 and found["total_variation"] == pytest.approx(expected, rel=1e-6)
    np.save(tmp_path / "few.npy", own[:-1])
    with refused(f"got {[len(own) - 1, 10]}"):
        rc.evaluate(run.path, reference=tmp_path / "few.npy", **asked)
    with refused("views: first:N must have an N in [1, 12]"):
        rc.evaluate(run.path, views=["first:99"], page=False)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["--measures", "diversty"], "did you mean 'diversity'"),
        (["--weights", "harmonics"], "did you mean 'harmonic'"),
        (["--views", "chain"], "views must be of all, chains"),
        (
            ["--store", "elsewhere"],
            "--store must be left out of an evaluation, got 'elsewhere': the run's path names it",
        ),
        (["--bins", "0"], "--bins must be an integer in \\[1, 1000\\], got 0"),
        (["--keep-predictions", "some"], "--keep-predictions must be one of all, auto, none"),
        (["--measures", "ood"], "measures: ood does not apply: task digits has no companion sets"),
        (["--measures", "reference", "diversity"], "measures: reference does not apply: task digits is a network"),
    ],
)
def test_a_wrong_wish_is_one_line_and_costs_no_results(
    asked: list[str], line: str, evaluated: rc.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", evaluated.path, *asked]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("raychains: ")
    assert re.search(line, said[0]), said[0]
    assert len(evaluated.results()) == 1


def test_a_density_has_the_mass_that_each_cycle_explored(evaluated: rc.Result) -> None:
    settings: dict[str, Any] = {"sampler": "csgld", "steps": 4_000, "cycles": 4, "lr": 0.01, "exploration": 0.25}
    settings |= {"chains": 1, "repeats": 2, "store": evaluated.store.root.uri, "concurrent": 1}
    result = sampling.sample(tasks.make("two-modes", sharp=0.3, flat=0.6), name="density", **settings)
    rc.evaluate(result.path, weights=["truncated"], measures=["diagnostics", "reference"])
    weights = result.store.table("weights").to_pandas()
    assert len(weights) == 8 and np.allclose(weights.groupby("repeat")["weight"].sum(), 1)
    assert weights["samples"].sum() == 2 * 4 * 750
    page = (Path(result.path) / "report.html").read_text()
    assert "could not be drawn" not in page
