"""Chains as the loop of Ray Train: the samples of a single process, through a death, a new trainer and a node that
goes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray import train

import raychains as rc
from raychains.api import plans
from raychains.orchestration import train_loop as loops
from raychains.orchestration.train_loop import plan
from raychains.store import ChainStore, Storage
from tests.checks import refused
from tests.orchestration import trials
from tests.orchestration.threads import keep_this_process
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.sweeps.tasks import DyingRank
from tests.sweeps.worlds import attempts_of

PAGE = (trials.ROOT / "docs" / "how-to" / "train.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
OPTIONS: dict[str, Any] = {"epochs": 6, "cycles": 3, "sampler": "csgld", "micro_batch": 15, "checkpoint_every": 0.2}
"""30 steps, of two or three micro-batches."""


@pytest.fixture(autouse=True)
def polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train takes one report every two seconds otherwise."""
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train starts no process that looks whether nodes will be gone."""
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")


def trainer(store: str, folder: Path, workers: int, name: str = "run", failures: int = 0, **options: Any) -> Any:
    """A trainer whose workers need half a CPU each."""
    return rc.train.trainer(
        **{**OPTIONS, "store": store, **options},
        scaling_config=train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(
            name=name,
            storage_path=str(folder / "train"),
            failure_config=train.FailureConfig(max_failures=failures),
        ),
    )


def check_undisturbed(store: str, digest: str) -> None:
    """The store has the bytes of the chain in a single process."""
    spec = {digest: ChainStore(Storage(store), digest).spec()}
    alone = undisturbed_hashes(spec)
    assert stored_hashes(store, spec) == alone and len(alone) == 3


class Alone:
    """What `ray.train` is to the only worker of a group, and what that reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[dict[str, Any]] = []
        self.saved: list[dict[str, Any]] = []
        """What the checkpoints of the reports say."""

    def get_context(self) -> Any:
        return SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1, get_experiment_name=lambda: "run")

    def get_preemption_info(self) -> None:
        return None

    def get_checkpoint(self) -> train.Checkpoint | None:
        if not self.saved:
            return None
        (self.folder / "chain.json").write_text(json.dumps(self.saved[-1]))
        return train.Checkpoint.from_directory(str(self.folder))

    def report(self, metrics: dict[str, Any], checkpoint: train.Checkpoint) -> None:
        self.reports.append(metrics)
        with checkpoint.as_directory() as saved:
            self.saved.append(json.loads(Path(saved, "chain.json").read_text()))


