"""The true posterior of a small network: Hamiltonian Monte Carlo draws until its chains agree on predictions, kept in
the store.

Every leapfrog step is a gradient of all training examples, in double precision, and Metropolis' correction makes the
draws exact but for the length of the chains. That is for networks and data whose gradient takes milliseconds.
``STORE/references/<digest>/`` holds the draws in rounds, and until the first is done the chains amid their warm-up, so
that an interrupted reference loses a hundred draws at most and all runs of one posterior share it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from raychains.chain import packable
from raychains.core.errors import UserError, require
from raychains.core.spec import digest_of
from raychains.core.threads import threads
from raychains.evaluation import hmc, mcmc_diagnostics
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.models import stacked
from raychains.store import Storage, codec
from raychains.tasks import Task
from raychains.tasks.base import PredictiveTask
from raychains.tasks.user_model import train

CHAINS = 8
ROUND = 100
"""Draws of each chain between two looks at whether they agree; after as many their state is kept, in the warm-up
too."""
MOST_ROUNDS = 40
WARMUP = 200
WARM_UP = "warm-up.safetensors"
"""The chains' state in the warm-up, for as long as there is no first round."""
SPREAD = 0.3
"""Chains start at draws of the prior, its standard deviation times this: those of the prior itself are far away."""
LEAST_ESS, MOST_R_HAT = 1_000.0, 1.01
"""Bounds for every probe: a bulk effective sample size of at least the first, and an R-hat below the second."""
PROBES = 100
"""Examples of the split whose predictions must agree, evenly spread."""
LARGEST = 500_000_000
"""Parameters times examples. Of 755,000 a gradient of eight chains takes 2.7 ms on a core, a draw a hundred gradients
and more."""
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class HmcReference:
    """Draws of a network's posterior at T = 1."""

    draws: Array
    """[chains, draws, numbers], float32: all parameters side by side."""
    shapes: dict[str, torch.Size]
    """Shapes of the parameters by name, in that order."""
    r_hat: float
    """The largest R-hat of all probes."""
    ess: float
    """The smallest bulk effective sample size of all probes."""
    acceptance: float
    step: float
    """Length of a leapfrog step in the prior's standard deviation."""
    blocks: Array
    """Predictions of the draws on the split, [all draws, examples, …], chain by chain."""


def refusal(task: Task) -> str | None:
    """Return why a task has no such reference; None where it has one."""
    if why := packable.task_refusal(task):
        return why
    assert isinstance(task, PredictiveTask)
    model = train(task.build_model(seed=0, lanes=1))
    if any(isinstance(layer, stacked.Dropout) for layer in stacked.layers(model)):
        return "its network has dropout"
    size = sum(p.numel() for p in model.parameters())
    if size * task.num_data > LARGEST:
        return f"{size:,} parameters times {task.num_data:,} examples are more than {LARGEST:,}, which take days"
    return None


