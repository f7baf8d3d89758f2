"""Chains as trials of Ray Tune: their reports, what they resume from, and experiments that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import ray
import torch
from ray import tune
from ray.experimental.internal_kv import _internal_kv_list
from torch import Tensor

import raychains as rc
from raychains.api import plans
from raychains.core.errors import UserError
from raychains.orchestration.cluster import ray_private
from raychains.store import ChainStore, Storage, codec
from raychains.tasks.from_options import make_task
from tests.checks import refused
from tests.orchestration.trials import (
    CONFIG,
    EXAMPLE,
    GUARDED,
    OPTIONS,
    RESTORE,
    Seen,
    check_reports,
    check_undisturbed,
    fit,
    reports,
    trial,
)
from tests.processes import SECONDS, outside, until
from tests.sweeps.worlds import KEEPER, attempts_of, hashes


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The store and the reports of one chain."""
    store = tmp_path_factory.mktemp("undisturbed")
    return store, reports(trial(store, CONFIG))


def test_a_trial_reports_the_ensemble_so_far_after_every_cycle(undisturbed: Any, tmp_path: Path) -> None:
    """The chain and the last metrics are those of `rc.run` and of an evaluation on the same split; the test split is
    poisoned."""
    store, found = undisturbed
    assert [(r["cycle"], r["epoch"], r["samples"], r["done"]) for r in found] == [
        (0, 2, 2, False), (1, 4, 4, False), (2, 6, 6, True),
    ]  # fmt: skip
    assert [r["gradient_evaluations"] for r in found] == [360, 720, 1080]  # of 180 examples, a tenth of 200 is held out
    options = rc.Run(task=GUARDED, epochs=6, sampler="csgld", chains=1, val_split=0.1, **CONFIG)
    [digest] = plans.run(options).comparison.chains()
    assert {r["digest"] for r in found} == {digest}
    chain = ChainStore(Storage(store), digest)
    evaluation = make_task(options, GUARDED).splits()["val"]
    for report in found:
        samples = [chain.read_sample(record.file) for record in chain.records()[: report["samples"]]]
        tensors = [codec.decode(data)[0] for data in samples]
        blocks = [[evaluation.predict(t, shard) for t in tensors] for shard in range(evaluation.shards)]
        [metrics] = evaluation.summarise([evaluation.reduce(b, shard) for shard, b in enumerate(blocks)])
        assert {name: report[name] for name in metrics} == pytest.approx(metrics, rel=1e-9, nan_ok=True)


def test_a_chain_without_cycles_reports_as_often_as_is_asked_and_may_cost_more_where_that_is_allowed(
    tmp_path: Path,
) -> None:
    found = reports(trial(tmp_path, {"epochs": 12}, sampler="sgld", reports=2, allow_unequal_budget=True))
    assert [r["cycle"] for r in found] == [0, 1] and found[-1]["epoch"] == 12
    assert found[-1]["gradient_evaluations"] == 2160


def test_a_stored_chain_is_only_evaluated(undisturbed: Any) -> None:
    store, found = undisturbed
    again = trial(store, CONFIG)
    assert reports(again) == found
    assert len(attempts_of(str(store), found[0]["digest"])) == 1


def test_a_trial_resumes_behind_its_checkpoint(undisturbed: Any, tmp_path: Path) -> None:
    _, found = undisturbed
    first = trial(tmp_path / "store", CONFIG)
    assert first.step() == found[0]
    first.save_checkpoint(str(tmp_path))
    assert json.loads((tmp_path / "chain.json").read_text())["reports"] == 1
    first.cleanup()
    second = trial(tmp_path / "store", CONFIG)
    second.load_checkpoint(str(tmp_path))
    assert reports(second) == found[1:]
    digest = found[0]["digest"]
    assert hashes(str(tmp_path / "store"), digest) == hashes(str(undisturbed[0]), digest)
    assert [i["from_step"] > 0 for i in attempts_of(str(tmp_path / "store"), digest)] == [False, True]


