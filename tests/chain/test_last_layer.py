"""The last layer: a sampled head against its exact posterior, and one that is measured against Bayesian linear
regression."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import raychains as rc
from raychains import samplers, tasks
from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.sample import tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.planning import methods
from raychains.schedules import Constant
from raychains.tasks.base import seeded
from raychains.tasks.likelihoods import Classes
from raychains.tasks.linear_regression import posterior
from tests.chain.chain_cases import (
    SAMPLERS,
    WITH_LAYERS,
    chain_spec,
    outcome,
    run,
    sample_hash,
    samples,
    stored,
    temperature_of,
)
from tests.chain.chain_tasks import VariedDigits
from tests.checks import refused

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
    schedule = Constant(steps=steps, lr=lr, thinning=thinning, noise_from=0.0, temperature=temperature_of(sampler))
    made = chain_spec(
        task, sampler, schedule, {"weight_decay": DECAY, **SAMPLERS[sampler]}, seed=4, chain=1, precision="fp64",
        steps_per_epoch=-(-task.num_data // batch), batch_size=batch, start=tensors_sha256(tensors),
        sample_only=() if features else ("2.*",),
        batchnorm="keep" if samplers.KINDS[sampler].statistics_fit else "reestimate",
    )  # fmt: skip
    return made, tensors


@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if s not in WITH_LAYERS])  # the task has a loss of its own
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


# A last layer that is measured: the Laplace approximation


def linear_task(n: int = 60, sigma: float = 0.5) -> Any:
    """Bayesian linear regression with an intercept, as a network."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64) + 0.7
    y = y + sigma * torch.randn(n, generator=generator, dtype=torch.float64)
    model = lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))  # noqa: E731
    return rc.Task.from_module(model, (x, y), (x[:5], y[:5]), "gaussian", noise=sigma, name="linear")


def laplace(task: Any, name: str = "own", **options: Any) -> Chain:
    made = methods.resolve(Run(**options), task=task, sampler="laplace")
    return Chain(made.spec, task, start=made.start.tensors)


def test_draws_are_those_of_exact_bayesian_linear_regression() -> None:
    """Mean and covariance of 4,000 draws, within 5 standard errors; the optimum is reached to a hundredth of one."""
    task, count, decay = linear_task(), 4_000, 0.02
    own = (f"prediction_samples={count}",)
    chain = laplace(
        task, epochs=400, batch_size=60, lr=0.02, weight_decay=decay, precision="fp64", sampler_settings=own
    )
    drawn = np.array(
        [np.concatenate([s.tensors[n].numpy().ravel() for n in ("0.weight", "0.bias")]) for s in samples(chain)]
    )
    x, y = (np.asarray(t) for t in (task.source.inputs, task.source.targets))
    mean, covariance = posterior(np.hstack([x, np.ones((60, 1))]), y, 0.5, 60 * decay)
    sd = np.sqrt(np.diag(covariance))
    at = np.concatenate([p.detach().numpy().ravel() for p in chain.model.parameters()])
    assert len(drawn) == count and np.abs((at - mean) / sd).max() < 0.01
    assert np.abs((drawn.mean(0) - mean) / sd).max() < 5 / math.sqrt(count)
    away = drawn - mean
    products = away[:, :, None] * away[:, None, :]
    assert np.abs((products.mean(0) - covariance) / (products.std(0) / math.sqrt(count))).max() < 5


def test_the_last_epoch_measures_every_example_once_and_its_last_step_is_kept() -> None:
    task = VariedDigits(dropout=0.4, batchnorm=True)
    chain = laplace(task, "digits", epochs=3, batch_size=20, lr=0.1)
    assert [chain.schedule.at(k).temperature for k in (10, 11)] == [0, 1] and chain.spec.steps == 15
    run(chain, until=10)
    before = {name: t.clone() for name, t in chain.model.state_dict().items()}
    taken = samples(chain)
    assert all(torch.equal(before[name], t) for name, t in chain.model.state_dict().items()), "statistics stay, too"
    chain.model.eval()
    with torch.no_grad():
        phi = nn.Sequential(*chain.model[:-1])(task.raw()).double()
        p = chain.model(task.raw()).double().softmax(1)
    phi = torch.cat([phi, torch.ones(90, 1)], dim=1)
    fisher = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    whole = torch.einsum("nab,nf,ng->afbg", fisher, phi, phi).reshape(90, 90)
    found = chain.sampler.state[chain.model[-1].weight]["precision"]
    torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)
    assert [s.meta.step for s in taken] == [15] * 20 and [s.meta.index for s in taken] == list(range(20))
    head = {f"{len(chain.model) - 1}.{n}" for n in ("weight", "bias")}
    same = {name for name in before if all(torch.equal(s.tensors[name], before[name]) for s in taken)}
    assert same == before.keys() - head


