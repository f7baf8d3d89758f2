"""The exact posterior of a last layer: a sampled head against the same chain on its features, and against a Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raychains import samplers
from raychains.chain.chain import Chain
from raychains.core.sample import tensors_sha256
from raychains.core.spec import ChainSpec, Part
from raychains.schedules import Constant
from raychains.tasks.base import seeded
from tests.chain.chain_cases import SAMPLERS, samples
from tests.chain.chain_tasks import VariedDigits

DECAY = 0.25


class Regression(VariedDigits):
    """One output of the images under ½·(y − f(x))²: a network, or the linear head alone on the network's features."""

    def __init__(self, features: bool = False, size: int = 40) -> None:
        super().__init__()
        self._own, self.num_data = {"features": features, "size": size}, size
        generator = torch.Generator().manual_seed(3)
        self._x = torch.randn(size, 4, dtype=torch.float64, generator=generator)
        self._t = torch.randn(size, 1, dtype=torch.float64, generator=generator)
        self.fingerprint = "made"
        self._features = features
        if features:
            with torch.no_grad():
                self._x = self.network()[:2](self._x)

    @staticmethod
    def network() -> nn.Sequential:
        with seeded(8):
            return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        return self.network()[2:] if self._features else self.network()

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        loss = (model(self._x[batch]) - self._t[batch]).square().mean() / 2
        loss.backward()
        return loss.detach()

    def to(self, device: torch.device) -> None: ...


def regression(sampler: str, features: bool, steps: int, batch: int, lr: float, thinning: int) -> tuple[ChainSpec, Any]:
    task = Regression(features)
    tensors = task.build_model(seed=0, lanes=1).state_dict()
    kind = samplers.KINDS[sampler]
    settings = {"num_data": task.num_data, "weight_decay": DECAY, **SAMPLERS[sampler]}
    made = ChainSpec(
        task=task.spec(), sampler=Part(kind=sampler, revision=kind.revision, settings=settings),
        schedule=Constant(
            steps=steps, lr=lr, thinning=thinning, noise_from=0.0, temperature=0.0 if kind.noisy_counterpart is not None else 1.0
        ).part(),
        steps=steps, steps_per_epoch=-(-task.num_data // batch), batch_size=batch, seed=4, repeat=0, chain=1,
        precision="fp64", start=tensors_sha256(tensors), sample_only=() if features else ("2.*",),
        batchnorm="keep" if kind.statistics_fit else "reestimate",
    )  # fmt: skip
    return made, tensors


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampled_head_equals_the_same_chain_on_the_features_alone(sampler: str) -> None:
    """One path whatever made the features: same noise, same order; sums of other lengths may round otherwise."""
    whole, head = (
        samples(Chain(made, Regression(f), start=tensors))
        for f in (False, True)
        for made, tensors in [regression(sampler, f, 60, 8, 0.05, 10)]
    )
    assert len(whole) == len(head) >= 6
    for a, b in zip(whole, head, strict=True):
        assert set(a.tensors) == {"2.weight", "2.bias"}
        for name, t in b.tensors.items():
            torch.testing.assert_close(a.tensors[f"2{name[1:]}"], t, atol=1e-12, rtol=1e-12)


def test_the_last_layers_draws_have_its_exact_gaussian_posteriors_moments() -> None:
    """U is quadratic in the head: N(m, P⁻¹), widened by the finite step to Σ = P⁻¹(I − lr·P/2N)⁻¹ of full batches."""
    lr = 1.0
    made, tensors = regression("sgld", False, 5_000, 40, lr, 4)
    taken = samples(Chain(made, Regression(), start=tensors))[50:]
    draws = np.stack([np.concatenate([s.tensors[n].numpy().ravel() for n in ("2.weight", "2.bias")]) for s in taken])
    task = Regression(features=True)
    phi = np.concatenate([task._x.numpy(), np.ones((40, 1))], axis=1)
    precision = phi.T @ phi + 40 * DECAY * np.eye(4)
    mean = np.linalg.solve(precision, phi.T @ task._t.numpy().ravel())
    covariance = np.linalg.inv(precision) @ np.linalg.inv(np.eye(4) - lr * precision / 80)
    # Draws decay by (1 − lr·h/N)^4 from one to the next: the effective number is what the slowest direction has.
    rate = (1 - lr * np.linalg.eigvalsh(precision)[0] / 40) ** 4
    effective = len(draws) * (1 - rate) / (1 + rate)
    error = np.abs(draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / effective)
    assert effective > 300 and (error < 4).all(), error
    whitened = (draws - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    spread = whitened.T @ whitened / len(draws)
    assert np.abs(spread - np.eye(4)).max() < 4 * np.sqrt(2 / effective), spread
