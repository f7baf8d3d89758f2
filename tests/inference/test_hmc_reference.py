"""HMC's draws of a network's posterior: energies against the task's own loss, a law in closed form, rounds that go on,
refusals."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import raychains as rc
from raychains import tasks
from raychains.evaluation import mcmc_diagnostics
from raychains.inference import hmc_reference
from raychains.models import stacked
from raychains.store import Storage
from raychains.tasks.base import PredictiveTask
from raychains.tasks.likelihoods import GaussianNoise, Heteroscedastic, Likelihood
from tests.checks import refused

N, SIGMA, DECAY = 30, 0.5, 0.1
ROWS = 3


def data(classes: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, 2)).astype(np.float32)
    y = x @ np.array([1.0, -0.5]) + SIGMA * rng.standard_normal(N)
    return torch.from_numpy(x), torch.from_numpy((y > 0).astype(np.int64) if classes else y.astype(np.float32))


def network(outputs: int, hidden: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def task_of(model_fn: object, loss: str | Likelihood, classes: int = 0) -> PredictiveTask:
    x, y = data(classes)
    made = rc.Task.from_module(model_fn, (x, y), (x[:20], y[:20]), loss, name="small")  # type: ignore[arg-type]
    assert isinstance(made, PredictiveTask)
    return made


def linear() -> PredictiveTask:
    return task_of(lambda: nn.Linear(2, 1), GaussianNoise(SIGMA))


@pytest.mark.parametrize(
    ("outputs", "loss", "classes"),
    [(1, GaussianNoise("learned"), 0), (2, Heteroscedastic(), 0), (2, "cross_entropy", 2)],
    ids=["learned σ", "σ(x)", "classes"],
)
def test_energy_and_slope_are_those_of_the_tasks_loss_and_prior(
    outputs: int, loss: str | Likelihood, classes: int
) -> None:
    task = task_of(lambda: network(outputs), loss, classes)
    posterior = hmc_reference.Posterior(task, ROWS, DECAY)
    theta = np.random.default_rng(1).standard_normal((ROWS, posterior.size))
    for row in range(ROWS):
        model = task.build_model(seed=0, lanes=1).double()
        values = stacked.views(torch.from_numpy(theta[row : row + 1]), posterior.shapes)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(values[name][0])
        energy = N * task.loss(model, torch.arange(N), torch.Generator())
        energy = energy + 0.5 * N * DECAY * sum(p.square().sum() for p in model.parameters())
        slope = torch.cat([g.reshape(-1) for g in torch.autograd.grad(energy, list(model.parameters()))])
        assert posterior.energy(theta)[row] == pytest.approx(energy.item(), rel=1e-9)
        np.testing.assert_allclose(posterior.slope(theta)[row], slope.numpy(), rtol=1e-8, atol=1e-9)


Whole = tuple[hmc_reference.HmcReference, dict[str, bytes]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A linear network's reference that nobody disturbed, and its files."""
    folder = tmp_path_factory.mktemp("whole")
    found = hmc_reference.reference(Storage(str(folder)), linear(), DECAY, "test")
    assert found.draws.shape[1] > hmc_reference.ROUND, "it takes more than one round"
    return found, tensors(folder)


def tensors(folder: Path) -> dict[str, bytes]:
    """The files that a store has of its references, by name."""
    return {file.name: file.read_bytes() for file in (folder / "references").rglob("*.safetensors")}


def test_draws_of_a_linear_network_have_the_normal_law_in_closed_form(whole: Whole) -> None:
    """Precision ZᵀZ/σ² + NλI for inputs with a column of ones, mean its inverse times Zᵀy/σ²."""
    found, _ = whole
    x, y = data()
    z = np.column_stack([x.numpy(), np.ones(N)]).astype(np.float64)
    covariance = np.linalg.inv(z.T @ z / SIGMA**2 + N * DECAY * np.eye(3))
    mean = covariance @ z.T @ y.numpy().astype(np.float64) / SIGMA**2
    draws = found.draws.astype(np.float64)
    sd = np.sqrt(np.diag(covariance))
    errors = 4 * sd / np.sqrt(mcmc_diagnostics.ess(draws, "mean"))
    assert (np.abs(draws.mean((0, 1)) - mean) < errors).all()
    squares = ((draws - mean) / sd) ** 2
    assert (np.abs(squares.mean((0, 1)) - 1) < 4 * math.sqrt(2) / np.sqrt(mcmc_diagnostics.ess(squares, "mean"))).all()
    assert found.r_hat < 1.01 and found.ess >= 1_000 and 0.8 < found.acceptance <= 1