def test_a_process_takes_one_trial_after_another(undisturbed: Any, tmp_path: Path) -> None:
    _, found = undisturbed
    made = trial(tmp_path, {"exploration": 0.25, "cycles": 2})
    made.step()
    assert made.reset_config(CONFIG)
    assert reports(made) == found


def test_repeats_are_the_chains_of_a_run_with_repeats(undisturbed: Any, tmp_path: Path) -> None:
    _, found = undisturbed
    other = trial(tmp_path, {**CONFIG, "repeat": 1}).step()
    assert trial(tmp_path, {**CONFIG, "repeat": 0}).step() == found[0] and other["digest"] != found[0]["digest"]
    repeated = trial(tmp_path / "repeated", {**CONFIG, "__trial_index__": 1})  # as tune.search.Repeater numbers them
    assert repeated.step() == other


def test_a_scheduler_that_changes_options_on_the_way_is_refused_in_one_line(tmp_path: Path) -> None:
    first = trial(tmp_path / "store", CONFIG)
    first.step()
    first.save_checkpoint(str(tmp_path))
    exploited = trial(tmp_path / "store", {**CONFIG, "lr": 0.01})
    with pytest.raises(
        UserError, match=r"scheduler must leave a trial's config as it is, .* instead of PBT or PB2"
    ) as error:
        exploited.load_checkpoint(str(tmp_path))
    assert "\n" not in str(error.value)
    first.cleanup()


def test_a_restored_trial_may_have_the_resources_that_its_trainable_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"CPU": 1.0, "GPU": 1.0}
    given = property(lambda _: tune.PlacementGroupFactory([held]))
    monkeypatch.setattr(tune.Trainable, "trial_resources", given)
    first = trial(tmp_path / "store", CONFIG, gpus_per_chain=1)
    first.step()
    first.save_checkpoint(str(tmp_path))
    first.cleanup()
    held["GPU"] = 0.5
    trial(tmp_path / "store", CONFIG, gpus_per_chain=0.5).load_checkpoint(str(tmp_path))
    with pytest.raises(UserError, match=r"a trial's resources as they are, got .*0\.5.* instead of .*'GPU': 1\.0"):
        trial(tmp_path / "store", CONFIG, gpus_per_chain=1).load_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"explore": 0.5}, "swept option must be .*got 'explore'; did you mean 'exploration'"),
        ({"cycles": 2.5}, "cycles must be an integer, got 2.5"),
        ({"val_split": 0.2}, "val_split must be the same at every point: .*, got it in the sweep"),
        ({"repeat": -1}, "repeat must be an integer of at least 0, got -1"),
        (
            {"repeat": 1, "__trial_index__": 0},
            "repeat must be left out of a config in which tune.search.Repeater numbers",
        ),
        ({"epochs": 12}, r"gradient evaluations of the trainable's epochs \(1,080\), got 2,160"),
    ],
)
def test_a_wrong_config_is_one_line(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        trial(tmp_path, config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "mine"}, r"name must be left out of a trainable, got 'mine': use tune.RunConfig"),
        ({"slot_timeout": 3}, "slot_timeout must be left out of a trainable, got 3: use rc.sweep"),
        ({"evaluators": 2}, "evaluators must be left out of a trainable, got 2: use gpus_per_chain: each trial"),
        ({"repeats": 3}, "repeats must be left out of a trainable, got 3: use an entry 'repeat' of the config"),
        ({"workers_per_chain": 2, "gpus_per_chain": 0.5}, "gpus_per_chain must be 0 or 1 for each of several workers"),
        ({"reports": 0}, "reports must be an integer of at least 1, got 0"),
        ({"task": "mixture25"}, "task must have a split val, .*: a density has no data"),
        ({"cycles": 100}, r"cycles must be at most the number of steps \(24\), got 100"),
        ({"gpus_per_chain": 0.3}, "gpus_per_chain must be 1/k or a whole number, got 0.3"),
        ({"checkpoint_every": "1 eon"}, "checkpoint_every must be a finite number above 0, .*, got '1 eon'"),
    ],
)
def test_a_wrong_trainable_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rc.tune.trainable(**{**OPTIONS, **options})


