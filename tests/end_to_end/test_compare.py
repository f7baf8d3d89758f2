"""`rc.compare` through every room, on real data: sharing, costs, results, report, prediction."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import raychains as rc
from raychains.api import plans
from raychains.core.config import Compare
from raychains.core.errors import ChainsFailed, UserError
from raychains.evaluation.classification import log_probabilities
from raychains.store import ChainStore, Storage, codec
from raychains.tasks.digits import Digits
from tests.checks import refused
from tests.pool import unpaged


@pytest.fixture(scope="module")
def digits(runs: str) -> rc.Result:
    """Table 2's arms of SGHMC on digits: 2 repeats of 2 chains, 40 epochs."""
    return rc.compare(task="digits", sampler=("sghmc",), epochs=40, chains=2, repeats=2, store=runs, name="small")


@pytest.fixture(scope="module")
def one(digits: rc.Result, runs: str) -> rc.Result:
    """Both chains of the first arm's first repeat, as a run without a page."""
    with unpaged():
        return rc.run(task="digits", sampler="csghmc", epochs=40, chains=2, repeats=1, store=runs, name="one")


def test_table2_has_the_papers_arms_costs_and_saves_the_shared_chains(digits: rc.Result, runs: str) -> None:
    table = digits.table(full=True)
    assert list(table["label"]) == ["cSGHMC, 2 chains", "SGHMC, 2 chains", "SGHMC, 2 chains, E/2", "cSGHMC, 1 chain"]
    assert list(table["cost (epochs per chain/total)"]) == ["40/80", "40/80", "20/40", "40/40"]
    assert (table["repeats"] == 2).all()
    chains = digits.comparison.chains()
    assert len(chains) == 2 * (2 + 2 + 2)
    stored = {p.name for p in Path(runs, "chains").iterdir()}
    assert chains.keys() <= stored
    assert all(ChainStore(Storage(runs), d).last_attempt() == 1 for d in chains)


def test_results_are_sensible_posteriors_and_ensembles_beat_their_members(digits: rc.Result) -> None:
    results = digits.results()
    assert ((results["error"] > 0.01) & (results["error"] < 0.12)).all()
    assert ((results["nll"] > 0.05) & (results["nll"] < 0.5)).all()
    curves = digits.store.table("curves").to_pandas()
    cyclical = curves[curves["arm"] == "sghmc-cyclical-2x40"].groupby("samples")["nll"].mean()
    assert cyclical.iloc[-1] < cyclical.iloc[0]


def test_predict_gives_the_probabilities_that_were_evaluated(digits: rc.Result) -> None:
    loaded = rc.load(digits.path)
    images = rc.make_task("digits").splits()["test"].inputs  # type: ignore[attr-defined]
    rows = digits.store.table("rows").to_pandas()
    mine = rows[(rows["arm"] == "sghmc-cyclical-1x40") & (rows["group"] == 0)]
    p = loaded.predict(images.numpy(), arm="sghmc-cyclical-1x40")
    with refused("arm", "sghmc-cyclical-1x40"):
        loaded.predictive("sghmc-cyclical-1x4")
    assert p.shape == (1297, 10)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(p.max(axis=1), mine["confidence"], atol=1e-6)
    error = digits.results().set_index(["arm", "repeat"]).loc[("sghmc-cyclical-1x40", 0), "error"]
    assert np.mean(p.argmax(axis=1) != mine["label"]) == error


def test_a_run_is_one_arm_of_a_comparison_and_reuses_its_chains(digits: rc.Result, one: rc.Result, runs: str) -> None:
    assert set(one.comparison.chains()) < set(digits.comparison.chains())
    assert all(ChainStore(Storage(runs), d).last_attempt() == 1 for d in one.comparison.chains())
    assert list(one.table(full=True)["samples"]) == [2 * 4 * 2]  # chains × cycles × draws of a cycle's last two epochs


