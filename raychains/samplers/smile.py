"""SMILE and pSMILE (2026): microcanonical Langevin on minibatches, whose noise turns u, with resets and its own step length."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.validation import fraction, is_number, one_of
from raychains.samplers.base import MethodPreset, Params, Presets, arguments
from raychains.samplers.isokinetic import Evaluate, Isokinetic, each_lane

LARGEST = 1e6
"""Entries of ∇log p are cut off there."""
RATE = 0.01
"""The rate of all running averages."""
SETTLED = 10
"""The step, from 1, from which |ΔE| is judged."""
FACTOR = 0.02
"""Share by which h shrinks or grows."""
SHORTEST, LONGEST = 1e-8, 10.0
"""h stays between them."""
LEAST_DEVIATION = 1e-7**0.5
LEAST_SHAPE = 0.1
"""Shapes of the gamma law below are taken as this: the cube is negative where one |ΔE| of several hundred times the usual makes
them .02, so that every step would be undone, and h would shrink, until it is forgotten."""


def gamma_quantile(q: float, mean: Tensor, deviation: Tensor) -> Tensor:
    """Return the q-quantile of the gamma law of a mean and standard deviation, by Wilson and Hilferty's cube.

    The variance is increased by 1e-6, as in the authors' code; the shape is at least `LEAST_SHAPE`, which it is not there.
    """
    variance = deviation.square() + 1e-6
    part = 1 / (9 * (mean.square() / variance).clamp_min(LEAST_SHAPE))
    return mean * (1 - part + NormalDist().inv_cdf(q) * part.sqrt()) ** 3


class SMILE(Isokinetic):
    """MCLMC's step without its refresh, on one minibatch a step; |ΔE| above its .99 quantile: θ ← the step's start, u ← 0;
    above the quantile 1 − 2a/3: h ← .98·h; below a/3: h ← 1.02·h.

    The noise of the gradients turns u, so that nothing is injected and no heat accumulates: |u| stays 1. The gradient that
    begins a step, and its log p, are of the minibatch before. ΔE = ΔK − Δlog p; before there is a log p, ΔK alone.
    Quantiles are of the gamma law with the running mean μ and standard deviation s of |ΔE| before the step:
    μ ← .99μ + .01|ΔE| (the first two are |ΔE| itself), s² ← .99s² + .01(|ΔE| − μ)², from step 5 divided by 1 − .5^(t−4)
    and stored so. |ΔE| is judged from step 10 on. Shapes of the law below .1 are taken as .1, unlike the authors: one large |ΔE| made
    their quantile negative, and chains stood still. After a reset the next gradient makes u = ∇log p/‖∇log p‖; |ΔE|, gradient and log p
    stay the rejected point's. Entries of ∇log p are cut off at ±1e6, and 0 where they are NaN, as in the authors' code; there a
    NaN of ΔE never resets, here it always does, and counts for no average.

    ``lr`` is the first h, a length in θ as MCLMC's; with ``tail`` 0 h follows ``lr``. With exact gradients, that and no
    resets it is MCLMC without refresh, bit for bit. At T = 0 it is steepest descent by steps of length h.

    Target: none exactly; near exp(−U/T) for small h, as far as the noise of the gradients is the same in all directions.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: h, the length of a step in θ; where it begins, unless ``tail`` is 0.
        num_data: N, the number of training data.
        reset_quantile: quantile of |ΔE| above which a step is undone, in (0, 1); None never undoes one. .98 in the paper's configurations.
        tail: a in [0, 1), how much of |ΔE| is too large or too small for h; 0 keeps h at ``lr``. .1 in the paper's configurations.
        temperature: T; 1 samples the posterior, 0 is steepest descent.
        weight_decay: strength λ of a Gaussian prior N(0, 1/(Nλ)).
        seed: not used: the only noise is the minibatches'.
        lanes: independent chains stacked on axis 0 of every parameter, each with its own u, norms and h.

    Raises:
        UserError: a setting out of range, fewer than 2 coordinates, a complex parameter, a sparse gradient or a missing closure.

    Source: SMILE (ICML 2026), https://arxiv.org/abs/2602.06500; constants from the authors' code.
    """

    kind = "smile"
    revision = 2
    presets: ClassVar[Presets] = {"smile": MethodPreset(schedule="constant", label="SMILE", settings={"burn_in": 0})}

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        num_data: int,
        reset_quantile: float | None = 0.99,
        tail: float = 0.05,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        q = group["reset_quantile"]
        ok = q is None or (is_number(q) and 0 < q < 1)
        require(ok, "reset_quantile", q, "lie in (0, 1), or be None for no resets")
        fraction("tail", group["tail"])

    @property
    def wants_objective(self) -> bool:
        group = self.param_groups[0]
        return group["temperature"] > 0 and (group["tail"] > 0 or group["reset_quantile"] is not None)

    def _first(self, g: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(g), torch.zeros_like(g)  # the first half of the first step does not move

    def _step(self, theta: Tensor, u: Tensor, g: Tensor, at: Evaluate) -> tuple[Tensor, Tensor, Tensor]:
        group = self.param_groups[0]
        limit = LARGEST * group["temperature"] / self.num_data if group["temperature"] > 0 else float("inf")

        def cut(theta: Tensor) -> tuple[Any, Tensor]:
            loss, g = at(theta)
            return loss, torch.nan_to_num(g, nan=0.0, posinf=limit, neginf=-limit).clamp(-limit, limit)

        h = theta.new_full((), group["lr"])
        if group["tail"] > 0:
            h = self._adaptive.get("h", h.double().expand(self.lanes, 1))
        new, u, g, loss, gained = self._mclachlan(theta, u, g, cut, h, self._all_scales(theta))
        if self.wants_objective:
            loss = each_lane(loss, new)
            undone = self._judge(self._potential(new, loss), gained, h)
            self._keep_loss(loss, undone)
            new, u = torch.where(undone, theta, new), torch.where(undone, 0.0, u)
        else:  # the energy of the next step that is judged changes from there
            for name in ("potential", "loss"):
                self._adaptive.pop(name, None)
        self._learn_scales(g)
        return new, u, g

    def _judge(self, potential: Tensor, gained: Tensor, h: Tensor) -> Tensor:
        """Return the lanes whose step is undone, [lanes, 1]; h and the averages of |ΔE| are brought up to date."""
        group, state = self.param_groups[0], self._adaptive
        t = state.get("t", 1)
        if "potential" not in state and t >= SETTLED:  # behind a stage without noise: its change is not known
            state["potential"] = torch.where(torch.isfinite(potential), potential, 0.0)
            return torch.isfinite(potential + gained).logical_not()[:, None]
        old = state.get("potential", potential.new_zeros(self.lanes))
        change = self.num_data / group["temperature"] * (potential - old)
        energy = (gained + torch.where(old == 0, 0.0, change)).abs()[:, None]
        ok = torch.isfinite(energy)
        zero = torch.zeros_like(energy)
        mean, deviation = state.get("mean", zero), state.get("deviation", zero)
        undone = ~ok
        if t >= SETTLED:
            if group["reset_quantile"] is not None:
                undone = undone | (energy > gamma_quantile(group["reset_quantile"], mean, deviation))
            if group["tail"] > 0:
                shrinks = undone | (energy > gamma_quantile(1 - 2 * group["tail"] / 3, mean, deviation))
                grows = ~shrinks & (energy < gamma_quantile(group["tail"] / 3, mean, deviation))
                h = torch.where(shrinks, h * (1 - FACTOR), torch.where(grows, h * (1 + FACTOR), h))
        if group["tail"] > 0:
            h = torch.where(ok, h, h * (1 - FACTOR)) if t < SETTLED else h
            state["h"] = h.clamp(SHORTEST, LONGEST)
        new_mean = (energy if t < 3 else (1 - RATE) * mean + RATE * energy).clamp(1e-6, 1e6)
        variance = (1 - RATE) * deviation.square() * (t != 1) + RATE * (energy - new_mean).square()
        if t >= 5:
            variance = variance / (1 - 0.5 ** (t - 4))
        state["mean"] = torch.where(ok, new_mean, mean)
        state["deviation"] = torch.where(ok, variance.sqrt().clamp(1e-6, 1e7), deviation)
        state["potential"] = torch.where(torch.isfinite(potential), potential, old)
        state["t"] = t + 1
        return undone

    def _all_scales(self, theta: Tensor) -> Tensor | None:
        """Return how far each coordinate moves for one of scale 1."""
        return self._scales()

    def _learn_scales(self, g: Tensor) -> None:
        """Take in the gradient of the mean loss at the step's end."""