@pytest.mark.parametrize("at", range(9, 16))
def test_a_chain_that_is_cut_anywhere_in_its_pass_has_the_same_bytes(at: int) -> None:
    make = lambda: laplace(VariedDigits(dropout=0.4), "digits", epochs=3, batch_size=20, lr=0.1)  # noqa: E731
    straight, cut, rest = make(), make(), make()
    first = run(cut, until=at)
    rest.load_state_dict(stored(cut.state_dict()))
    assert outcome(rest, first + run(rest)) == outcome(straight, run(straight))


def test_another_seed_or_chain_has_other_draws() -> None:
    hashes = set()
    for seed in (0, 0, 1):
        chain = laplace(VariedDigits(), "digits", epochs=2, batch_size=20, lr=0.1, seed=seed)
        hashes.add(sample_hash(run(chain)))
    assert len(hashes) == 2


def test_a_cyclical_schedule_measures_at_each_mode() -> None:
    task = VariedDigits()
    options: dict[str, Any] = {"epochs": 8, "batch_size": 20, "lr": 0.1, "cycles": 2, "samples_per_cycle": 1}
    made = methods.resolve(Run(**options, exploration=0.75), task=task, sampler="laplace", schedule="cyclical")
    chain = Chain(made.spec, task)
    taken = samples(chain)
    assert [s.meta.cycle for s in taken] == [0] * 20 + [1] * 20
    first, second = (torch.stack([s.tensors["0.weight"] for s in taken[i : i + 20]]) for i in (0, 20))
    assert torch.equal(first[0], first[19]) and not torch.equal(first[0], second[0])
    offsets = [t.tensors["2.bias"] - taken[i].tensors["2.bias"] for i, t in ((1, taken[1]), (20, taken[21]))]
    assert not torch.allclose(*offsets)


class Smoothed(Classes):
    """Another loss than that of its base, whose Fisher information it has."""

    def loss(self, model: nn.Module, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


def test_what_has_no_last_layer_to_measure_is_refused() -> None:
    digits: dict[str, Any] = {"task": VariedDigits(), "name": "digits", "epochs": 2}
    with refused("sampler", "gaussian", "laplace needs a network"):
        laplace(tasks.make("gaussian"), "gaussian")
    with refused("sampler", "a prior of its own", "weight decay"):
        laplace(VariedDigits(std=1.0), "digits", weight_decay=0.0)
    with refused("weight_decay", "above 0", "0.0"):
        laplace(**digits, weight_decay=0.0)
    with refused("compile", "none"):
        laplace(**digits, compile="default")
    with refused("micro_batch", "left out"):
        laplace(**digits, micro_batch=10)
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    own = rc.Task.from_module(lambda: nn.Linear(3, 2), (x, y), (x, y), nn.CrossEntropyLoss())
    with refused("sampler", "Fisher information"):
        laplace(own)
    with refused("sampler", "Fisher information"):
        laplace(rc.Task.from_module(lambda: nn.Linear(3, 2), (x, y), (x, y), Smoothed()))
    late = lambda: nn.Sequential(nn.Linear(3, 2), nn.LogSoftmax(dim=1))  # noqa: E731
    with refused("sampler", "network", "linear layer"):
        laplace(rc.Task.from_module(late, (x, y), (x, y)))
    large = lambda: nn.Sequential(nn.Linear(3, 4_000), nn.Linear(4_000, 2))  # noqa: E731
    with refused("last layer", "at most", "6,000", "8,002"):
        laplace(rc.Task.from_module(large, (x, y), (x, y)))


class Heads(nn.Module):
    """Batches of one example have a head of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.several = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.one if len(x) == 1 else self.several)(x)
        return out


def test_a_last_layer_that_is_another_in_some_batches_is_refused_where_it_is() -> None:
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    chain = laplace(rc.Task.from_module(Heads, (x, y), (x, y)), epochs=2, batch_size=10)
    with refused("sampler", "laplace", "last linear layer"):
        list(chain)


def test_a_frozen_last_layer_is_refused(tmp_path: Path) -> None:
    torch.save(VariedDigits().build_model(seed=3, lanes=1).state_dict(), tmp_path / "net.pt")
    given: dict[str, Any] = {"epochs": 2, "init_from": str(tmp_path / "net.pt")}
    with refused("sample_only", "the whole last layer", "0.*"):
        laplace(VariedDigits(), "digits", **given, sample_only=("0.*",))
    chain = laplace(VariedDigits(), "digits", **given, sample_only=("2.*",))
    assert {tuple(s.tensors) for s in samples(chain)} == {("2.weight", "2.bias")}
