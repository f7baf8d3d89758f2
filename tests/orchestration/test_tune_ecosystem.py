"""Tune's searchers, schedulers, loggers and storage with trials that are chains."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from ray import tune
from ray.tune.schedulers import HyperBandScheduler, MedianStoppingRule, ResourceChangingScheduler
from ray.tune.search import BasicVariantGenerator, Repeater
from ray.tune.search.optuna import OptunaSearch

import raychains as rc
from raychains.core.errors import UserError
from tests.orchestration.trials import (
    CONFIG,
    OPTIONS,
    OPTUNA,
    PAUSED,
    Seen,
    check_reports,
    check_undisturbed,
    fit,
    trial,
)
from tests.sweeps.worlds import attempts_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("ray_session")]


@pytest.mark.filterwarnings("ignore:Mean of empty slice")  # the misfit's score in Repeater
def test_optuna_chooses_points_of_which_repeats_are_chains_and_one_does_not_fit(tmp_path: Path) -> None:
    searcher = OptunaSearch(points_to_evaluate=[{"lr": 0.05, "cycles": 4000}, {"lr": 0.05, "cycles": 3}], seed=0)
    found = fit(
        tmp_path / "store",
        {"lr": tune.loguniform(1e-3, 1e-1), "cycles": tune.choice([2, 3, 4000])},
        {"storage_path": str(tmp_path / "tune")},
        search_alg=Repeater(searcher, repeat=2),
        num_samples=4,
        reuse_actors=True,
    )
    assert len(found.errors) == 2 and len(found) == 4
    for error in found.errors:
        last = str(error).strip().splitlines()[-1]
        assert last.endswith("UserError: cycles must be at most the number of steps (24), got 4000")
    fine = [result for result in found if result.error is None]
    assert [result.config["__trial_index__"] for result in fine] == [0, 1]
    for repeat, result in enumerate(fine):
        alone = trial(tmp_path / "store", {"lr": 0.05, "cycles": 3, "repeat": repeat}, task_settings=PAUSED)
        assert alone.step()["digest"] == result.metrics["digest"]


def test_the_pages_example_with_optuna_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(OPTUNA.replace("RunConfig(", f"RunConfig(storage_path={str(tmp_path / 'tune')!r}, "), names)
    assert len(names["results"]) == 6 and not names["results"].errors
    assert {result.config["__trial_index__"] for result in names["results"]} == {0, 1}


def test_random_search_with_median_stopping_is_seen_by_callbacks_and_loggers(tmp_path: Path) -> None:
    """A trial yields to the next ones until there are results to compare it with, and resumes then."""
    seen = Seen()
    found = fit(
        tmp_path / "store",
        {**CONFIG, "lr": tune.loguniform(1e-4, 0.2)},
        {"storage_path": str(tmp_path / "tune"), "callbacks": [seen]},
        {"cpus_per_chain": 2},
        search_alg=BasicVariantGenerator(random_state=0),
        num_samples=4,
        scheduler=MedianStoppingRule(time_attr="epoch", grace_period=4, min_samples_required=1),
        reuse_actors=True,
    )
    assert [len(attempts_of(str(tmp_path / "store"), r.metrics["digest"])) for r in found] == [2, 1, 1, 1]
    assert found.get_best_result().metrics["epoch"] == 6 and len({r.config["lr"] for r in found}) == 4
    check_undisturbed(found, tmp_path / "store", tmp_path / "clean", 6, 4, 4, 4, cpus_per_chain=2)
    for result in found:
        check_reports(result, seen)


def test_paused_trials_resume_and_results_are_read_where_the_storage_is_on_s3(tmp_path: Path) -> None:
    from moto import server as moto  # seconds

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        client = fs.S3FileSystem(
            access_key="testing", secret_key="testing", scheme="http", region="us-east-1",
            endpoint_override=f"127.0.0.1:{running.get_host_and_port()[1]}", allow_bucket_creation=True,
        )  # fmt: skip
        client.create_dir("bucket")
        space = {**CONFIG, "exploration": tune.grid_search([0.5, 0.25]), "repeat": tune.grid_search([0, 1])}
        found = fit(
            tmp_path / "store",
            space,
            {"storage_path": "bucket/tune", "storage_filesystem": client},
            {"cpus_per_chain": 2},
            scheduler=HyperBandScheduler(time_attr="cycle", max_t=3, reduction_factor=3),
            reuse_actors=True,
        )
        check_undisturbed(found, tmp_path / "store", tmp_path / "clean", 6, 6, 6, 4, cpus_per_chain=2)
        resumed = [len(attempts_of(str(tmp_path / "store"), r.metrics["digest"])) for r in found]
        assert resumed == [1, 1, 2, 1]
        trainable = rc.tune.trainable(**OPTIONS, store=str(tmp_path / "store"))
        again = tune.Tuner.restore("bucket/tune/tuned", trainable=trainable, storage_filesystem=client).get_results()
        assert {r.metrics["digest"]: r.metrics["nll"] for r in again} == {
            r.metrics["digest"]: r.metrics["nll"] for r in found
        }
        for result in again:
            with client.open_input_stream(f"{result.checkpoint.path}/chain.json") as file:
                assert json.load(file)["digest"] == result.metrics["digest"]
    finally:
        running.stop()


def test_a_scheduler_that_changes_resources_on_the_way_is_refused_in_one_line(tmp_path: Path) -> None:
    run = {"storage_path": str(tmp_path / "tune")}
    [result] = fit(tmp_path / "store", CONFIG, run, scheduler=ResourceChangingScheduler())
    assert isinstance(result.error, UserError) and result.metrics["epoch"] == 2
    assert re.search(
        "scheduler must leave a trial's resources as they are, got {'CPU': 2.0} instead of {'CPU': 1.0}: .*Changing.*",
        str(result.error).strip().splitlines()[-1],
    )