class PSMILE(SMILE):
    """SMILE with θ ← θ + c·h·u/σ and turns by g/σ; after each step m ← .99m + .01g, σ² ← .99σ² + .01(g − m)², g = ∇log p.

    σ, one for each coordinate from 1, is the standard deviation of the gradient's noise, so that noise is the same in all
    directions of σθ. It is used between .01 and 10⁴ and divided by its root mean square, so that h stays a length. m is the
    running average of g from 0, as the paper means it. In the authors' code m restarts at 1 at each step, which in effect is
    σ² ← .99σ² + .01(.99(g − 1))²: ``centre="one"`` has that.

    Target: none exactly; near exp(−U/T) for small h, and nearer than SMILE's where the gradients' noise differs by coordinate.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: h, the length of a step in θ; where it begins, unless ``tail`` is 0.
        num_data: N, the number of training data.
        reset_quantile: quantile of |ΔE| above which a step is undone, in (0, 1); None never undoes one. .98 in the paper's configurations.
        tail: a in [0, 1), how much of |ΔE| is too large or too small for h; 0 keeps h at ``lr``. .1 in the paper's configurations.
        centre: m, ``"average"`` of the gradients or ``"one"`` as in the authors' code.
        temperature: T; 1 samples the posterior, 0 is steepest descent.
        weight_decay: strength λ of a Gaussian prior N(0, 1/(Nλ)).
        seed: not used: the only noise is the minibatches'.
        lanes: independent chains stacked on axis 0 of every parameter, each with its own u, norms, h and σ.

    Raises:
        UserError: a setting out of range, fewer than 2 coordinates, a complex parameter, a sparse gradient or a missing closure.

    Source: SMILE (ICML 2026), https://arxiv.org/abs/2602.06500; constants from the authors' code.
    """

    kind = "psmile"
    presets: ClassVar[Presets] = {"psmile": MethodPreset(schedule="constant", label="pSMILE", settings={"burn_in": 0})}

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        num_data: int,
        reset_quantile: float | None = 0.99,
        tail: float = 0.05,
        centre: str = "average",
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        Isokinetic.__init__(self, **arguments(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        one_of("centre", group["centre"], ("average", "one"))

    def _all_scales(self, theta: Tensor) -> Tensor | None:
        sigma = self._adaptive.get("sigma")
        if sigma is None or sigma.shape != theta.shape:  # the first step, or parameters have joined
            sigma = torch.ones_like(theta)
        used = sigma.clamp(0.01, 1e4)
        scales = used.square().mean(dim=1, keepdim=True).sqrt() / used
        groups = self._scales()
        return scales if groups is None else scales * groups

    def _learn_scales(self, g: Tensor) -> None:
        group, state = self.param_groups[0], self._adaptive
        if group["temperature"] == 0:
            return
        pull = g * (-self.num_data / group["temperature"])
        if state.get("sigma", g).shape != g.shape or "sigma" not in state:
            state["sigma"], state["average"] = torch.ones_like(g), torch.zeros_like(g)
        if group["centre"] == "average":
            state["average"] = (1 - RATE) * state["average"] + RATE * pull
            away = pull - state["average"]
        else:
            away = (1 - RATE) * (pull - 1)
        variance = (1 - RATE) * state["sigma"].square() + RATE * away.square()
        state["sigma"] = variance.sqrt().clamp_min(LEAST_DEVIATION)
