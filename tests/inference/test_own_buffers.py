"""Buffers of another dtype than the parameters' keep every digit from the chain to predictions and exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import raychains as rc
from raychains.api import sampling
from raychains.orchestration.cluster.thread_workers import ThreadWorkers
from tests.checks import refused

TURNS = torch.polar(torch.ones(2), torch.tensor([1.5, 3.0]))
TIME = torch.tensor([1 / 3, 2e9 + 0.1], dtype=torch.float64)
"""The second is 2e9 in single precision."""
X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


class Rotary(nn.Module):
    """A linear layer of inputs that are turned by complex numbers and scaled by a difference in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("time", TIME.clone())
        self.register_buffer("cis", TURNS.clone())
        self.register_buffer("mask", torch.tensor([1, 0, 1, 1], dtype=torch.uint8))
        self.register_buffer("steps", torch.zeros((), dtype=torch.float64))
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1e-9
        turned = torch.view_as_real(torch.view_as_complex(x.view(-1, 2, 2).contiguous()) * self.cis).flatten(1)
        out: Tensor = self.out((turned * self.mask * (self.time[1] - 2e9)).to(x.dtype))
        return out


def task() -> rc.Task:
    return rc.Task.from_module(Rotary, (X, Y), (X, Y), name="rotary")


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_buffers_keep_their_dtype_and_digits_to_the_prediction(precision: Any, tmp_path: Path) -> None:
    settings = {"sampler": "sgld", "chains": 1, "epochs": 4, "batch_size": 10, "lr": 0.1, "precision": precision}
    result = sampling.sample(task(), ThreadWorkers(cpus=1), store=str(tmp_path / "runs"), **settings)
    built = Rotary()
    posterior = result.posterior()
    states = {name.removeprefix("samples."): t for name, t in posterior.state_dict().items()}
    assert states["cis"].dtype == torch.complex64 and bool((states["cis"] == TURNS).all())
    assert states["time"].dtype == torch.float64 and bool((states["time"] == TIME).all())
    assert states["steps"].dtype == torch.float64 and 0 < float(states["steps"].max()) < 1e-6
    assert states["mask"].dtype == torch.uint8
    wide = {"fp32": torch.float32, "fp64": torch.float64}[precision]
    assert states["out.weight"].dtype == wide

    right = torch.zeros(len(X), 2)
    for s in range(len(posterior)):
        built.load_state_dict({name: t[s] for name, t in states.items() if name != "weights"})
        right += torch.softmax(built.eval()(X), 1).detach() / len(posterior)
    torch.testing.assert_close(torch.as_tensor(result.predict(X)), right, check_dtype=False)
    torch.testing.assert_close(posterior(X).probabilities, right, check_dtype=False)

    halved = posterior.to(torch.bfloat16).samples
    assert halved.out.weight.dtype == torch.bfloat16  # type: ignore[union-attr]
    assert torch.equal(halved.cis, states["cis"])  # type: ignore[arg-type]

    for dtype in (None, "bf16"):
        path = tmp_path / f"{dtype}.safetensors"
        result.export(path, dtype=dtype)
        loaded = rc.PosteriorPredictive.load(path, Rotary())
        kept = {name.removeprefix("samples."): t for name, t in loaded.state_dict().items()}
        assert kept["out.weight"].dtype == (torch.bfloat16 if dtype else wide)
        for name in ("cis", "time", "steps", "mask"):
            assert kept[name].dtype == states[name].dtype and torch.equal(kept[name], states[name]), name
        if dtype is None:
            torch.testing.assert_close(loaded(X).probabilities, right, check_dtype=False)


def test_a_buffer_that_no_sample_can_hold_is_refused() -> None:
    def wide() -> nn.Module:
        network = Rotary()
        network.cis = network.cis.to(torch.complex128)
        return network

    with refused("cis", "complex128", "complex64"):
        rc.Task.from_module(wide, (X, Y), (X, Y))
