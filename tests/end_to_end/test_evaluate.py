"""`raychains evaluate` as people call it: views, weights and measures of a run, and what it says to wrong wishes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import raychains as rc
from raychains import tasks
from raychains.cli import main

MEASURES = ("agreement", "diversity", "interpolation", "diagnostics", "flatness")
TABLES = {
    "views", "weights", "agreement", "distances", "embedding", "disagreement", "interpolation", "diagnostics",
    "autocorrelation", "fisher", "directions", "plane",
}  # fmt: skip


@pytest.fixture(scope="module")
def evaluated(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    store = tmp_path_factory.mktemp("evaluated") / "store"
    result = rc.run(
        task="digits", epochs=10, cycles=2, chains=2, samples_per_cycle=3, exploration=0.2, repeats=1, val_split=0.2, store=str(store), name="r",
        task_settings=("train=100",),
    )  # fmt: skip
    asked = ["--views", "chains", "cycles", "samples", "without-chain", "first:2", "--weights", "harmonic", "stacking"]
    assert main(["evaluate", result.path, *asked, "--measures", *MEASURES, "--bins", "8"]) == 0
    return result


def test_every_measure_has_its_table_its_figures_and_its_place_in_the_page(evaluated: rc.Result) -> None:
    folder = Path(evaluated.path)
    assert {f.stem for f in folder.glob("*.parquet")} >= TABLES
    page = (folder / "report.html").read_text()
    drawn = {f.stem for f in (folder / "figures").glob("*.svg")}
    assert {"views", "weights", "embedding", "interpolation", "disagreement"} <= drawn
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


def test_a_file_of_probabilities_is_the_reference_that_fidelity_is_measured_against(
    evaluated: rc.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = tasks.make("digits", train=100, val_split=0.2).splits()["test"]
    draws = list(evaluated.predictive()._selection.stored())
    own = np.concatenate(
        [np.mean([np.exp(split.predict(d, i).astype(float)) for d in draws], axis=0) for i in range(split.shards)]
    )
    files = {"own": own, "turned": np.roll(own, 1, axis=1)}
    found = {}
    for name, probabilities in files.items():
        np.save(tmp_path / f"{name}.npy", probabilities)
        asked = ["--measures", "fidelity", "--reference", str(tmp_path / f"{name}.npy")]
        assert main(["evaluate", evaluated.path, *asked]) == 0
        *_, distances, reference, report = capsys.readouterr().out.splitlines()
        assert distances.startswith(
            f"fidelity of {evaluated.comparison.arms[0].label}: agreement "
        ) and report.startswith("report: ")
        assert reference == f"The reference: {name}.npy."
        table = evaluated.store.table("fidelity").to_pandas()
        found[name] = table[table["samples"] == table["samples"].max()].iloc[0]
    assert found["own"]["agreement"] == 1 and found["own"]["total_variation"] < 1e-6
    expected = np.abs(own - files["turned"]).sum(axis=1).mean() / 2
    assert found["turned"]["agreement"] == 0 and found["turned"]["total_variation"] == pytest.approx(expected, rel=1e-6)
    assert 'id="fidelity"' in (Path(evaluated.path) / "report.html").read_text()
    np.save(tmp_path / "few.npy", own[:-1])
    assert main(["evaluate", evaluated.path, "--measures", "fidelity", "--reference", str(tmp_path / "few.npy")]) == 2
    assert f"got {[len(own) - 1, 10]}" in capsys.readouterr().err.strip().splitlines()[-1]


def test_weights_sum_to_one_and_weighted_views_differ(evaluated: rc.Result) -> None:
    weights = evaluated.store.table("weights").to_pandas()
    sums = weights.groupby("weighting")["weight"].sum()
    assert set(sums.index) == {"harmonic", "stacking"} and np.allclose(sums, 1)
    views = evaluated.store.table("views").to_pandas().set_index(["view", "weighting"])
    nll = {w: views.loc[("all", w), "nll"] for w in ("equal", "harmonic", "stacking")}
    assert len(set(nll.values())) == 3


def test_predictions_are_kept_so_that_nothing_is_predicted_twice(
    evaluated: rc.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    before = evaluated.results()
    chains = Path(evaluated.path).parents[1] / "chains"
    hidden = {folder: folder / "hidden" for folder in chains.iterdir()}
    for folder, away in hidden.items():  # whoever reads a sample now finds none
        away.mkdir()
        for file in (folder / "samples").iterdir():
            shutil.move(file, away)
    try:
        assert main(["evaluate", evaluated.path, "--views", "chains"]) == 0
    finally:
        for folder, away in hidden.items():
            for file in away.iterdir():
                shutil.move(file, folder / "samples")
            away.rmdir()
    after = evaluated.results()
    assert after["nll"].tolist() == before["nll"].tolist()
    assert after["ece"].tolist() == before["ece"].tolist(), "in as many bins as asked for before"
    assert "report: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["--measures", "diversty"], "did you mean 'diversity'"),
        (["--weights", "harmonics"], "did you mean 'harmonic'"),
        (["--views", "chain"], "views must be of all, chains"),
        (["--views", "first:99"], "must have an N in \\[1, 12\\]"),
        (["--weights", "truncated"], "weights must be equal, harmonic or stacking for task digits"),
        (["--name", "mine"], "--name must be left out of an evaluation, got 'mine': results lie in the run's folder"),
        (["--store", "elsewhere"], "--store must be left out, got 'elsewhere': the run's path names it"),
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


def test_a_density_has_the_mass_that_each_cycle_explored(ray_session: None, tmp_path: Path) -> None:
    result = rc.run(
        task="two-modes", sampler="csgld", steps=8_000, cycles=8, lr=0.01, exploration=0.25, chains=1, repeats=2,
        task_settings=("sharp=.3", "flat=.6"), store=str(tmp_path), name="r",
    )  # fmt: skip
    assert main(["evaluate", result.path, "--weights", "truncated", "--measures", "diagnostics", "reference"]) == 0
    weights = result.store.table("weights").to_pandas()
    assert len(weights) == 16 and np.allclose(weights.groupby("repeat")["weight"].sum(), 1)
    assert weights["samples"].sum() == 2 * 8 * 750
    page = (Path(result.path) / "report.html").read_text()
    assert "could not be drawn" not in page
