"""`rc.fit`: pilots judged by held-out density, the winner on all data; killed in a pilot and in the final run, it ends
the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raychains as rc
from raychains import samplers
from raychains.api import plans
from raychains.core.config import Run
from raychains.evaluation import metrics
from raychains.store import FitStore, Storage
from tests.api.fit_task import make_task, samples, waves
from tests.checks import refused
from tests.processes import SECONDS, outside

TASK = "tests.api.fit_task:make_task"
HOW: dict[str, Any] = {
    "task": TASK,
    "backend": "process",
    "budget": 320,
    "chains": 2,
    "progress": False,
    "name": "waves",
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    """Return a fit of a small regression."""
    return rc.fit(store=str(tmp_path_factory.mktemp("fit") / "store"), **HOW)


def test_each_candidate_is_judged_by_the_log_density_of_what_its_pilots_did_not_see(fitted: rc.Result) -> None:
    root, choice = fitted.store.root, fitted.choice
    plan = FitStore(root, "waves").plan()["fit"]
    for rung in plan["rungs"]:
        rows = choice[choice["rung"] == rung["number"]]
        assert len(rows) == rung["candidates"]
        found: dict[str, list[np.ndarray[Any, Any]]] = {}
        for fold in range(plan["folds"]):
            run = rc.load(f"{root.location()}/runs/waves-pilots-{rung['number']}-fold-{fold}")
            assert run.comparison.split == "val" and run.comparison.task_spec.settings.get("split_seed", 0) == fold
            frame = run.store.table("rows").to_pandas()
            for arm in run.comparison.arms:
                name = next(c for c in rows["candidate"] if arm.name.endswith(f"-{c}"))
                variant = next(v for v in plan["candidates"] if v["name"] == name)
                own_schedule = variant["schedule"] or samplers.method(variant["sampler"]).schedule
                assert arm.schedule == own_schedule, "pilots are of the method that would be run"
                own = frame[frame["arm"] == arm.name]
                found.setdefault(name, []).append(-metrics.POINTS["nll"]({c: own[c].to_numpy() for c in own}))
        for row in rows.itertuples():
            log_p = np.concatenate(found[row.candidate])
            assert len(log_p) == 3 * 16
            assert row.density == pytest.approx(log_p.mean()) and row.se == pytest.approx(
                log_p.std(ddof=1) / len(log_p) ** 0.5
            )
    last = choice[choice["rung"] == choice["rung"].max()]
    assert last["share"].sum() == pytest.approx(1) and (last["share"] > 0).equals(last["kept"])


def test_the_cost_stays_within_the_budget_and_the_options_make_the_same_chains(fitted: rc.Result) -> None:
    spent = fitted.choice["epochs"].sum()
    assert 0 < spent <= 320 / 4
    chains = fitted.comparison.chains()
    assert fitted.comparison.split == "test" and not any(spec.task.settings for spec in chains.values())
    assert 0.7 * (320 - spent) < fitted.results()["gradients"][0] / 96 <= 320 - spent
    options = json.loads(Path(fitted.store.root.location("runs/waves/options.json")).read_text())
    del options["sha256"]
    again = plans.run(Run(**options)).comparison.chains()
    assert again.items() < chains.items() and not any(spec.early_stop for spec in again.values())
    assert all(chains[d].early_stop is not None for d in chains.keys() - again.keys()), "the others are the ensemble's"
    with refused("run must be one that raychains.fit made", "pilots"):
        rc.load(f"{fitted.store.root.location()}/runs/waves-pilots-1-fold-0").choice  # noqa: B018
    assert (
        rc.load(fitted.path).choice.equals(fitted.choice)
        and "The candidates and what" in Path(fitted.report).read_text()
    )


def test_chains_count_by_their_shares_in_results_predictions_and_exports(fitted: rc.Result) -> None:
    [arm] = fitted.comparison.arms
    last = fitted.choice[fitted.choice["kept"]].set_index("candidate")["share"]
    base, members = last.index[0], [spec.early_stop is not None for spec in arm.chains[0]]
    assert base.startswith("deep-ensemble-") and len(last) == 2
    assert arm.label.endswith(f"Deep ensemble linear, {sum(members)} chains ({last[base]:.0%})")
    assert sum(arm.shares) == pytest.approx(1)
    of_member = last[base] / sum(members)
    assert [part for part, is_one in zip(arm.shares, members, strict=True) if is_one] == pytest.approx(
        [of_member] * sum(members)
    )
    x, y = (t.double().numpy() for t in waves()[1])
    posterior = fitted.posterior().double()
    weights, means, sigmas = (t.numpy() for t in posterior.gaussians(torch.from_numpy(x)))
    assert sorted(weights)[-1] == pytest.approx(of_member), "a member is one sample"
    log_p = -0.5 * ((means[..., 0] - y) / sigmas[..., 0]) ** 2 - np.log(sigmas[..., 0]) - 0.5 * np.log(2 * np.pi)
    nll = -np.log((weights[:, None] * np.exp(log_p)).sum(0)).mean()
    assert fitted.results()["nll"][0] == pytest.approx(nll, rel=1e-5)
    mean = (weights[:, None] * means[..., 0]).sum(0)
    assert fitted.predict(x.astype(np.float32)) == pytest.approx(mean, rel=1e-4, abs=1e-5)
    exported = fitted.export(str(Path(fitted.path) / "whole.safetensors")).path
    loaded = rc.PosteriorPredictive.load(exported, model=make_task().build_model(seed=0, lanes=1))
    assert np.allclose(loaded.weights / loaded.weights.sum(), weights)


def test_a_fit_that_was_killed_twice_ends_with_the_same_samples(fitted: rc.Result, tmp_path: Path) -> None:
    before = fitted.store.root.location()
    command = [sys.executable, "-m", "raychains.cli", "fit", "--task", TASK, "--resume"]
    command += ["--callback", "tests.api.fit_task:Dies", "--backend", "process", "--budget", "320", "--chains", "2"]
    decided = []
    for once in ("runs/waves-pilots-1-fold-1/plan.json", "runs/waves/plan.json", ""):
        done = subprocess.run(
            [*command, "--name", "waves", "--store", str(tmp_path / "store")],
            env={**outside(), "DIES_ONCE": str(tmp_path / "store" / (once or "never"))},
            capture_output=True, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == (-signal.SIGKILL if once else 0), done.stderr
        decided.append(sorted(p.name for p in (tmp_path / "store" / "fits" / "waves" / "decisions").glob("*")))
    assert decided == [[], ["1.json"], ["1.json"]]
    mine, theirs = samples(str(tmp_path / "store")), samples(before)
    assert mine == theirs and len(mine) > 50 and {len(one) for one in mine.values()} == {1}
    assert "% of the predictive" in done.stdout and "log density" in done.stdout


def test_wrong_inputs_are_one_line_and_a_fit_of_the_same_name_is_kept(fitted: rc.Result, tmp_path: Path) -> None:
    store = fitted.store.root.location()
    own = {**HOW, "store": str(tmp_path)}
    for changed, words in (
        ({"budget": 20}, ("budget must be at least", "20")),
        ({"minutes": 1.0}, ("budget must be left out beside `minutes`", "320")),
        ({"lr": 0.1}, ("lr must be left out of a fit", "0.1", "a fit chooses it")),
        ({"task": "mixture25"}, ("task must be a network's", "mixture25")),
        ({"prior": "laplace:-1"}, ("laplace",)),
        ({"folds": 0}, ("folds must be an integer of at least 1", "0")),
        ({"address": "host:1"}, ("address must be left out with", "backend=process")),
        ({"store": store}, ("name must be a new one", "waves", "resume=True")),
        ({"store": store, "resume": True, "budget": 400}, ("resume: fit 'waves' was planned with other settings",)),
    ):
        with refused(*words):
            rc.fit(**{**own, **changed})
    assert not list(tmp_path.iterdir())
    again = rc.fit(**{**own, "store": store, "resume": True, "reference": True})
    assert again.choice.equals(fitted.choice)
    found = again.store.table("reference").to_pandas().set_index(["reference", "metric"])
    for who, chains in (("network", 1), ("ensemble", 5)):
        run = rc.load(f"{store}/runs/waves-reference-{who}")
        assert len(run.comparison.arms[0].chains[0]) == chains and found.loc[who, "nll"]["epochs"] <= 64 * chains
        frames = [r.store.table("rows").to_pandas() for r in (again, run)]
        ours, theirs = (-frame["log_p"].to_numpy() for frame in frames)
        row = found.loc[who, "nll"]
        assert (
            row["difference"] == pytest.approx((ours - theirs).mean()) and row["low"] < row["difference"] < row["high"]
        )
        assert row["value"] == pytest.approx(again.results()["nll"][0]) and row["against"] == pytest.approx(
            run.results()["nll"][0]
        )


def test_an_ensemble_alone_has_as_many_members_as_there_is_room_for(fitted: rc.Result, tmp_path: Path) -> None:
    there = FitStore(fitted.store.root, "waves")
    mine = FitStore(Storage(str(tmp_path)), "waves")
    mine.write_plan({key: value for key, value in there.plan().items() if key != "format"})
    rows = there.decision(1)
    mine.publish_decision(1, [{**row, "kept": at == 0, "share": float(at == 0)} for at, row in enumerate(rows or [])])
    result = rc.fit(**HOW, store=str(tmp_path), resume=True)
    left, [arm] = 320 - result.choice["epochs"].sum(), result.comparison.arms
    first = rc.load(f"{tmp_path}/runs/waves-deep-ensemble").comparison.arms[0].chains[0]
    assert 2 < len(first) <= len(arm.chains[0]) <= 20 and arm.chains[0][: len(first)] == first and not arm.shares
    cost = result.results()["gradients"][0] / 96
    assert 0.5 * left < cost <= left or len(arm.chains[0]) == 20


def test_settings_of_a_task_and_a_part_that_the_user_holds_out_are_in_pilots_and_result(tmp_path: Path) -> None:
    how = {**HOW, "chains": 1, "budget": 240, "store": str(tmp_path)}
    digits = rc.fit(**{**how, "task": "digits", "task_settings": {"hidden": [8]}, "val_split": 0.2})
    assert len(digits.choice) == 5 and digits.comparison.split == "test"
    for name in ("waves", "waves-pilots-1-fold-0"):
        settings = rc.load(f"{tmp_path}/runs/{name}").comparison.task_spec.settings
        assert settings["hidden"] == (8,) or settings["hidden"] == [8]
        assert settings["val_split"] == 100
    others = {"task_settings": {"title": "other waves"}, "name": "named", "folds": 1, "prior": "laplace:1"}
    named = rc.fit(**{**how, **others})
    assert set(named.choice["candidate"]) == {"deep-ensemble-0.01", "deep-ensemble-0.02", "cpsgld"}, (
        "laplace takes none"
    )
    assert named.comparison.task_spec.settings["title"] == "other waves"
    part = rc.load(f"{tmp_path}/runs/named-pilots-1-fold-0").comparison.task_spec.settings
    assert part["title"] == "other waves" and part["val_split"] == 16


@pytest.mark.long
def test_minutes_become_epochs_once_and_are_stored(tmp_path: Path) -> None:
    settings = {name: value for name, value in HOW.items() if name != "budget"}
    first = rc.fit(**settings, minutes=0.1, store=str(tmp_path))
    plan = FitStore(first.store.root, "waves").plan()["fit"]
    assert plan["budget"] > 100 and sum(first.choice["epochs"]) <= plan["budget"] / 4
    again = rc.fit(**settings, minutes=0.1, store=str(tmp_path), resume=True)
    assert FitStore(again.store.root, "waves").plan()["fit"] == plan and again.choice.equals(first.choice)
    with refused("resume: fit 'waves' was planned with other settings"):
        rc.fit(**settings, minutes=0.2, store=str(tmp_path), resume=True)