def test_a_name_that_is_taken_needs_resume_and_resume_needs_the_same_plan(digits: rc.Result, runs: str) -> None:
    with refused("name", "small", "`resume=True`"):
        rc.run(task="digits", epochs=40, store=runs, name="small")
    with refused("resume", "small", "other settings, by 'raychains compare"):
        rc.run(task="digits", epochs=40, store=runs, name="small", resume=True)


def test_evaluating_another_split_stands_beside_the_runs_own_results(digits: rc.Result) -> None:
    before = digits.results()
    train = rc.evaluate(digits.path, "train", page=False)
    assert train.path.endswith("small-train")
    assert (train.results()["error"] < before["error"]).all()
    assert digits.results().equals(before)
    with pytest.raises(UserError, match="split must be one of test, train, got 'tset'"):
        rc.evaluate(digits.path, "tset")


def test_another_runs_results_are_not_overwritten(one: rc.Result, runs: str) -> None:
    """A run of its own has the name that another split's results would have."""
    with unpaged():
        other = rc.run(task="digits", sampler="csghmc", epochs=40, chains=1, repeats=1, store=runs, name="one-train")
    before = other.results()
    with refused("split", "'train'", "would replace run 'one-train', unless you delete its folder"):
        rc.evaluate(one.path, "train")
    assert other.results().equals(before)


def test_the_report_is_one_page_that_can_be_drawn_later(digits: rc.Result, one: rc.Result) -> None:
    page = Path(digits.report)
    assert page.is_file() and "cSGHMC, 2 chains" in page.read_text()
    assert not Path(one.report).exists()
    assert "cSGHMC, 2 chains" in Path(rc.draw_report(one.path).report).read_text()


