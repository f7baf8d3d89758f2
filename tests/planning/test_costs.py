"""What a comparison will cost against sums by hand, and a chain's files against what a real chain writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from raychains import Task, tasks
from raychains.api import plans
from raychains.api.commands import plan, rate
from raychains.chain.chain import Chain
from raychains.chain.planned_network import sizes
from raychains.chain.sample_index import expected_samples
from raychains.cli import main
from raychains.core.config import Plan, Run
from raychains.core.sample import Sample
from raychains.data.prepared.manifest import Manifest, Shard, Split
from raychains.planning import methods
from raychains.planning.costs import costs, draws, predicted
from raychains.report.terminal import cost_lines, plan_table
from raychains.store import ChainStore, RunStore, Storage, codec
from raychains.tasks.from_options import make_task
from tests.checks import refused

N, TEST, PER_GROUP = 1_281_167, 50_000, 64


@pytest.fixture
def imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ImageNet's manifest, without its pictures."""

    def split(images: int) -> Split:
        rows = (PER_GROUP,) * (images // PER_GROUP) + ((images % PER_GROUP,) if images % PER_GROUP else ())
        return Split(shards=(Shard(file="a.parquet", rows=rows, bytes=1, sha256=""),), fingerprint=str(images))

    manifest = Manifest(
        name="imagenet", classes=tuple(f"n{i:08d}" for i in range(1000)), words=(), seed=0,
        splits={"train": split(N), "val": split(TEST)}, converted=0, skipped=(),
    )  # fmt: skip
    (tmp_path / "data" / "imagenet").mkdir(parents=True)
    (tmp_path / "data" / "imagenet" / "manifest.json").write_bytes(manifest.dumps())
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path / "data"))
    return tmp_path


def test_table_3_costs_what_a_sum_by_hand_says(imagenet: Path) -> None:
    """Four chains of 120 epochs; 1 + 9 + 9 + 9 samples of a ResNet-50; velocities beside it in checkpoints; float16 of
    1,000 classes."""
    options = Plan(preset="imagenet-table3", store=str(imagenet / "runs"), images_per_second=2500, price=3, devices=8)
    comparison, budget, costs = plan(options)
    assert [arm.label for arm in comparison.arms] == ["SGDM", "Snapshot-SGDM", "SGHMC", "cSGHMC"]
    assert costs.chains == budget.chains_to_run == 4
    gradients = 4 * 120 * N
    assert costs.gradients == budget.to_run == gradients == 614_960_160
    samples = 1 + 9 + 9 + 9
    assert costs.samples == samples
    parameters, statistics, layers = 25_557_032, 2 * 26_560, 53  # BatchNorm's mean and variance, and a counter
    network = 4 * (parameters + statistics) + 8 * layers
    assert costs.sample_bytes == samples * network
    assert costs.checkpoint_bytes == 4 * 3 * (network + 4 * parameters)
    assert costs.prediction_bytes == samples * TEST * 1000 * 2
    hours = gradients / 2500 / 3600
    assert costs.device_hours(2500) == pytest.approx(hours) and round(hours, 1) == 68.3
    told = cost_lines(options, budget, costs, rate(options))
    assert told[1] == "device hours: 68.3 at 2,500 images/s each, 0.36 days on 8 devices, evaluation not counted"
    assert told[2] == "price: 204.99 at 3 an hour"


@pytest.mark.parametrize(
    ("sampler", "schedule", "change"),
    [
        ("sgld", None, {}),
        ("csghmc", None, {}),
        ("emcmc", None, {}),
        ("atmc", None, {}),
        ("bsam", "constant", {}),
        ("deep-ensemble", None, {}),
        ("sghmc", None, {"sample_only": ("classifier.*",), "task_settings": ("norm=batch",)}),
    ],
)
def test_a_chains_files_are_as_large_as_is_said(
    sampler: str, schedule: str | None, change: dict[str, Any], tmp_path: Path
) -> None:
    """Up to the header, and a checkpoint's generators and counters, of a few kB."""
    given = Run(task="digits", sampler=sampler, schedule=schedule, epochs=4, cycles=1 if schedule is None else None)
    given = dataclasses.replace(given, **change)
    task = make_task(given, "digits")
    if given.sample_only:
        torch.save(task.build_model(seed=1, lanes=1).state_dict(), tmp_path / "start.pt")
        given = dataclasses.replace(given, init_from=str(tmp_path / "start.pt"))
    method = methods.resolve(given, task=task, sampler=sampler, schedule=schedule)
    spec = method.spec
    chain = Chain(spec, task, start=method.start.tensors)
    samples = [e for e in chain if isinstance(e, Sample)]
    said = sizes(spec, task)
    assert len(samples) == draws(spec)
    assert 0 <= len(codec.encode(samples[0].tensors, {})) - said.sample < 2_000
    state, tree = codec.flatten(chain.state_dict())
    assert 0 <= len(codec.encode(state, {"state": tree})) - said.checkpoint < 30_000


