"""`raychains export` on real small runs: what the file says of the digits is what the run's predictive says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import raychains as rc
from raychains.cli import main
from raychains.core.config import Compare, Run
from raychains.inference import file
from raychains.inference.predictive import select
from raychains.models import MLP
from raychains.orchestration.run.sample_pool import SamplePool
from raychains.store import ChainStore, codec
from tests.checks import refused
from tests.inference.networks import expected
from tests.inference.runs import DIGITS, digits, finished
from tests.processes import SECONDS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    return digits(tmp_path_factory.mktemp("deploy") / "store")


@pytest.fixture(scope="module")
def images() -> Tensor:
    return rc.make_task("digits").splits()["test"].inputs[:200]  # type: ignore[attr-defined]


def network(tensors: dict[str, Tensor]) -> nn.Module:
    """The digits' network with these parameters."""
    made = MLP(64, (100, 100), 10)
    made.load_state_dict(tensors)
    return made


def agree(wanted: Any, images: Tensor, *posteriors: rc.PosteriorPredictive) -> None:
    for posterior in posteriors:
        np.testing.assert_allclose(posterior(images).probabilities, wanted, rtol=0, atol=1e-6)


def networks_of(result: rc.Result, arm: str | None = None) -> list[nn.Module]:
    """The digits' networks with each sample's parameters, read straight from the store."""
    made: list[nn.Module] = []
    arms = {a.name: a for a in result.comparison.arms}
    for spec in (arms[arm] if arm else result.comparison.arms[0]).chains[0]:
        store = ChainStore(result.store.root, spec.digest)
        for record in store.records():
            made.append(network(codec.decode(store.read_sample(record.file))[0]))
    return made


# What it says


def test_it_says_what_the_runs_predictive_says(run: rc.Result, images: Tensor, tmp_path: Path) -> None:
    exported = run.export(str(tmp_path / "digits.safetensors"))
    assert exported.samples == 8 and exported.bytes == exported.path.stat().st_size
    wanted = expected(networks_of(run), images)
    for posterior in (rc.PosteriorPredictive.load(exported.path), run.posterior()):
        assert len(posterior) == 8
        for chunk in (1, 8, "auto"):
            posterior.chunk = chunk
            with torch.inference_mode():
                found = posterior(images)
            np.testing.assert_allclose(found.probabilities, run.predict(images), rtol=0, atol=1e-6)
            for name, value in wanted.items():
                np.testing.assert_allclose(getattr(found, name), value, rtol=0, atol=1e-6, err_msg=name)
    assert wanted["mutual_information"].max() > 0.1


LOAD = """
import json, sys
for name in "ray sklearn torchvision torchmetrics scipy pyarrow pandas matplotlib arviz_base psutil".split():
    sys.modules[name] = None  # any import of it fails
from raychains import PosteriorPredictive
import torch
import raychains

posterior = raychains.PosteriorPredictive.load(sys.argv[1])
with torch.inference_mode():
    print(json.dumps(posterior(torch.load(sys.argv[2])).probabilities.tolist()))
"""


