"""`get_extra_state` of a module is no variable: models that have it run, and samples are their tensors alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import raychains as rc
from raychains.api import sampling
from raychains.chain import initialization
from raychains.orchestration.cluster.thread_workers import ThreadWorkers
from raychains.tasks import PredictiveTask
from tests.checks import refused

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


class Versioned(nn.Linear):
    """As a layer that notes the version of its format."""

    extra: Any = {"version": 1}  # noqa: RUF012

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        assert state == self.extra


class OnlyGives(nn.Linear):
    """A layer that takes no extra state back."""

    def get_extra_state(self) -> Any:
        return torch.tensor([1.0])


@pytest.mark.parametrize("layer", [Versioned, OnlyGives])
def test_samples_and_predictions_are_those_of_a_model_without_it(layer: type[nn.Linear], tmp_path: Path) -> None:
    def fitted(layer: type[nn.Linear]) -> rc.Result:
        task = rc.Task.from_module(lambda: nn.Sequential(layer(3, 2)), (X, Y), (X, Y), name="extra")
        settings = {"sampler": "sghmc", "chains": 1, "epochs": 10, "batch_size": 20, "lr": 0.01}
        return sampling.sample(task, ThreadWorkers(), store=str(tmp_path / layer.__name__), **settings)

    found, plain = fitted(layer), fitted(nn.Linear)
    np.testing.assert_array_equal(found.predict(X), plain.predict(X))
    assert sorted(found.posterior().state_dict()) == ["samples.0.bias", "samples.0.weight", "weights"]


def test_a_trained_model_with_it_is_a_start(tmp_path: Path) -> None:
    model = nn.Sequential(Versioned(3, 2))
    assert sorted(initialization.read(initialization.to_file(model))) == ["0.bias", "0.weight"]
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert sorted(initialization.read(str(tmp_path / "model.pt"))) == ["0.bias", "0.weight"]


def test_a_task_whose_own_network_has_it_is_refused_before_it_runs(tmp_path: Path) -> None:
    whole = rc.Task.from_module(lambda: nn.Linear(3, 2), (X, Y), (X, Y), name="whole")

    class Own(PredictiveTask):
        num_data, fingerprint = len(X), "own"
        source, likelihood, predicts = whole.source, whole.likelihood, whole.predicts  # type: ignore[attr-defined]

        def build_model(self, *, seed: int, lanes: int) -> nn.Module:
            return nn.Sequential(Versioned(3, 2))

        def splits(self) -> Any:
            return whole.splits()

    settings = {"sampler": "sghmc", "epochs": 10, "batch_size": 20, "lr": 0.01, "exact": False}
    with refused("build_model", "tensors alone", "a dict as '0._extra_state'", "buffer"):
        sampling.sample(Own(), ThreadWorkers(), store=str(tmp_path), **settings)
