"""A store that the first version wrote is read, reported, resumed and extended; README.md says how it was made."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.datasets import load_digits

import raychains as rc
from raychains.chain.chain import Chain
from raychains.cli import main
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec
from raychains.orchestration.cluster.worker_pool import WorkerPool
from raychains.store import Storage
from raychains.store.chain_store import ChainStore
from tests.checks import refused
from tests.compatibility import commands
from tests.compatibility.reading import SHOWN, described, digest_of, machine, tables_of
from tests.pool import pooled, unpaged
from tests.spread import witnessed

HERE = Path(__file__).parent
EXPECTED: dict[str, Any] = json.loads((HERE / "store_v0.json").read_text(encoding="utf-8"))
OWN_CHAIN = "c446a2ec0744c6450b76fb4b132f9ecb891740ec935e5a57651d48ca151cb6d4"
"""The chain of `commands.OWN`, whose digest holds hashes of the module's data and of the parameters that it draws."""
OWN_EPOCH = "514a0f2ad1637c6f750bde8f5d9a8b67946b56be99ab38f76ab815787b6eda88"
"""The same for one epoch."""


def copied(to: Path) -> Path:
    """A folder with a copy of the store and the module that its run ``own`` names."""
    with tarfile.open(HERE / "store_v0.tar.gz") as tar:
        tar.extractall(to, filter="data")
    shutil.copy(HERE / "mytask.py.txt", to / "mytask.py")
    return to