@pytest.mark.long
def test_a_stop_in_a_later_round_changes_no_draw_and_a_torn_round_is_made_again(tmp_path: Path, whole: Whole) -> None:
    told: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        told.append((done, total))
        if (done, total) == (350, hmc_reference.WARMUP + 2 * hmc_reference.ROUND):  # in the second round
            raise KeyboardInterrupt

    root, (undisturbed, _) = Storage(str(tmp_path)), whole
    with pytest.raises(KeyboardInterrupt):
        hmc_reference.reference(root, linear(), DECAY, "test", stop)
    assert told[-1] == (350, 400)
    again = hmc_reference.reference(root, linear(), DECAY, "test")
    np.testing.assert_array_equal(again.draws, undisturbed.draws)
    assert (again.r_hat, again.ess) == (undisturbed.r_hat, undisturbed.ess)
    read: list[int] = []
    hmc_reference.reference(root, linear(), DECAY, "test", lambda done, total: read.append(done))
    assert read == []
    (folder,) = (tmp_path / "references").iterdir()
    first = folder / "0000.safetensors"
    first.write_bytes(first.read_bytes()[:-1])  # torn: made again
    repaired = hmc_reference.reference(root, linear(), DECAY, "test")
    np.testing.assert_array_equal(repaired.draws, undisturbed.draws)


def test_a_kill_in_the_first_round_loses_a_hundred_draws_at_most_and_changes_no_byte(
    tmp_path: Path, whole: Whole
) -> None:
    """A torn state is begun anew."""
    root, firsts = Storage(str(tmp_path)), []
    for kill in (99, 110, 200, 201, 210, 301):
        told: list[int] = []

        def stop(done: int, total: int, kill: int = kill, told: list[int] = told) -> None:
            told.append(done)
            if done == kill:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            hmc_reference.reference(root, linear(), DECAY, "test", stop)
        firsts.append(told[0])
        if kill == 201:
            (state,) = (tmp_path / "references").rglob("warm-up.safetensors")
            state.write_bytes(state.read_bytes()[:-1])
    assert firsts == [1, 1, 101, 201, 1, 201]
    again = hmc_reference.reference(root, linear(), DECAY, "test")
    undisturbed, files = whole
    np.testing.assert_array_equal(again.draws, undisturbed.draws)
    assert tensors(tmp_path) == files and "warm-up.safetensors" not in files


def test_chains_that_do_not_agree_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hmc_reference, "MOST_ROUNDS", 1)
    monkeypatch.setattr(hmc_reference, "LEAST_ESS", 1e9)
    with refused("reference", "'hmc'", "do not agree after 100 draws"):
        hmc_reference.reference(Storage(str(tmp_path)), linear(), DECAY, "test")
    with refused("weight_decay", "0.0", "prior"):
        hmc_reference.reference(Storage(str(tmp_path)), linear(), 0.0, "test")


def test_what_has_no_reference_is_said() -> None:
    with_dropout = task_of(lambda: nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1)), GaussianNoise(1.0))
    assert "dropout" in str(hmc_reference.refusal(with_dropout))
    normed = task_of(lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)), GaussianNoise(1.0))
    assert "BatchNorm" in str(hmc_reference.refusal(normed))
    assert "augmented" in str(hmc_reference.refusal(tasks.make("digits", augment=True)))
    wide = task_of(
        lambda: nn.Sequential(nn.Linear(2, 5_000), nn.Linear(5_000, 5_000), nn.Linear(5_000, 1)), GaussianNoise(1.0)
    )
    assert "take days" in str(hmc_reference.refusal(wide))
    assert hmc_reference.refusal(linear()) is None
