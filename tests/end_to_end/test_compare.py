"""`rc.compare` through every room, on real data: sharing, costs, results, report, prediction."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import raychains as rc
from raychains.errors import UserError
from raychains.store import ChainStore, Root
from tests.checks import refused


def test_table2_has_the_papers_arms_costs_and_saves_the_shared_chains(digits: rc.Result, folder: Path) -> None:
    table = digits.table()
    assert list(table["label"]) == ["cSGHMC, 4 chains", "SGHMC, 4 chains", "SGHMC, 4 chains, E/2", "cSGHMC, 1 chain"]
    assert list(table["cost (epochs per chain/total)"]) == ["40/160", "40/160", "20/80", "40/40"]
    assert (table["repeats"] == 2).all()
    chains = digits.comparison.chains()
    assert len(chains) == 2 * (4 + 4 + 4)
    stored = {p.name for p in (folder / "store" / "chains").iterdir()}
    assert chains.keys() <= stored
    assert all(ChainStore(Root(str(folder / "store")), d).last_incarnation() == 1 for d in chains)


def test_results_are_sensible_posteriors_and_ensembles_beat_their_members(digits: rc.Result) -> None:
    results = digits.results()
    assert ((results["error"] > 0.01) & (results["error"] < 0.12)).all()
    assert ((results["nll"] > 0.05) & (results["nll"] < 0.5)).all()
    curves = digits.store.table("curves").to_pandas()
    cyclical = curves[curves["arm"] == "sghmc-cyclical-4x40"].groupby("samples")["nll"].mean()
    assert cyclical.iloc[-1] < cyclical.iloc[0]


def test_predict_gives_the_probabilities_that_were_evaluated(digits: rc.Result) -> None:
    loaded = rc.load(digits.path)
    images = rc.make_task("digits").splits()["test"].inputs  # type: ignore[attr-defined]
    rows = digits.store.table("rows").to_pandas()
    mine = rows[(rows["arm"] == "sghmc-cyclical-1x40") & (rows["group"] == 0)]
    p = loaded.predict(images.numpy(), arm="sghmc-cyclical-1x40")
    assert p.shape == (1297, 10)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(p.max(axis=1), mine["confidence"], atol=1e-6)
    assert (
        np.mean(p.argmax(axis=1) != mine["label"])
        == digits.results().set_index(["arm", "repeat"]).loc[("sghmc-cyclical-1x40", 0), "error"]
    )


def test_an_unknown_arm_is_refused_with_the_nearest_name(digits: rc.Result) -> None:
    with refused("arm", "sghmc-cyclical-1x40"):
        digits.predictive("sghmc-cyclical-1x4")


def test_a_run_is_one_arm_of_a_comparison_and_reuses_its_chains(digits: rc.Result, folder: Path) -> None:
    again = rc.run(
        task="digits", sampler="csghmc", epochs=40, chains=2, repeats=1, store=str(folder / "store"), name="one"
    )
    assert set(again.comparison.chains()) < set(digits.comparison.chains())
    assert all(ChainStore(Root(str(folder / "store")), d).last_incarnation() == 1 for d in again.comparison.chains())
    assert list(again.table()["samples"]) == [2 * 4 * 2]  # chains × cycles × draws of a cycle's last two epochs


def test_a_name_that_is_taken_needs_resume_and_resume_needs_the_same_plan(digits: rc.Result, folder: Path) -> None:
    store = str(folder / "store")
    with refused("name", "small", "--resume"):
        rc.run(task="digits", epochs=40, store=store, name="small")
    with refused("resume", "small"):
        rc.run(task="digits", epochs=40, store=store, name="small", resume=True)


def test_evaluating_another_split_stands_beside_the_runs_own_results(digits: rc.Result) -> None:
    before = digits.results()
    train = rc.evaluate(digits.path, "train")
    assert train.path.endswith("small-train")
    assert (train.results()["error"] < before["error"]).all()
    assert digits.results().equals(before)
    with pytest.raises(UserError, match="split must be one of test, train, got 'tset'"):
        rc.evaluate(digits.path, "tset")


def test_the_report_is_one_page_that_can_be_drawn_again(digits: rc.Result) -> None:
    page = Path(digits.report)
    assert page.is_file() and "cSGHMC, 4 chains" in page.read_text()
    page.unlink()
    assert Path(rc.draw_report(digits.path).report).is_file()


def test_the_plan_holds_every_spec_by_its_digest(digits: rc.Result) -> None:
    plan = json.loads((Path(digits.path) / "plan.json").read_text())
    assert plan["format"] == 1
    for digest, spec in plan["comparison"]["chains"].items():
        assert rc.ChainSpec.from_json(spec).digest == digest


def test_table4_is_what_independent_uniform_modes_give(table4: rc.Result) -> None:
    """Oracle: each cycle lands in one uniformly random mode, so M cycles cover 25(1 − .96^M) on average."""
    modes = table4.table()["modes"]
    assert abs(modes["sgld-cyclical-1x50000"] - 17.65) <= 1.6
    assert abs(modes["sgld-cyclical-4x50000"] - 24.81) <= 0.45
    assert 1.0 <= modes["sgld-decreasing-1x50000"] <= 1.3
    assert abs(modes["sgld-decreasing-4x50000"] - 3.77) <= 0.7


def test_table4_stands_beside_the_published_numbers(table4: rc.Result) -> None:
    published = table4.table()["modes_published"]
    assert list(published) == ["1.8 ± 0.13", "6.7 ± 0.52", "18 ± 0.47", "24.4 ± 0.22"]
    assert len(table4.comparison.chains()) == 8 and len(table4.results()) == 40


def test_a_density_predicts_nothing_and_says_so(table4: rc.Result) -> None:
    with refused("density"):
        table4.predict(np.zeros((1, 2)))
