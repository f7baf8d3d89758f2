"""MILE's tuner of MCLMC: step length h and trajectory length L from the energy errors, spread and autocorrelation of a
first stretch.

Phases of 80, 10 and 10 % of the tuning steps. In the first two h follows the energy's change ΔE per step, so that
⟨ΔE²⟩/d comes to v, which falls linearly from 5 times its last value, .1 in MILE, to that: with ξ = ΔE²/(d·v) + 1e-8 and
weight w = exp(−½(ln ξ/9)²),

    x ← γ·x + w·ξ/h⁶,  t ← γ·t + w,  h ← min((x/t)^(−1/6), cap),  γ = 99/101,

because ΔE² goes with h⁶. A step that gives non-finite numbers is undone, counts with ΔE = 0, and sets the cap to .8·h.
The second phase averages θ and θ² weighted by h: then L = √ΣVar. The third has a fixed h: then L = .4·h·mean(steps/ESS)
over coordinates, of which 200 are drawn, from at most 2,000 equally spaced steps; MILE takes 2,000 and 10,000, and ours
lie in checkpoints.

With a diagonal preconditioner the scales are the root variances of the second phase's first two thirds, with root mean
square 1; h goes on being adapted in the last third, from running sums that start anew. (blackjax sets L = √d in units
of the scales, h from scratch.)

Source: Sommer et al. 2025 (MILE), https://arxiv.org/abs/2502.06335, and its code; γ as in scikit-learn-contrib/bde.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core import gpus
from raychains.evaluation.mcmc_diagnostics import ess

FIRST = 5.0
"""Times the last aim is the first one, in MILE."""
EFFECTIVE = 100
"""Steps that the running sums remember."""
TRUST = 6 * 1.5
"""Standard deviation of ln ξ in its weight."""
SMALLER = 0.8
"""Times h is the cap after a step with non-finite numbers."""
COORDINATES, ROWS = 200, 2000
"""Most coordinates and steps from which autocorrelations are measured."""
LENGTH_FACTOR = 0.4
ADAPTED = ("h", "sum", "weight", "cap")
"""Names of h, x, t and the cap in the state."""

State = dict[str, Any]


@dataclass(frozen=True)
class Phases:
    """The tuning steps of each phase; steps count from 0."""

    total: int

    @property
    def first(self) -> int:
        return int(0.8 * self.total)

    @property
    def second(self) -> int:
        return int(0.1 * self.total)

    @property
    def third(self) -> int:
        return self.total - self.moving

    @property
    def scaled_from(self) -> int:
        """The step from which a preconditioner learnt in the second phase is in use."""
        return self.first + 2 * self.second // 3

    @property
    def moving(self) -> int:
        """Steps of the first two phases, in which h is adapted."""
        return self.first + self.second

    def aim(self, step: int, last: float) -> float:
        """Return v of a step, which falls to ``last``."""
        return last * (FIRST + (1 - FIRST) * min(1.0, step / max(1, self.moving)))

    @property
    def stride(self) -> int:
        """Steps between the rows of the third phase."""
        return -(-self.third // ROWS)


def begin(state: State, lanes: int, h: float, length: float, device: torch.device) -> None:
    """Put the tuner's numbers into a sampler's adaptive state: h and L, [lanes, 1] as all numbers of a lane."""

    def filled(value: float) -> Tensor:
        return torch.full((lanes, 1), value, dtype=torch.float64, device=device)

    state |= {"h": filled(h), "L": filled(length)}
    state |= {"sum": filled(0.0), "weight": filled(0.0), "cap": filled(float("inf"))}


def adapt(state: State, step: int, phases: Phases, theta: Tensor, ok: Tensor, diagonal: bool, seed: list[int]) -> None:
    """Take in one step of tuning, whose h is `adapted`.

    Args:
        state: of `begin`; changed in place.
        step: its number, from 0.
        theta: where it ended, [lanes, d]; where it began in lanes that were undone.
        ok: lanes whose numbers are finite, [lanes, 1]; the others are undone.
        diagonal: learn scales, ``state["scales"]`` [lanes, d].
        seed: of each lane's choice of coordinates.
    """
    moving = phases.moving
    if phases.first <= step < moving and not (diagonal and step >= phases.scaled_from):
        _average(state, theta, ok)
    if phases.second and diagonal and step == phases.scaled_from - 1:
        variances = _variances(state)
        if variances is not None:
            scales = (variances / variances.mean(dim=1, keepdim=True)).sqrt()
            whole = (scales > 0).all(dim=1, keepdim=True)  # a coordinate that did not move has no scale
            state["scales"] = torch.where(whole, scales, 1.0).to(theta.dtype)
            state["sum"], state["weight"] = torch.zeros_like(state["sum"]), torch.zeros_like(state["weight"])
    if phases.second and step == moving - 1:
        variances = _variances(state)
        if variances is not None:
            spread = variances.sum(dim=1, keepdim=True).sqrt()
            state["L"] = torch.where(spread > 0, spread, state["L"])
        for name in ("mean", "square", "averaged"):
            state.pop(name, None)
    if step >= moving:
        _measure(state, step - moving, phases, theta, seed)


def adapted(numbers: Sequence[Tensor], aim: float | Tensor, d: int, change: Tensor, ok: Tensor) -> list[Tensor]:
    """Return the `ADAPTED` numbers, [lanes, 1] each, after an energy change ΔE, [lanes], in ``d`` dimensions.

    ``aim`` is v. Lanes that are not ``ok``, [lanes, 1], were undone.
    """
    h, total, weights, cap = numbers
    xi = torch.where(ok, change[:, None], 0.0).double().square() / (d * aim) + 1e-8
    weight = torch.exp(-0.5 * (torch.log(xi) / TRUST).square())
    decay = (EFFECTIVE - 1) / (EFFECTIVE + 1)
    total = decay * total + weight * xi / _power(h, 6)
    weights = decay * weights + weight
    cap = torch.where(ok, cap, SMALLER * h)
    return [torch.minimum(_power(total / weights, -1 / 6), cap), total, weights, cap]


def _power(values: Tensor, exponent: float) -> Tensor:
    """Return powers that are the same to the bit for any number of lanes: a CPU rounds those of whole vectors
    otherwise."""
    one_by_one = values.is_cpu and len(values) > 1
    return torch.cat([value**exponent for value in values.split(1)]) if one_by_one else values**exponent


def _average(state: State, theta: Tensor, ok: Tensor) -> None:
    """Running means of θ and θ² with the weight h; a lane that was undone counts nothing."""
    weight = torch.where(ok, state["h"], 0.0)
    wide = theta.double()
    if "mean" not in state:
        state["mean"], state["square"] = torch.zeros_like(wide), torch.zeros_like(wide)
        state["averaged"] = torch.zeros_like(weight)
    state["averaged"] = state["averaged"] + weight
    share = torch.where(ok, weight / state["averaged"], 0.0)
    state["mean"] = torch.lerp(state["mean"], wide, share.expand_as(wide))
    state["square"] = torch.lerp(state["square"], wide.square(), share.expand_as(wide))


def _variances(state: State) -> Tensor | None:
    """Return the variances of the averaged steps, [lanes, d]; None before there are any."""
    return (state["square"] - state["mean"].square()).clamp_min(0.0) if "mean" in state else None


def _measure(state: State, place: int, phases: Phases, theta: Tensor, seed: list[int]) -> None:
    """Keep a row of the third phase; after the last one set L by autocorrelations."""
    if "rows" not in state:
        generators = [torch.Generator().manual_seed(one % 2**63) for one in seed]
        chosen = torch.stack([torch.randperm(theta.shape[1], generator=g)[:COORDINATES] for g in generators])
        state["coordinates"] = chosen.to(theta.device)
        rows = -(-phases.third // phases.stride)
        state["rows"] = theta.new_zeros((len(theta), rows, chosen.shape[1]))
    if place % phases.stride == 0:
        state["rows"][:, place // phases.stride] = theta.gather(1, state["coordinates"])
    if place == phases.third - 1:
        steps_per = steps_per_effective(gpus.array(state["rows"].transpose(0, 1).double()), phases.third)
        found = LENGTH_FACTOR * state["h"] * torch.from_numpy(steps_per).to(theta.device)[:, None]
        state["L"] = torch.where(torch.isfinite(found) & (found > 0), found, state["L"])
        del state["rows"], state["coordinates"]


def steps_per_effective(rows: np.ndarray, steps: int) -> np.ndarray:
    """Return the mean over coordinates of steps/ESS of each lane, [lanes], from ``rows`` [rows, lanes, coordinates]."""
    return np.array([np.mean(steps / ess(rows[None, :, lane], "mean")) for lane in range(rows.shape[1])])