def test_a_trial_holds_a_share_of_a_gpu() -> None:
    made = rc.tune.trainable(**OPTIONS, cpus_per_chain=2, gpus_per_chain=0.5)
    assert made.default_resource_request({}).bundles == [{"CPU": 2.0, "GPU": 0.5}]
    made = rc.tune.trainable(**OPTIONS, accelerator_type="A100")
    assert made.default_resource_request({}).bundles == [{"CPU": 1.0, "GPU": 1.0, "accelerator_type:A100": 0.001}]


def test_the_search_space_is_the_papers_as_far_as_it_fits() -> None:
    assert rc.tune.search_space("digits", 80) == {
        "exploration": {"grid_search": [0.0, 0.25, 0.5, 0.75]},
        "cycles": {"grid_search": [2, 4, 8]},
    }
    assert rc.tune.search_space("digits", 3)["cycles"] == {"grid_search": [2, 4]}
    with pytest.raises(UserError, match="epochs must leave room for two cycles"):
        rc.tune.search_space("digits", 1, batch_size=450)
    with pytest.raises(UserError, match=r"concurrent must be left out of a trainable, got 2: use tune.TuneConfig"):
        rc.tune.search_space("digits", 80, concurrent=2)


# With Tune


def space(repeats: int = 1) -> dict[str, Any]:
    """Two chains for each repeat."""
    return {
        "exploration": tune.grid_search([0.5, 0.25]), "cycles": 3, "repeat": tune.grid_search([*range(repeats)]),
    }  # fmt: skip


@pytest.mark.usefixtures("ray_session")
def test_a_killed_trial_is_retried_and_ends_with_the_same_samples(tmp_path: Path) -> None:
    """Callbacks and loggers of Tune get every report of the other trial once, with all that the page names."""
    (tmp_path / "die").touch()
    task = {"task": "tests.sweeps.tasks:Dying", "task_settings": (f"folder={tmp_path}",)}
    seen = Seen()
    run = {"storage_path": str(tmp_path / "tune"), "failure_config": tune.FailureConfig(max_failures=2)}
    found = fit(tmp_path / "store", space(), {**run, "callbacks": [seen]}, task)
    [died] = tmp_path.glob("died-*")
    attempts = [attempts_of(str(tmp_path / "store"), r.metrics["digest"]) for r in found]
    [killed] = [each for each in attempts if len(each) > 1]
    assert str(killed[0]["pid"]) == died.name.partition("-")[2]
    check_undisturbed(found, tmp_path / "store", tmp_path / "clean", 6, 6, **task)
    [other] = [result for result, each in zip(found, attempts, strict=True) if len(each) == 1]
    check_reports(other, seen)


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_a_trial_leaves_a_node_that_will_be_gone_soon_which_is_no_failure_for_tune(tmp_path: Path) -> None:
    """Of two workers the other one's node goes. No periodic checkpoint is written."""
    store = tmp_path / "store"
    (tmp_path / "leave").touch()
    task = {"task": "tests.sweeps.tasks:Dying", "task_settings": (f"folder={tmp_path}", "pause=0.15")}
    one = {"exploration": 0.5, "cycles": 1, "samples_per_cycle": 2}
    more = {"micro_batch": 23, "workers_per_chain": 2, "checkpoint_every": "1h"}
    found = fit(store, one, {"storage_path": str(tmp_path / "tune")}, {**task, **more})
    first, again = attempts_of(str(store), found[0].metrics["digest"])
    assert 6 <= again["from_step"] < 24 and (first.get("preemptions"), again["preemptions"]) == (None, 1)
    assert _internal_kv_list(b"losses of", namespace=ray_private.NAMESPACE) == []
    check_undisturbed(found, store, tmp_path / "clean", 6, **task, micro_batch=23)