def test_a_fresh_interpreter_needs_torch_and_safetensors_alone(run: rc.Result, images: Tensor, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(Path(run.path).parent.parent, copy)
    exported = rc.load(str(copy / "runs" / "small")).export(str(tmp_path / "p.safetensors"))
    shutil.rmtree(copy)
    torch.save(images[:5], tmp_path / "x.pt")
    command = [sys.executable, "-c", LOAD, str(exported.path), str(tmp_path / "x.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), run.predict(images[:5]), rtol=0, atol=1e-6)


def test_the_file_says_where_it_comes_from(run: rc.Result, tmp_path: Path) -> None:
    about = file.describe(run.export(str(tmp_path / "p")).path)
    chains = [spec.digest for spec in run.comparison.arms[0].chains[0]]
    assert about["samples"] == [
        [digest, "theta", index, next(r.sha256 for r in records if r.meta.index == index)]
        for index in range(4)
        for digest, records in ((d, ChainStore(run.store.root, d).records()) for d in chains)
    ]
    assert about["network"] == {
        "name": "mlp", "revision": 1, "settings": {"inputs": 64, "hidden": [100, 100], "outputs": 10},
    }  # fmt: skip
    assert about["task"] == run.comparison.task_spec.to_json()
    assert (about["kind"], about["preparation"], about["run"], about["arm"], about["raychains"]) == (
        "classification", None, "small", run.comparison.arms[0].name, rc.__version__,
    )  # fmt: skip


def test_first_takes_the_samples_of_a_view(run: rc.Result, images: Tensor, tmp_path: Path) -> None:
    chains = list(run.comparison.chains())
    pool = SamplePool()
    for digest in chains:
        for record in ChainStore(run.store.root, digest).records():
            pool.add(record, None)
    for first in (1, 3, 8):
        chosen = select(run.store.root, run.comparison, first=first)
        assert [r for _, r in chosen.records] == [p.record for p in pool.select(chains)[:first]]
    exported = run.export(str(tmp_path / "p"), first=3)
    every = networks_of(run)
    wanted = expected([every[0], every[4], every[1]], images)  # chain, chain, chain: two have four samples each
    agree(wanted["probabilities"], images, rc.PosteriorPredictive.load(exported.path))
    with refused("first", "9", "[1, 8]"):
        run.export(str(tmp_path / "q"), first=9)


def test_half_the_bytes_say_nearly_the_same(run: rc.Result, images: Tensor, tmp_path: Path) -> None:
    whole, half = run.export(str(tmp_path / "p")), run.export(str(tmp_path / "q"), dtype="bf16")
    assert half.bytes < 0.52 * whole.bytes
    posterior = rc.PosteriorPredictive.load(half.path)
    assert all(t.dtype == torch.bfloat16 for t in posterior.samples.buffers())
    found = posterior(images).probabilities
    assert 1e-5 < np.abs(found.numpy() - run.predict(images)).max() < 0.05


def test_arms_and_groups_are_chosen(tmp_path: Path, images: Tensor) -> None:
    options = Compare(**{**DIGITS, "sampler": ("sghmc",)})
    compared = finished(tmp_path / "store", options)
    for arm in compared.comparison.arms[1:]:
        path = compared.export(str(tmp_path / arm.name), arm.name).path
        wanted = expected(networks_of(compared, arm.name), images)["probabilities"]
        agree(wanted, images, rc.PosteriorPredictive.load(path))


def test_two_variables_are_samples_alike(tmp_path: Path, images: Tensor) -> None:
    result = digits(
        tmp_path / "store", sampler="emcmc", cycles=None, exploration=None, samples_per_cycle=None, chains=1
    )
    found = rc.PosteriorPredictive.load(result.export(str(tmp_path / "p")).path)
    assert {r.meta.variable for _, r in select(result.store.root, result.comparison).records} == {"theta", "anchor"}
    agree(expected(networks_of(result), images)["probabilities"], images, found)


# Last-layer inference


def test_what_was_not_sampled_is_stored_once(tmp_path: Path, images: Tensor) -> None:
    torch.manual_seed(3)
    base = MLP(64, (100, 100), 10).state_dict()
    save_file(base, tmp_path / "base.safetensors")
    partial = digits(
        tmp_path / "store", init_from=str(tmp_path / "base.safetensors"), sample_only=("layers.4.*",), chains=2
    )
    exported = partial.export(str(tmp_path / "p"))
    about = file.describe(exported.path)
    assert about["shared"] == [n for n in sorted(base) if not n.startswith("layers.4")]
    stacked, shared = file.tensors(exported.path, about, "cpu")
    assert {n: t.shape[0] for n, t in stacked.items()} == {"layers.4.weight": 8, "layers.4.bias": 8}
    assert all(torch.equal(shared[n], base[n]) for n in shared)
    wholes = [network({**base, **t}) for t in select(partial.store.root, partial.comparison).stored()]
    wanted = expected(wholes, images)["probabilities"]
    agree(wanted, images, rc.PosteriorPredictive.load(exported.path), partial.posterior())
    np.testing.assert_allclose(partial.predict(images), wanted, rtol=0, atol=1e-6)


def test_what_was_not_sampled_has_the_chains_precision(tmp_path: Path, images: Tensor) -> None:
    save_file({n: t.half() for n, t in MLP(64, (100, 100), 10).state_dict().items()}, tmp_path / "half.safetensors")
    settings: dict[str, Any] = {"init_from": str(tmp_path / "half.safetensors"), "sample_only": ("layers.4.*",)}
    partial = digits(tmp_path / "store", precision="fp64", **settings)
    loaded = rc.PosteriorPredictive.load(partial.export(str(tmp_path / "p")).path)
    agree(partial.predict(images), images.double(), loaded, partial.posterior())


def test_each_chains_other_layers_are_those_of_its_own_member(tmp_path: Path, images: Tensor) -> None:
    heads = digits(tmp_path / "store", init_from="deep-ensemble:4,2", sample_only=("layers.4.*",), chains=2)
    root = heads.store.root
    wholes, bases = [], []
    for chain, record in select(root, heads.comparison).records:
        assert record.meta.digest == chain.digest and chain.start_chain is not None
        [member] = ChainStore(root, chain.start_chain).records()
        base = ChainStore(root, chain.start_chain).sample(member.file)[0]
        head = ChainStore(root, chain.digest).sample(record.file)[0]
        assert set(head) == {"layers.4.weight", "layers.4.bias"}
        bases.append(base["layers.0.weight"])
        wholes.append(network({**base, **head}))
    assert len(wholes) == 8 and not torch.equal(bases[0], bases[1])  # the first draws of all chains come first
    wanted = expected(wholes, images)["probabilities"]
    np.testing.assert_allclose(heads.predict(images), wanted, rtol=0, atol=1e-6)
    agree(wanted, images, rc.PosteriorPredictive.load(heads.export(str(tmp_path / "p")).path))


# The command


def test_the_command_writes_the_runs_name_and_says_how_to_load_it(
    run: rc.Result, images: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", run.path]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("exported: small.safetensors, 8 samples of ") and first.endswith(" kB")
    prefix, _, code = second.partition(": ")
    assert prefix == "load it"
    loaded = eval(code, {"raychains": rc})
    agree(run.predict(images), images, loaded)
    assert main(["export", run.path]) == 2
    said = capsys.readouterr().err
    assert said.startswith("raychains: --to must be a new file") and said.count("\n") == 1
    assert main(["export", run.path, "--to", "one", "--first", "1", "--dtype", "fp16"]) == 0
    assert capsys.readouterr().out.startswith("exported: one, 1 sample of ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arm", "sgld"], "--arm must be one of"),
        (["--first", "none"], "--first must be an integer"),
        (["--group", "3"], "--group must lie in"),
        (["--dtype", "int8"], "--dtype must be one of"),
        (["--to", "no/such/folder"], "--to must be a file in an existing folder"),
    ],
    ids=["arm", "first", "group", "dtype", "to"],
)
def test_wrong_input_is_one_line(
    run: rc.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", run.path, *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"raychains: {words}") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_density_and_an_unfinished_run_are_refused(tmp_path: Path) -> None:
    density = finished(tmp_path / "store", Run(task="gaussian", sampler="sgld", steps=50, chains=1), name="density")
    with refused("density", "predicts nothing"):
        density.export(str(tmp_path / "p"))
    result = digits(tmp_path / "unfinished", chains=1)
    next(Path(result.path).parent.parent.glob("chains/*/samples/*")).unlink()
    for index in Path(result.path).parent.parent.glob("chains/*/samples.parquet"):
        index.unlink()
    with refused("unfinished", "`resume=True`"):
        result.export(str(tmp_path / "p"))
    assert not (tmp_path / "p").exists()


def test_a_torn_sample_is_named(tmp_path: Path) -> None:
    result = digits(tmp_path / "store", chains=1)
    torn = sorted(Path(result.path).parent.parent.glob("chains/*/samples/*"))[1]
    torn.write_bytes(torn.read_bytes()[:-1] + b"x")
    with pytest.raises(rc.RaychainsError, match=torn.name):
        result.export(str(tmp_path / "p"))
    assert not list(tmp_path.glob("*p*"))