def reference(
    root: Storage,
    task: PredictiveTask,
    weight_decay: float,
    split: str,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> HmcReference:
    """Return draws of p(θ | data) ∝ exp(−N·(mean loss + ½λ‖θ‖²)): those that the store has, and more until chains
    agree.

    They agree where, on `PROBES` examples of the split, R-hat of every predicted number is below 1.01 and its effective
    sample size at least 1,000. The metric is the prior's, N(0, 1/(Nλ)).

    Args:
        root: the store.
        task: see `refusal`.
        weight_decay: λ > 0.
        split: of the task, on which chains must agree.
        tell: called with (draws done, draws until the next look) of each chain, those of the warm-up among both.

    Raises:
        UserError: no prior, or chains that do not agree after `MOST_ROUNDS` rounds.
    """
    require(weight_decay > 0, "weight_decay", weight_decay, "be above 0 for an HMC reference: it is the prior")
    posterior = Posterior(task, CHAINS, weight_decay)
    identity = {"references": FORMAT, "task": task.spec().to_json(), "weight_decay": weight_decay, "chains": CHAINS}
    folder = f"references/{digest_of(identity)[:32]}"
    evaluation = task.splits()[split]
    rounds: list[hmc.Draws] = []
    blocks: list[Array] = []
    with threads(1):  # several wait for each other at every small layer
        while True:
            rounds.append(_round(root, folder, posterior, rounds, tell))
            blocks.append(np.stack([_predicted(evaluation, c, posterior.shapes) for c in rounds[-1].values]))
            probes = np.linspace(0, blocks[0].shape[2] - 1, PROBES).round().astype(int)
            seen = np.concatenate([b[:, :, np.unique(probes)] for b in blocks], axis=1).astype(np.float64)
            seen = seen.reshape(*seen.shape[:2], -1)
            seen = seen[:, :, seen.min((0, 1)) < seen.max((0, 1))]  # a known σ never moves
            r_hat, ess = float(mcmc_diagnostics.r_hat(seen).max()), float(mcmc_diagnostics.ess(seen).min())
            if r_hat < MOST_R_HAT and ess >= LEAST_ESS:
                break
            if len(rounds) == MOST_ROUNDS:
                raise UserError(
                    "reference must be a file for this network, got 'hmc': its chains do not agree after "
                    f"{MOST_ROUNDS * ROUND:,} draws (R-hat {r_hat:.3f}, effective sample size {ess:.0f})"
                )
    return HmcReference(
        draws=np.concatenate([r.values for r in rounds], axis=1).astype(np.float32),
        shapes=posterior.shapes,
        r_hat=r_hat,
        ess=ess,
        acceptance=float(np.mean([r.acceptance for r in rounds])),
        step=rounds[-1].step,
        blocks=np.concatenate(blocks, axis=1).reshape(-1, *blocks[0].shape[2:]),
    )


class Posterior:
    """U(θ) = N·(mean loss + ½λ‖θ‖²) and its gradient at several points at once, in double precision.

    Args:
        task: see `refusal`.
        rows: number of points.
        weight_decay: λ.
    """

    def __init__(self, task: PredictiveTask, rows: int, weight_decay: float) -> None:
        model, n = task.build_model(seed=0, lanes=1), task.num_data
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        self.size = sum(shape.numel() for shape in self.shapes.values())
        self.precision = n * weight_decay
        """The prior is N(0, 1/precision)."""
        inputs, targets = task.source.batch(torch.arange(n))
        like = torch.zeros(1, dtype=torch.float64)
        inputs = task.network_inputs(inputs, like.dtype)
        self._network = stacked.StackedNetwork(model, rows, n, inputs[:1], like)
        self._network.inputs.copy_(inputs.flatten(1).mT.expand(rows, -1, -1))
        self._targets = targets.expand(rows, *targets.shape)
        self._weights = torch.full((rows, n), 1 / n, dtype=like.dtype)
        self._likelihood, self._n = task.likelihood, n
        self._beside = stacked.beside(model)

    def energy(self, theta: Array) -> Array:
        """Return U, [rows], at points [rows, numbers]."""
        return self._both(theta)[0]

    def slope(self, theta: Array) -> Array:
        """Return ∇U, [rows, numbers], at points of that shape."""
        return self._both(theta)[1]

    def _both(self, theta: Array) -> tuple[Array, Array]:
        points = torch.from_numpy(np.ascontiguousarray(theta))
        slope = torch.zeros_like(points)
        own, gradients = stacked.views(points, self.shapes), stacked.views(slope, self.shapes)
        self._network.forward(own)
        of_loss = {name: own[name] for name in self._beside}
        losses, after, others = self._likelihood.gradients(
            of_loss, self._network.outputs.mT, self._targets, self._weights
        )
        self._network.output_gradients.copy_(after.mT)
        for name, gradient in others.items():
            gradients[name].copy_(gradient)
        self._network.backward(own, gradients)
        energy = self._n * losses + 0.5 * self.precision * points.square().sum(1)
        return energy.numpy(), (self._n * slope + self.precision * points).numpy()


def _round(
    root: Storage, folder: str, posterior: Posterior, before: list[hmc.Draws], tell: Callable[[int, int], None]
) -> hmc.Draws:
    """Return the next round's draws: those of the store, else made and kept there."""
    name = f"{folder}/{len(before):04d}.safetensors"
    try:
        tensors, about = codec.decode(root.read(name))
        return hmc.Draws(values=tensors["draws"].numpy(), acceptance=about["acceptance"], step=about["step"])
    except (FileNotFoundError, codec.Corrupt):  # made anew
        pass
    amid = f"{folder}/{WARM_UP}"
    done = WARMUP + ROUND * len(before) if before else 0
    found = hmc.sample(
        posterior.energy,
        posterior.slope,
        centre=np.zeros(posterior.size),
        covariance=np.full(posterior.size, 1 / posterior.precision),
        chains=CHAINS,
        draws=ROUND,
        warmup=WARMUP,
        seed=len(before),
        spread=SPREAD,
        goes_on=before[-1] if before else _warm_up(root, amid),
        keep=lambda state: _keep(root, amid, state),
        every=ROUND,
        tell=lambda now, total: tell(done + now, done + total),
    )
    values = torch.from_numpy(np.ascontiguousarray(found.values))
    root.publish(name, codec.encode({"draws": values}, {"acceptance": found.acceptance, "step": found.step}))
    if not before:
        root.delete(amid)
    return found


def _keep(root: Storage, name: str, state: hmc.WarmUp) -> None:
    tensors = {n: torch.from_numpy(np.ascontiguousarray(getattr(state, n))) for n in ("z", "energy", "slope")}
    about = {"draws": state.draws, "tuning": state.tuning, "generator": state.generator}
    root.publish(name, codec.encode(tensors, about))


def _warm_up(root: Storage, name: str) -> hmc.WarmUp | None:
    """Return the state that an interrupted warm-up left; None where there is none."""
    try:
        tensors, about = codec.decode(root.read(name))
    except (FileNotFoundError, codec.Corrupt):
        return None
    arrays = {n: t.numpy() for n, t in tensors.items()}
    return hmc.WarmUp(**arrays, draws=about["draws"], tuning=about["tuning"], generator=about["generator"])


def _predicted(evaluation: Evaluation, chain: Array, shapes: dict[str, torch.Size]) -> Array:
    """Return the predictions of each draw of a chain [draws, numbers], [draws, examples, …]."""
    named = stacked.views(torch.from_numpy(chain.astype(np.float32)), shapes)
    draws = ({name: values[i] for name, values in named.items()} for i in range(len(chain)))
    return np.stack([np.concatenate([evaluation.predict(d, s) for s in range(evaluation.shards)]) for d in draws])
