"""A last layer's posterior through every room: partial samples, evaluation, prediction, and a resume without the
start's file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import raychains as rc
from raychains.api import sampling
from raychains.store import ChainStore, Storage
from tests.checks import refused
from tests.pool import unpaged

HEAD = {"layers.4.weight", "layers.4.bias"}


def trained(seed: int) -> Iterator[dict[str, Tensor]]:
    """The digits' network after one epoch of SGD, after two, …"""
    task = rc.make_task("digits")
    model = task.build_model(seed=seed, lanes=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in itertools.count():
        for batch in task.epoch(seed=epoch, batch_size=50):
            optimizer.zero_grad()
            task.backward(model, batch, torch.Generator())
            optimizer.step()
        yield model.state_dict()


@pytest.fixture(scope="module")
def network(folder: Path) -> dict[str, Tensor]:
    *_, state = itertools.islice(trained(seed=3), 10)
    torch.save({"epoch": 10, "state_dict": {f"module.{n}": t for n, t in state.items()}}, folder / "net.pt")
    return state


Settings = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def settings(network: dict[str, Tensor], folder: Path, runs: str) -> Settings:
    def changed(**change: Any) -> dict[str, Any]:
        fixed = {"task": "digits", "sampler": "csghmc", "epochs": 20, "chains": 2, "repeats": 1, "concurrent": 1}
        fixed |= {"store": runs, "name": "head"}
        return {**fixed, "init_from": str(folder / "net.pt"), "sample_only": ("layers.4.*",), **change}

    return changed


@pytest.fixture(scope="module")
def head(settings: Settings) -> rc.Result:
    return rc.run(**settings())


def files(result: rc.Result) -> list[Path]:
    root = Path(result.store.root.location())
    return [
        root / "chains" / digest / record.file
        for digest in result.comparison.chains()
        for record in ChainStore(Storage(str(root)), digest).records()
    ]


def test_results_and_predictions_are_those_of_the_completed_networks(
    head: rc.Result, network: dict[str, Tensor]
) -> None:
    task: Any = rc.make_task("digits")
    split, model = task.splits()["test"], task.build_model(seed=0, lanes=1)
    p = []
    for file in files(head):
        tensors = load_file(file)
        assert tensors.keys() == HEAD
        model.load_state_dict({**network, **tensors})
        with torch.no_grad():
            p.append(torch.softmax(model(split.inputs).double(), dim=1))
    assert len(p) == 2 * 4  # chains × cycles, of five epochs each
    mean = torch.stack(p).mean(dim=0).numpy()
    labels = head.store.table("rows").to_pandas()["label"].to_numpy()
    found = head.results().iloc[0]
    assert found["error"] == np.mean(mean.argmax(axis=1) != labels)
    assert found["nll"] == pytest.approx(-np.log(mean[np.arange(len(labels)), labels]).mean(), abs=1e-6)
    page = Path(head.report).read_text()
    assert str(next(iter(head.comparison.chains().values())).start)[:12] in page and "layers.4.*" in page
    np.testing.assert_allclose(rc.load(head.path).predict(split.inputs.numpy()), mean, atol=1e-6)


def test_a_run_without_the_file_of_its_start_goes_on_from_the_stores_copy(
    head: rc.Result, settings: Settings, folder: Path
) -> None:
    before = {file: file.read_bytes() for file in files(head)}
    (folder / "net.pt").rename(folder / "elsewhere.pt")
    try:
        chain = next(iter(before)).parent.parent
        for name in ("samples.parquet", "progress.parquet", "samples/000000-theta-1.safetensors"):
            (chain / name).unlink()
        with refused("init_from must be a file", "below starts/"):
            rc.run(**settings(resume=True))
        (start,) = {spec.start for spec in head.comparison.chains().values()}
        copy = chain.parent.parent / "starts" / f"{start}.safetensors"
        with unpaged():
            again = rc.run(**settings(resume=True, init_from=str(copy)))
        assert again.comparison.digest == head.comparison.digest
        drawn = {(f.parent, f.name.split("-")[0]): load_file(f) for f in files(again)}
        assert len(drawn) == len(before)
        for file, data in before.items():
            found = drawn[file.parent, file.name.split("-")[0]]
            old = folder / "old.safetensors"
            old.write_bytes(data)
            assert all(torch.equal(found[n], t) for n, t in load_file(old).items())
        notes = again.store.plan()["notes"]
        assert any("net.pt" in note for note in notes)
    finally:
        (folder / "elsewhere.pt").rename(folder / "net.pt")


def test_what_the_machine_cannot_execute_is_refused_before_a_chain_starts(runs: str) -> None:
    for field, value in (("precision", "tf32"), ("compile", "cuda-graphs")):
        with refused(field, "GPU"):
            rc.run(task="digits", epochs=20, chains=1, store=runs, gpus_per_chain=0, **{field: value})


def test_a_module_or_a_state_dict_is_a_start_as_its_file_is(
    head: rc.Result, network: dict[str, Tensor], settings: Settings
) -> None:
    """The run is there already: the same chains are planned, whatever form the start has."""
    task = rc.make_task("digits")
    model = task.build_model(seed=0, lanes=1)
    model.load_state_dict(network)
    with unpaged():
        again = rc.run(**settings(init_from=network, resume=True), progress=False)
    assert again.comparison.digest == head.comparison.digest
    for given in (model, {f"model.{name}": t for name, t in network.items()}):
        again = sampling.sample(**settings(task=task, init_from=given, resume=True))
        assert again.comparison.digest == head.comparison.digest
    for wrong in (3, {}, torch.optim.SGD(model.parameters())):
        with refused("init_from must be a file, a torch.nn.Module or its state dict"):
            rc.run(**settings(init_from=wrong))
    with refused("init_from must hold names with dense tensors alone, got 'a': int"):
        rc.run(**settings(init_from={"a": 1}))


def test_tensors_that_do_not_fit_are_left_out_if_the_user_says_so(
    network: dict[str, Tensor], settings: Settings, folder: Path
) -> None:
    task = rc.make_task("digits")
    other = {**network, "layers.4.weight": torch.zeros(3, 3), "metric.total": torch.zeros(1)}
    with refused("init_from must fit the task's network"):
        rc.run(**settings(name="other", init_from=other))
    save_file(other, folder / "other.safetensors")
    with refused(f"init_from must fit the task's network, got '{folder}/other.safetensors'"):
        rc.run(**settings(name="other", init_from=f"{folder}/other.safetensors"))
    given = settings(task=task, name="other", chains=1, init_from=other, init_strict=False, sample_only=())
    found = sampling.sample(**given)
    notes = found.store.plan()["notes"]
    assert "2 tensors are left out of init_from: layers.4.weight, metric.total" in notes
    assert "1 tensors are not in init_from, and initialised by seed 0: layers.4.weight" in notes
    (digest,) = {spec.start for spec in found.comparison.chains().values()}
    stored = load_file(f"{found.store.root.location()}/starts/{digest}.safetensors")
    fresh = task.build_model(seed=0, lanes=1).state_dict()
    assert all(torch.equal(stored[n], (fresh if n == "layers.4.weight" else network)[n]) for n in network)
    with refused("init_from must have a tensor of the task's network, got x"):
        rc.run(**settings(name="none", init_from={"x": torch.zeros(2)}, init_strict=False))