def test_the_loop_of_one_worker_reports_every_cycle_once(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, without Train. A second loop goes on behind the reports that Train has."""
    keep_this_process(monkeypatch)
    alone = Alone(tmp_path)
    monkeypatch.setattr(loops, "train", alone)
    monkeypatch.setattr(loops, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(loops.collective, "broadcast_from_rank_zero", lambda said: said)
    loop = trainer(store, tmp_path, 1, task=trials.GUARDED).train_loop_per_worker
    loop()
    digest = alone.reports[0]["digest"]
    check_undisturbed(store, digest)
    assert [(r["epoch"], r["samples"], r["gradient_evaluations"]) for r in alone.reports] == [
        (2, 1, 400), (4, 2, 800), (6, 3, 1200),
    ]  # fmt: skip
    assert all(report["loss"] > 0 for report in alone.reports)
    assert alone.saved[-1] == {"digest": digest, "step": 30, "reports": 3, "store": store}
    del alone.saved[1:]
    loop()
    assert alone.reports[3:] == alone.reports[1:3] and len(attempts_of(store, digest)) == 1


@pytest.mark.long
@pytest.mark.usefixtures("ray_session", "unwatched")
def test_three_workers_of_which_one_is_killed_end_with_the_bytes_and_reports_of_a_single_process(
    store: str, tmp_path: Path
) -> None:
    """Train starts all three again, on a task that is an object.

    Another trainer of one worker, and a trial of Tune, only report what the store has.
    """
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "die").touch()
    held_out = {"task": DyingRank(str(folder), pause=0.03, val_split=0.2)}
    result = trainer(store, tmp_path, 3, failures=1, **held_out).fit()
    assert [file.name.partition("-")[0] for file in folder.iterdir()] == ["died"]
    digest = result.metrics["digest"]
    check_undisturbed(store, digest)
    attempts = attempts_of(store, digest)
    assert [a["workers"] for a in attempts] == [3, 3] and attempts[0]["from_step"] == 0 < attempts[1]["from_step"]
    assert attempts[0]["driver_id"] == attempts[1]["driver_id"] and attempts[0]["pid"] != attempts[1]["pid"]
    reports = result.metrics_dataframe
    assert list(reports["epoch"]) == [2, 4, 6] and list(reports["samples"]) == [1, 2, 3]
    assert list(reports["gradient_evaluations"]) == [320, 640, 960] and reports["nll"].gt(0).all()
    with result.checkpoint.as_directory() as saved:
        about = json.loads(Path(saved, "chain.json").read_text())
    assert about == {"digest": digest, "step": 24, "reports": 3, "store": store}

    again = trainer(store, tmp_path, 1, **held_out).fit()  # the same run of Train's: nothing is reported twice
    assert again.metrics == result.metrics and again.metrics_dataframe.equals(reports)
    found = trials.reports(trials.trial(Path(store), {}, **OPTIONS, **held_out))
    assert attempts_of(store, digest) == attempts, "the trainer and the trial find the chain in the store"
    for report in found:
        del report["done"]
    assert reports[list(found[0])].to_dict("records") == found and "nll" in found[0]


@pytest.mark.long
@pytest.mark.usefixtures("ray_session", "unwatched")
def test_the_pages_example_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(EXAMPLE.replace("RunConfig(", f"RunConfig(storage_path={str(tmp_path / 'train')!r}, "), names := {})
    result = names["result"]
    assert result.metrics["epoch"] == 8 and result.metrics["digest"] in {f.name for f in Path("runs/chains").iterdir()}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_workers": 0}, ("num_workers must be an integer of at least 1, got 0",)),
        ({"num_workers": 4}, ("num_workers must be at most the micro-batches of a batch (3)", "got 4")),
        (
            {"num_workers": 2, "scaling_config": train.ScalingConfig(num_workers=3)},
            ("num_workers must be left out or 3", "got 2"),
        ),
        (
            {"scaling_config": train.ScalingConfig(num_workers=0)},
            ("scaling_config must have num_workers of 1 or more",),
        ),
        ({"scaling_config": {"num_workers": 2}}, ("scaling_config", "ray.train.ScalingConfig")),
        ({"run_config": "mine"}, ("run_config", "mine", "ray.train.RunConfig")),
        ({"repeat": -1}, ("repeat must be an integer of at least 0, got -1",)),
        ({"reports": 0}, ("reports must be an integer of at least 1, got 0",)),
        ({"workers_per_chain": 2}, ("workers_per_chain", "2", "num_workers")),
        ({"max_failures": 2}, ("max_failures", "2", "ray.train.FailureConfig")),
        ({"resume": True}, ("resume must be left out of a trainer", "the same call again")),
        ({"task": "gaussian", "epochs": 1}, ("task must have data, got 'gaussian'", "rc.run")),
        ({"cycles": 1000}, ("cycles must be at most the number of steps (30)", "got 1000")),
        ({"sampler": "nothing"}, ("sampler must be one of", "got 'nothing'")),
    ],
)
def test_wrong_arguments_are_refused(store: str, given: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        rc.train.trainer(**{"task": trials.GUARDED, **OPTIONS, "store": store, **given})


def test_the_chain_is_a_repetition_of_a_run_whatever_the_number_of_workers() -> None:
    options = {"task": trials.GUARDED, **OPTIONS}
    [arm] = plans.run(rc.Run(**options, chains=1, repeats=2)).comparison.arms
    for repeat, (spec,) in enumerate(arm.chains):
        for workers in (1, 2):
            made = rc.train.trainer(**options, repeat=repeat, num_workers=workers)
            settings = made.train_loop_per_worker.args[0]
            assert plan(settings.options, None, settings.repeat).spec == spec