@contextmanager
def current(folder: Path) -> Iterator[Path]:
    """The body runs in the folder."""
    before = list(sys.path)
    with contextlib.chdir(folder):
        yield folder
    sys.path[:] = before
    sys.modules.pop("mytask", None)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The current folder, as `copied`."""
    with current(copied(tmp_path)) as folder:
        yield folder


@pytest.fixture(scope="module")
def pool(ray_session: None) -> Iterator[WorkerPool]:
    """Actors for all tests that run something."""
    with pooled() as pool:
        yield pool


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a folder for all of them: each goes on with another run or sweep."""
    return copied(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def grown(shared: Path, pool: WorkerPool) -> Iterator[Path]:
    """The current folder is the shared one."""
    with current(shared):
        yield shared


def raychains(command: str) -> None:
    assert main(shlex.split(command)) == 0


def status(path: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `raychains status --json` prints."""
    capsys.readouterr()
    raychains(f"status {path} --json")
    return json.loads(capsys.readouterr().out)


def parquets(folder: Path) -> dict[str, pd.DataFrame]:
    return {path.name: pq.read_table(path).to_pandas() for path in sorted(folder.glob("*.parquet"))}


def assert_equal(found: dict[str, pd.DataFrame], expected: dict[str, pd.DataFrame]) -> None:
    assert found.keys() == expected.keys()
    for name, frame in expected.items():
        pd.testing.assert_frame_equal(found[name], frame, rtol=1e-6, obj=name)


def page(path: Path) -> list[list[list[str]]]:
    return tables_of((path / "report.html").read_text(encoding="utf-8"))


def by_column(table: list[list[str]]) -> dict[str, tuple[str, ...]]:
    head, *rows = table
    return dict(zip(head, zip(*rows, strict=True), strict=True))


def events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def attempts_of(folder: Path) -> dict[str, list[str]]:
    chains = sorted((folder / "store" / "chains").iterdir())
    return {chain.name: sorted(p.name for p in (chain / "incarnations").iterdir()) for chain in chains}


def added(folder: Path, before: dict[str, list[str]]) -> set[str]:
    """The chains that were added; none of those before was run again."""
    now = attempts_of(folder)
    assert {digest: now[digest] for digest in before} == before
    return now.keys() - before.keys()


# Read


@pytest.mark.parametrize("name", witnessed(["finished", "density", "own"], "density", "own"))
def test_a_run_is_read_and_its_report_drawn_again_with_the_same_numbers(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder / "store" / "runs" / name
    figures = parquets(run / "figures")
    expected = pd.DataFrame(EXPECTED["tables"][name])
    table = rc.load(str(run)).table(full=True).reset_index()
    pd.testing.assert_frame_equal(table, expected.astype(table.dtypes), rtol=1e-9)
    raychains(f"report {run}")
    (first, *others), (expected_first, *expected_others) = page(run), EXPECTED["pages"][name]
    # The columns of the first table are in another order since: metrics stand before costs.
    assert by_column(first) == by_column(expected_first) and others == expected_others
    assert_equal(parquets(run / "figures"), figures)
    assert all((run / "figures" / figure).with_suffix(".svg").exists() for figure in figures)
    state = status(str(run), capsys)
    assert state["state"] == "finished" and {chain["state"] for chain in state["chains"]} == {"finished"}


@pytest.mark.parametrize("sampler", ["smile", "psmile"])
def test_a_run_of_a_sampler_that_is_gone_is_refused_in_one_line_and_others_are_read(
    folder: Path, sampler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = folder / "store" / "runs" / "finished" / "plan.json"
    text = plan.read_text().replace('"kind": "sghmc"', f'"kind": "{sampler}"')
    for digest, spec in json.loads(text)["comparison"]["chains"].items():
        text = text.replace(digest, digest_of(spec))
    plan.write_text(text)
    gone = f"sampler {sampler} was removed in this version: use mclmc or mile"
    for command in ("report store/runs/finished", f"run --sampler {sampler}", f"compare --sampler sgld {sampler}"):
        assert main(shlex.split(command)) == 2 and gone in capsys.readouterr().err, command
    with refused(gone):
        rc.load("store/runs/finished")
    assert not pq.read_table(plan.with_name("results.parquet")).to_pandas().empty
    assert len(rc.load("store/runs/density").results())


def test_the_posterior_of_an_old_run_predicts_as_it_was_measured(folder: Path) -> None:
    result = rc.load("store/runs/finished")
    digits = load_digits()
    test = np.random.default_rng(0).permutation(len(digits.target))[1700:]
    images = torch.from_numpy((digits.data[test] / 16).astype(np.float32))
    probabilities = result.predict(images)
    wrong = (probabilities.argmax(1) != digits.target[test]).mean()
    assert wrong == pytest.approx(result.results()["error"].iloc[0])
    np.testing.assert_allclose(result.posterior()(images).probabilities, probabilities, rtol=1e-5)


def test_a_sweep_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = status("store/sweeps/sweep", capsys)
    assert (state["state"], state["points"], state["trials"]) == ("finished", 4, {"finished": 4})
    assert state["best"] == EXPECTED["tables"]["best"]


# Resume and extend


def test_checkpoints_of_the_first_version_go_on_to_the_samples_that_it_gives(folder: Path) -> None:
    chains = json.loads((folder / "store/runs/interrupted/plan.json").read_text())["comparison"]["chains"]
    states = {digest: ChainStore(Storage("store"), digest).newest_checkpoint() for digest in chains}
    begun = {digest: state["chain"] for digest, state in states.items() if state is not None}
    assert len(begun) == 2  # one that finished later and one that was killed
    for digest, state in begun.items():
        chain = Chain(ChainSpec.from_json(chains[digest]))
        chain.load_state_dict(state)
        assert chain.spec.digest == digest and 0 < chain.step < chain.spec.steps
        sample = next(event for event in chain if isinstance(event, Sample))
        expected = EXPECTED["interrupted"]["chains"][digest][f"{sample.meta.variable}-{sample.meta.index}"]["numbers"]
        for name, numbers in expected.items():
            t = sample.tensors[name].double().flatten()
            assert [float(t.norm()), *t[:SHOWN].tolist()] == pytest.approx(numbers, rel=1e-6, abs=1e-6), name


@pytest.mark.long
def test_the_killed_run_is_finished_with_the_samples_that_the_first_version_gives(
    grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes before the other tests that run something: their drivers would clear away the lease of the killed
    one."""
    run = "store/runs/interrupted"
    before = status(run, capsys)
    states = {chain["digest"]: chain["state"] for chain in before["chains"]}
    assert before["state"] == "lost" and sorted(states.values()) == ["finished", "stopped", "waiting"]
    steps = {chain["digest"]: chain["checkpoint_step"] for chain in before["chains"]}
    raychains(f"{commands.INTERRUPTED} --store store --name interrupted --resume --log interrupted.jsonl")
    began = {
        line["digest"]: line["step"] for line in events(grown / "interrupted.jsonl") if line["event"] == "chain-began"
    }
    assert began == {d: steps[d] or 0 for d, state in states.items() if state != "finished"}
    assert status(run, capsys)["state"] == "finished"
    expected = EXPECTED["interrupted"]["chains"]
    found = {digest: described(grown / "store", digest) for digest in rc.load(run).comparison.chains()}
    if machine(grown / "store", list(began)) == EXPECTED["interrupted"]["machine"]:
        assert found == expected
    assert all(found[digest] == expected[digest] for digest, state in states.items() if state == "finished")
    for digest, samples in expected.items():
        assert found[digest].keys() == samples.keys()
        for key, sample in samples.items():
            for name, numbers in sample["numbers"].items():
                assert found[digest][key]["numbers"][name] == pytest.approx(numbers, rel=1e-6, abs=1e-6), (
                    digest,
                    key,
                    name,
                )


def test_a_finished_run_is_extended_by_a_repeat_and_what_is_written_keeps_its_names(grown: Path) -> None:
    before, store = attempts_of(grown), grown / "store"
    with unpaged():
        raychains(f"{commands.FINISHED} --store store --repeats 3 --name wider --log wider.jsonl")
    new = added(grown, before)
    told = events(grown / "wider.jsonl")
    assert {line["digest"] for line in told if line["event"] == "chain-began"} == new and len(new) == 6
    old, wider = (rc.load(f"store/runs/{name}").results() for name in ("finished", "wider"))
    pd.testing.assert_frame_equal(wider[wider["repeat"] < 2].reset_index(drop=True), old, rtol=1e-6, check_like=True)

    [log] = (store / "runs" / "finished" / "events").iterdir()
    now, then = keys_of_events(told), keys_of_events(events(log))
    assert now.keys() == then.keys() and all(then[event] <= now[event] for event in then)
    plans = [json.loads((store / "runs" / name / "plan.json").read_text()) for name in ("finished", "wider")]
    assert keys(plans[0]) <= keys(plans[1])
    assert columns(store / "runs" / "wider").items() <= columns(store / "runs" / "finished").items()
    for digest in new:
        chain = store / "chains" / digest
        spec = json.loads((chain / "spec.json").read_text())
        assert digest_of(spec) == digest and spec["repeat"] == 2
        first = store / "chains" / digest_of({**spec, "repeat": 0})
        assert files(chain) == files(first) and columns(chain) == columns(first)
        records = [json.loads((c / "incarnations" / "1.json").read_text()) for c in (first, chain)]
        assert keys(records[0]) <= keys(records[1])


def columns(folder: Path) -> dict[str, tuple[str, ...]]:
    return {name: tuple(frame.columns) for name, frame in parquets(folder).items()}


def keys_of_events(told: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Per event its keys."""
    return {line["event"]: set(line) for line in told}


def keys(value: Any) -> set[str]:
    """All keys of nested JSON but for digests."""
    if isinstance(value, list):
        return set().union(*map(keys, value)) if value else set()
    return {k for k in value if len(k) < 64}.union(*map(keys, value.values())) if isinstance(value, dict) else set()


def files(chain: Path) -> set[str]:
    """The names in a chain's folder, without numbers, and without checkpoints, which a chain writes that takes long."""
    names = (str(path.relative_to(chain)) for path in chain.rglob("*") if path.is_file())
    return {"".join(c for c in n if not c.isdigit()) for n in names if not n.startswith("checkpoints/")}


@pytest.mark.long
def test_measures_are_taken_again_with_the_same_numbers_and_another_is_added(grown: Path) -> None:
    before, run = attempts_of(grown), grown / "store" / "runs" / "finished"
    tables = parquets(run)
    assert {"calibration.parquet", "diagnostics.parquet", "disagreement.parquet"} <= tables.keys()
    with unpaged():
        raychains(f"evaluate {run} --views chains cycles --measures {' '.join(commands.MEASURES)} interpolation")
    now = parquets(run)
    assert now.keys() - tables.keys() == {"interpolation.parquet"}
    assert_equal({name: now[name] for name in tables}, tables)
    assert not added(grown, before)


@pytest.mark.long
def test_a_task_that_the_first_version_wrote_keeps_its_digest_and_runs(grown: Path) -> None:
    before = attempts_of(grown)
    with unpaged():
        raychains(f"{commands.OWN} --store store --name own --resume")  # refused if the plan were another
    assert list(rc.load("store/runs/own").comparison.chains()) == [OWN_CHAIN] and OWN_CHAIN in before
    with unpaged():
        raychains(f"{commands.OWN.replace('--epochs 4', '--epochs 1')} --store store --name epoch")
    assert added(grown, before) == {OWN_EPOCH}
    assert 0 < rc.load("store/runs/epoch").results()["error"].iloc[0] < 100


@pytest.mark.long
def test_a_sweep_is_drawn_again_and_extended_by_points(grown: Path, pool: WorkerPool) -> None:
    pool.close()  # its idle actors would hold what trials need
    before, sweeps = attempts_of(grown), grown / "store" / "sweeps"
    figures, tables = parquets(sweeps / "sweep" / "figures"), parquets(sweeps / "sweep")
    raychains(f"{commands.SWEEP} --store store --name sweep --resume")
    assert page(sweeps / "sweep") == EXPECTED["pages"]["sweep"]
    drawn = parquets(sweeps / "sweep" / "figures")
    # Panels by option are newer than the store; the error against M shows the best settings alone.
    assert len(drawn.pop("options.parquet")) == 4
    best = figures["cycles.parquet"].query("best").drop(columns="best")
    figures["cycles.parquet"] = best.reset_index(drop=True)
    assert_equal(drawn, figures)
    assert_equal(parquets(sweeps / "sweep"), tables)
    with unpaged():
        raychains(f"{commands.SWEEP.replace('cycles=1,2', 'cycles=1,2,4')} --store store --name wider")
    assert len(added(grown, before)) == 2
    old, wider = tables["results.parquet"], parquets(sweeps / "wider")["results.parquet"]
    shared = wider[wider["digest"].isin(old["digest"])].reset_index(drop=True)
    assert len(wider) == 6 and len(shared) == 4
    pd.testing.assert_frame_equal(shared.drop(columns="point"), old.drop(columns="point"), rtol=1e-6)


# Import paths


PATHS = {
    "digits": "raychains.tasks.digits:Digits",
    "mixture25": "raychains.tasks.mixture:Mixture25",
    "gaussian": "raychains.tasks.gaussian:Gaussian",
    "two-modes": "raychains.tasks.two_modes:TwoModes",
    "linear-regression": "raychains.tasks.linear_regression:LinearRegression",
    "blr-australian": "raychains.tasks.logistic_regression:Australian",
    "blr-german": "raychains.tasks.logistic_regression:German",
    "blr-heart": "raychains.tasks.logistic_regression:Heart",
    "mnist-mlp": "raychains.tasks.images:MnistMlp",
    "mnist-cnn": "raychains.tasks.images:MnistCnn",
    "mnist-1v7": "raychains.tasks.mnist_1v7:OneVersusSeven",
    "fashion-mnist-mlp": "raychains.tasks.images:FashionMnistMlp",
    "cifar10-resnet18": "raychains.tasks.images:Cifar10ResNet18",
    "cifar100-resnet18": "raychains.tasks.images:Cifar100ResNet18",
    "cifar10-resnet18-frn": "raychains.tasks.images:Cifar10ResNet18Frn",
    "cifar10-resnetpp56": "raychains.tasks.images:Cifar10ResNetPlus",
    "cifar10-lenet": "raychains.tasks.images:Cifar10LeNet",
    "cifar100-lenet": "raychains.tasks.images:Cifar100LeNet",
    "cifar10-resnet20": "raychains.tasks.images:Cifar10ResNet20",
    "imagenet-resnet50": "raychains.tasks.prepared:ImageNetResNet50",
    "imagenet-resnetpp50": "raychains.tasks.prepared:ImageNetResNetPlus50",
    "imagefolder-lenet": "raychains.tasks.prepared:FolderLeNet",
    "imagefolder-resnet18": "raychains.tasks.prepared:FolderResNet18",
    "imagefolder-resnet50": "raychains.tasks.prepared:FolderResNet50",
    "imagefolder-resnetpp": "raychains.tasks.prepared:FolderResNetPlus",
}
"""The import path by which stored specs name each built-in task."""


@pytest.mark.parametrize(("name", "path"), PATHS.items())
def test_the_path_of_a_built_in_task_resolves(name: str, path: str) -> None:
    """Both make the same thing, which refuses an argument before it looks for data."""
    refusals = []
    for way in (name, path):
        with pytest.raises(rc.UserError, match="no_such_argument") as refused:
            rc.make_task(way, no_such_argument=1)
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


def test_paths_that_the_store_names_are_those_of_the_tasks_that_they_make(folder: Path) -> None:
    stored = [json.loads(path.read_text()) for path in (folder / "store").glob("*/*/*.json")]
    specs = {json.dumps(spec, sort_keys=True): spec for value in stored for spec in task_specs(value)}
    assert {spec["kind"] for spec in specs.values()} == {
        "raychains.tasks.digits:Digits",
        "raychains.tasks.mixture:Mixture25",
        "mytask:make_task",
    }
    for spec in specs.values():
        settings = {k: v for k, v in spec.items() if k not in ("kind", "revision", "fingerprint")}
        assert rc.make_task(spec["kind"], **settings).spec().to_json() == spec


def task_specs(value: Any) -> list[dict[str, Any]]:
    """Objects of nested JSON that name a task."""
    if isinstance(value, list):
        return [spec for item in value for spec in task_specs(item)]
    if not isinstance(value, dict):
        return []
    return [value] if "fingerprint" in value else [spec for item in value.values() for spec in task_specs(item)]