def wide() -> tuple[Tensor, dict[str, Any]]:
    """A task whose data weigh 8 MB, with options of a short chain on it, and these data."""
    data = torch.randn(2000, 1000), torch.randint(0, 3, (2000,))
    task = rc.Task.from_module(lambda: torch.nn.Linear(1000, 3), data, (data[0][:9], data[1][:9]), name="wide")
    options = {"epochs": 2, "batch_size": 500, "sampler": "csgld", "cycles": 1, "samples_per_cycle": 1, "task": task}
    return data[0], options


@pytest.mark.usefixtures("ray_session")
def test_a_task_object_travels_in_the_object_store_once(tmp_path: Path) -> None:
    """Ray refuses a class above 95 MiB, which a user's data soon are."""
    data, options = wide()
    trainable = rc.tune.trainable(store=str(tmp_path), **options)
    pickled = ray.cloudpickle.dumps(trainable)
    assert len(pickled) < 20_000 < data.nbytes and ray.cloudpickle.dumps(trainable) == pickled
    [report] = reports(ray.cloudpickle.loads(pickled)(config={"exploration": 0.0}))
    assert report["samples"] == 1


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_all_processes_of_a_trial_get_a_task_object(tmp_path: Path) -> None:
    _, options = wide()
    trainable = rc.tune.trainable(store=str(tmp_path / "store"), **options, workers_per_chain=2, micro_batch=250)
    run = tune.RunConfig(name="wide", storage_path=str(tmp_path / "tune"), verbose=0)
    [result] = tune.Tuner(trainable, param_space={"exploration": 0.0}, run_config=run).fit()
    assert result.error is None and result.metrics["samples"] == 1


SCRIPT = """
import os, pathlib
import ray
pathlib.Path("pid").write_text(str(os.getpid()))
ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
"""


def script(folder: Path, body: str, *before: str) -> list[str]:
    """The command of a driver with a Ray of its own."""
    file = folder / "script.py"
    file.write_text(SCRIPT + body)
    return [*before, sys.executable, str(file)]


@pytest.mark.long
def test_the_pages_examples_run_as_written_and_survive_the_drivers_death(tmp_path: Path) -> None:
    """The experiment's driver is killed with -9; the page's second example restores it."""
    folder = str(tmp_path / "tune")
    example = EXAMPLE.replace("RunConfig(", f"RunConfig(storage_path={folder!r}, ")
    where: Any = {"cwd": tmp_path, "env": outside(), "stdout": subprocess.PIPE}
    words = script(tmp_path, example, sys.executable, str(KEEPER))
    with subprocess.Popen(words, stdin=subprocess.PIPE, **where) as driver:
        until(lambda: list(tmp_path.glob("runs/chains/*/samples/*.safetensors")), "a sample")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        out, _ = driver.communicate()
    assert out.decode().splitlines()[-1] == "[]", "processes are left"
    imports = [line for line in EXAMPLE.splitlines() if "import" in line]
    body = "\n".join([*imports, f"path = {folder + '/digits'!r}", RESTORE, "print(len(results), len(results.errors))"])
    done = subprocess.run(script(tmp_path, body), timeout=SECONDS, check=True, **where)
    assert "12 0" in done.stdout.decode().splitlines()
    table = pd.read_parquet(tmp_path / "runs" / "sweeps" / "digits" / "results.parquet")
    assert len(table) == 12 and (tmp_path / "runs" / "sweeps" / "digits" / "report.html").is_file()


def test_a_trial_that_stops_early_reports_the_gradients_that_it_made(tmp_path: Path) -> None:
    options = {"sampler": "deep-ensemble", "epochs": 150, "batch_size": 20}
    [report] = reports(trial(tmp_path, {"lr": 0.1}, **options))
    [record] = ChainStore(Storage(tmp_path), report["digest"]).records()
    learned = 180 - 27  # 15 % of what val leaves
    per_epoch = -(-learned // 20)
    epochs, rest = divmod(record.meta.step, per_epoch)
    assert rest == 0 and epochs < 150, "it did not stop early"
    assert report["gradient_evaluations"] == epochs * learned and report["epoch"] == 150
    with refused("init_from must be a file or none where each trial is one chain"):
        trial(tmp_path, {}, sampler="csgld", init_from="deep-ensemble:5,1")