def test_densities_keep_blocks_of_draws_and_no_predictions(tmp_path: Path) -> None:
    options = Plan(task="gaussian", sampler=("sgld",), steps=1000, chains=2, repeats=3, store=str(tmp_path))
    comparison, _, costs = plan(options)
    specs = comparison.chains().values()
    dim = 2
    assert costs.sample_bytes == sum(draws(s) * s.lanes * dim * 4 for s in specs) and costs.prediction_bytes == 0
    assert costs.gradients == sum(1000 * s.lanes for s in specs)


def test_the_command_prints_it_and_refuses_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(tmp_path / "runs")]
    assert main(["plan", "--task", "digits", "--epochs", "40", *store]) == 0
    said = capsys.readouterr().out
    assert "to run: " in said and "give --measured-on a run, or --images-per-second" in said and "bytes: " in said
    assert main(["plan", "--task", "digits", "--epochs", "40", "--images-per-second", "0", *store]) == 2
    assert "--images-per-second must be a finite number above 0, got 0.0" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "runs").exists()
    with refused("devices", "0"):
        plan(Plan(task="digits", devices=0, store=str(tmp_path)))
    with refused("measured_on", "images_per_second"):
        plan(Plan(task="digits", measured_on="runs/runs/a", images_per_second=1.0, store=str(tmp_path)))


def test_a_finished_chain_tells_the_rate(tmp_path: Path) -> None:
    options = Run(task="digits", sampler="csghmc", epochs=4, cycles=1, chains=2, repeats=1)
    planned = plans.run(options).comparison
    root = Storage(str(tmp_path))
    RunStore(root, "some").write_plan({"comparison": planned.to_json()})
    given = Plan(task="digits", measured_on=str(tmp_path / "runs" / "some"))
    with refused("measured_on", "some"):
        rate(given)
    spec = next(iter(planned.chains().values()))
    store, chain = ChainStore(root, spec.digest), Chain(spec, tasks.build(spec.task))
    store.begin(spec, 1, {"from_step": 0})
    for event in chain:
        if isinstance(event, Sample):
            store.publish_sample(event, 1, {})
    store.publish_progress([{"step": spec.steps, "seconds": 4.0}], spec.steps, 1)
    store.finish()
    assert rate(given) == pytest.approx(4 * 500 / 4.0)
    store.begin(spec, 1, {"from_step": 0, "workers": 2})
    assert rate(given) == pytest.approx(4 * 500 / 8.0), "of each worker"


@pytest.mark.parametrize("name", ["regression", "digits"])
def test_predictions_have_the_size_of_one_real_block(name: str) -> None:
    x, y = torch.zeros(30, 3), torch.zeros(30, 2)
    if name == "regression":
        task = Task.from_module(lambda: torch.nn.Linear(3, 2), (x, y), (x[:7], y[:7]), "gaussian", noise=1.0)
    else:
        task = tasks.make("digits")
    evaluation: Any = task.splits()["test"]
    sample = task.build_model(seed=0, lanes=1).state_dict()
    blocks = [evaluation.predict(sample, shard) for shard in range(evaluation.shards)]
    assert predicted(task, "test") == sum(block.nbytes for block in blocks)


def test_members_that_chains_start_at_are_not_evaluated() -> None:
    planned = plans.run(Run(sampler="mile", epochs=200, chains=2))
    task = tasks.build(planned.comparison.task_spec)
    found = costs(planned.comparison, task)
    kept = sum(expected_samples(spec) for spec in planned.comparison.of_arms().values())
    assert found.samples == kept + len(planned.comparison.starts), "each member has a sample"
    assert found.prediction_bytes == kept * predicted(task, planned.comparison.split)


def test_a_plan_says_once_what_is_the_same_in_every_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps and gradient evaluations have columns where they are no multiple of the length: of chains with a start."""
    store = ["--store", str(tmp_path)]
    assert main(["plan", "--task", "digits", *store]) == 0
    said = capsys.readouterr().out
    assert "One epoch: 10 steps of a chain, 500 gradient evaluations." in said and "steps per chain" not in said
    assert main(["plan", "--task", "mixture25", *store]) == 0
    assert "One " not in (said := capsys.readouterr().out) and "50000/200000" in said
    started = plan_table(plans.run(Run(task="digits", sampler="mile", epochs=60, chains=2)).comparison)
    assert [str(column.header) for column in started.columns[-2:]] == ["steps per chain", "gradient evaluations"]
