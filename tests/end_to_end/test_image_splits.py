"""A run on images whose share is held out, evaluated there and on images of something else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

import raychains as rc
from raychains.core.config import Evaluate
from raychains.data import sets
from raychains.orchestration.chains.chain_worker import ChainWorker
from raychains.orchestration.chains.messages import ChainWorkerConfig, EvaluatorConfig
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.run.evaluation_worker import EvaluationWorker
from raychains.store import ChainStore, codec
from tests.checks import refused
from tests.orchestration.threads import keep_this_process
from tests.pool import unpaged


def test_workers_and_evaluators_read_the_data_root_of_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_this_process(monkeypatch)
    resources, store = ResourceConfig.of(rc.Run(data_root=str(tmp_path))), str(tmp_path / "store")
    for make in (
        lambda: ChainWorker(ChainWorkerConfig(store=store, data_root=resources.data_root)),
        lambda: EvaluationWorker(EvaluatorConfig(store=store, data_root=resources.data_root)),
    ):
        monkeypatch.setenv("RAYCHAINS_DATA", "/elsewhere")
        make()
        assert os.environ["RAYCHAINS_DATA"] == str(tmp_path)


@pytest.mark.long
@pytest.mark.skipif(
    not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: MNIST and notMNIST are needed"
)
def test_a_run_is_evaluated_on_what_it_held_out_and_on_another_set(
    runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = os.environ["RAYCHAINS_DATA"]
    monkeypatch.delenv("RAYCHAINS_DATA")  # --data-root alone tells where the data lie
    with unpaged():
        result = rc.run(
            task="mnist-mlp", train_subset=600, val_split=100, epochs=4, cycles=1, exploration=0.5, chains=1,
            evaluators=1, task_settings=("hidden=[30]",), store=runs, data_root=root, name="images",
        )  # fmt: skip
        options = Evaluate(run=result.path, data_root=root)
        val = rc.evaluate(result.path, "val", options=options)
    letters = rc.evaluate(result.path, "ood:notmnist", options=options)
    assert "RAYCHAINS_DATA" not in os.environ
    spec = result.comparison.arms[0].chains[0][0]
    assert spec.sampler.settings["num_data"] == 500 and spec.task.settings["val_split"] == 100
    assert 0.05 < float(result.results()["error"].iloc[0]) < 0.7

    assert [r.path.rpartition("/")[2] for r in (val, letters)] == ["images-val", "images-ood-notmnist"]
    assert len(val.store.table("rows")) == 100 and len(letters.store.table("rows")) == 10_000  # type: ignore[arg-type]
    with refused("split", "test, train, val, ood:notmnist, ood:fashion-mnist", "ood:svhn"):
        rc.evaluate(result.path, options=Evaluate(run=result.path, split="ood:svhn", data_root=root))
    with refused("run", "other"):
        rc.evaluate(result.path, options=Evaluate(run="other"))

    monkeypatch.setenv("RAYCHAINS_DATA", root)
    images = sets.load("notmnist", "test").images
    store = ChainStore(result.store.root, spec.digest)
    mean, std = sets.statistics("mnist")
    model = rc.make_task("mnist-mlp", hidden=[30]).build_model(seed=0, lanes=1).double()
    each = []
    for record in store.records():
        model.load_state_dict(codec.decode(store.read_sample(record.file))[0])
        with torch.no_grad():
            each.append(torch.softmax(model((images.double() / 255 - mean[0]) / std[0]), dim=1).numpy())
    entropy = scipy.stats.entropy(np.mean(each, axis=0), axis=1)
    found = letters.results().iloc[0]
    assert found["entropy"] == pytest.approx(entropy.mean(), rel=1e-4)
    assert found["low_entropy"] == pytest.approx(np.mean(entropy < 0.5), abs=2e-4)
    assert found["samples"] == len(each) >= 2
    table = letters.table(full=True)
    assert {"entropy", "mutual_information", "low_entropy", "confidence"} <= set(table.columns)
    page = Path(letters.report).read_text()
    assert "Predictive entropy" in page and "ood:notmnist" in page

    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))  # a machine without the data reads results all the same
    monkeypatch.setattr("raychains.data.fetch._download", lambda *_: pytest.fail("a table downloads nothing"))
    assert rc.load(letters.path).table(full=True)["entropy"].iloc[0] == pytest.approx(entropy.mean(), rel=1e-4)