def test_the_digits_table_is_rebuilt_without_raychains(
    digits: rc.Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples outlive the tool."""
    script = str(Path(__file__).with_name("without_raychains.py"))
    monkeypatch.setattr(sys, "argv", [script, digits.path])
    monkeypatch.setitem(sys.modules, "raychains", None)  # as the script does: any import of it fails
    runpy.run_path(script, run_name="__main__")
    monkeypatch.undo()
    rebuilt, results = json.loads(capsys.readouterr().out), digits.results()
    assert len(rebuilt) == len(results) == 8
    for row in results.to_dict("records"):
        theirs = rebuilt[f"{row['arm']}/{row['group']}"]
        for metric in ("error", "nll", "ece", "brier"):
            assert row[metric] == pytest.approx(theirs[metric], abs=1e-6), (row["arm"], metric)


def test_a_sample_is_a_plain_safetensors_file_of_the_models_state_dict(digits: rc.Result) -> None:
    chain = Path(digits.path).parents[1] / "chains" / next(iter(digits.comparison.chains()))
    with safe_open(sorted((chain / "samples").iterdir())[0], framework="pt") as f:
        description = json.loads(f.metadata()["raychains"])
        assert set(f.keys()) == set(rc.make_task("digits").build_model(seed=0, lanes=1).state_dict())
    assert description["digest"] == chain.name and description["environment"]["device"] == "cpu"


PUBLISHED = ["1.8 ± 0.13", "6.7 ± 0.52", "18 ± 0.47", "24.4 ± 0.22"]
"""Table 4's modes."""


@pytest.mark.long
def test_table4_is_what_independent_uniform_modes_give_beside_the_published_numbers(runs: str) -> None:
    """cSG-MCMC's at the paper's settings: 10 repeats of up to 4 chains of 50,000 steps.

    Oracle: each cycle lands in one uniformly random mode, so M cycles cover 25(1 − .96^M) on average.
    """
    with unpaged():
        table4 = rc.compare(task="mixture25", pack="4", store=runs, name="table4")
    assert list(table4.table(full=True)["modes_published"]) == PUBLISHED
    assert len(table4.comparison.chains()) == 8 and len(table4.results()) == 40
    modes = table4.table(full=True)["modes"]
    assert abs(modes["sgld-cyclical-1x50000"] - 17.65) <= 1.6
    assert abs(modes["sgld-cyclical-4x50000"] - 24.81) <= 0.45
    assert 1.0 <= modes["sgld-decreasing-1x50000"] <= 1.3
    assert abs(modes["sgld-decreasing-4x50000"] - 3.77) <= 0.7


def test_a_short_table4_has_its_arms_and_no_published_numbers_and_predicts_nothing(runs: str) -> None:
    """The paper's chains have 50,000 steps."""
    with unpaged():
        short = rc.compare(task="mixture25", steps=1000, repeats=3, store=runs, name="short-table4")
    table = short.table(full=True)
    assert len(short.comparison.chains()) == 8 and len(short.results()) == 4 * 3
    assert table["modes"].between(0, 25).all() and table["modes"].max() > 0 and "modes_published" not in table.columns
    whole = plans.compare(Compare(task="mixture25")).comparison.arms
    assert [arm.published["modes"] for arm in whole] == PUBLISHED
    with refused("density"):
        short.predict(np.zeros((1, 2)))


# A run that dropped a chain


class Doomed(Digits):
    """Digits whose loss is undefined in chains that begin with a positive first weight."""

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        loss = super().backward(model, batch, generator)
        assert loss is not None
        self._steps += 1
        return loss * torch.nan if self._bad and self._steps > 15 else loss

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        model = super().build_model(seed=seed, lanes=lanes)
        self._steps, self._bad = 0, bool(next(model.parameters())[0, 0] > 0)
        return model


def test_the_other_chains_of_an_arm_predict_only_if_the_failed_one_was_dropped(runs: str) -> None:
    settings: dict[str, Any] = {"epochs": 4, "cycles": 1, "samples_per_cycle": 2, "exploration": 0.25, "chains": 4}
    task, images = Digits(), Digits().splits()["test"].inputs[:50]  # type: ignore[attr-defined]
    for policy in ("stop", "drop-chain"):  # the second run takes the first one's finished chains
        with pytest.raises(ChainsFailed), unpaged():
            rc.run(task=f"{__name__}:Doomed", store=runs, name=policy, lr=0.01, on_divergence=policy, **settings)
    with refused("unfinished", "`resume=True`"):
        rc.load(f"{runs}/runs/stop").predict(images)
    result = rc.load(f"{runs}/runs/drop-chain")
    train = rc.load(rc.evaluate(result.path, "train", page=False).path)
    np.testing.assert_array_equal(train.predict(images), result.predict(images))
    stores = {d: ChainStore(result.store.root, d) for d in result.comparison.chains()}
    whole = [
        codec.decode(s.read_sample(r.file))[0] for s in stores.values() if len(s.records()) == 2 for r in s.records()
    ]
    assert 0 < len(whole) < 8
    model = task.build_model(seed=0, lanes=1).eval()
    expected = np.mean([np.exp(log_probabilities(model, t, images).astype(np.float64)) for t in whole], axis=0)
    np.testing.assert_allclose(result.predict(images), expected, atol=1e-12)
    assert len(result.predictive()) == len(whole)
    np.testing.assert_allclose(result.posterior()(images).probabilities, expected, atol=1e-6)


def test_a_name_stays_free_where_the_cluster_refuses_the_run(ray_session: None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"task": "digits", "epochs": 4, "cycles": 1, "store": str(tmp_path), "name": "n"}
    for _ in range(2):
        with refused("gpus_per_chain", "the cluster's GPUs (0)", "0.5"):
            rc.run(**settings, chains=2, gpus_per_chain=0.5)
        with refused("gpus_per_chain", "the cluster's GPUs (0)", "0.5"):
            rc.sweep(**settings, grid={"lr": [0.1, 0.2]}, gpus_per_chain=0.5)
    assert list(tmp_path.glob("*/n/plan.json")) == []
