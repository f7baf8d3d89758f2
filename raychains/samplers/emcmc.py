"""Entropy-MCMC (Li & Zhang, 2024): a guiding copy of the parameters, drawn to flat regions, pulls them along."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.sample import THETA
from raychains.core.validation import at_least_0, one_of, positive
from raychains.samplers.columns import Number, add_, scale_, scaled
from raychains.samplers.sampler import MethodPreset, Presets, wide
from raychains.samplers.settings import setting
from raychains.samplers.sghmc import VelocitySampler

ANCHOR = "anchor"
"""The variable θₐ: its name among the draws and in the state."""
UPDATES = ("joint", "gibbs")


class EntropyMCMC(VelocitySampler):
    """θ ← θ − lr·[g + (θ−θₐ)/(ηN)] + √(2·lr·T/N)·ξ₁;  θₐ ← θₐ − lr·[λₐθₐ − (θ−θₐ)/(ηN)] + √(2·lr·T/N)·ξ₂.

    Both lines are one SGLD step on the potential U(θ) + ‖θ−θₐ‖²/(2η) + ½Nλₐ‖θₐ‖² of the pair, taken from its old
    values; dividing the gradient by N brings it to the mean-loss scale. With ``momentum`` each line is SGHMC's velocity
    form, v ← m·v − lr·[…] + √(2(1−m)·lr·T/N)·ξ. θₐ starts as a copy of θ, at θ's first step.

    The potential is quadratic in θₐ, so θₐ can also be drawn exactly given θ. Completing the square, its precision is
    (1/η + Nλₐ)/T and its mean solves (1/η + Nλₐ)·θₐ = θ/η: ``update="gibbs"`` steps θ given the old θₐ and then draws
    θₐ ~ N(θ/(1+ηNλₐ), Tη/(1+ηNλₐ)·I) given the new θ (the paper's A.3; it found joint updates to work better).

    Under joint updates a mode of curvature h (of the mean loss plus prior) is stable while lr times the largest
    eigenvalue of [[h + 1/(ηN), −1/(ηN)], [−1/(ηN), 1/(ηN) + λₐ]] is below 2 (below 2(1+m) with momentum); with λₐ = 0,
    lr·(h_max + 2/(ηN)) < 2 is enough. Near that limit the chain leaves sharp modes because of its step size.

    The authors' code has momentum 0, noise throughout and λₐ = λ; the paper's lemma needs λₐ = 0, the default here.
    In networks with BatchNorm the running statistics are θ's: re-estimate them before predicting with θₐ.

    Target: exp(−[U(θ) + ‖θ−θₐ‖²/(2η)]/T) as lr → 0 (λₐ = 0). The marginal of θ is the original posterior exp(−U/T).
    Only θₐ prefers flat regions: its marginal is the original posterior smoothed by N(0, TηI).

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Li & Zhang 2024 (Entropy-MCMC), Eq. 4, 5 and 11; A.1 and A.2 for N and T; A.3 for Gibbs.
    """

    temperature: float = setting("T; 1 samples the posterior, 0 follows its gradient.", default=1.0)
    weight_decay: float = setting("strength λ of a Gaussian prior N(0, 1/(Nλ)) on θ.", default=0.0)
    eta: float = setting(
        "η > 0, variance of θₐ around θ at T = 1; a small η pulls θ and θₐ together.", check=positive, column=True
    )
    momentum: float = setting("m in [0, 1); 0 is SGLD for the pair.", default=0.0)
    anchor_decay: float = setting("λₐ, the weight decay of θₐ.", default=0.0, check=at_least_0, column=True)
    update: str = setting(
        "``joint``: one step of θ and θₐ together; ``gibbs``: a step of θ, then a draw of θₐ given θ.",
        default="joint",
        check=partial(one_of, known=UPDATES),
    )

    kind = "emcmc"
    presets: ClassVar[Presets] = {
        # The authors' code: noise always on, θ and θₐ of the last two epochs of each cycle.
        "emcmc": MethodPreset(
            schedule="cyclical", label="Entropy-MCMC", settings={"samples_per_cycle": 2, "exploration": 0.0}
        )
    }
    revision = 2
    statistics_fit = False
    noises = 2

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> tuple[float, ...]:
        """Return those of θ's velocity and 1/(ηN); then lr and −λₐ, or for Gibbs 1/(1+ηNλₐ) and the draw's standard
        deviation."""
        eta, decay = group["eta"], group["anchor_decay"]
        numbers = (*super().coefficients(group, update), 1 / (eta * self.num_data))
        if group["update"] == "gibbs":
            shrink = 1 / (1 + eta * self.num_data * decay)
            return *numbers, shrink, math.sqrt(group["temperature"] * eta * shrink)
        return *numbers, group["lr"], -decay

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        velocities = {"velocity": 0.0, "anchor_velocity": 0.0} if group["momentum"] != 0 else {}
        return {**velocities, ANCHOR: None}

    @classmethod
    def updates_together(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("update", "joint") == "joint"

    def apply(
        self, group: Mapping[str, Any], numbers: Sequence[Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        std, momentum, *_, pull, scale, other = numbers
        anchors = [self._anchor(p) for p in params]
        # (θ − θₐ)/(ηN), the pull between the two, of which both see the old values.
        pulls = scaled(torch._foreach_sub(params, anchors), pull)  # type: ignore[arg-type]
        super().apply(group, numbers[:4], params, torch._foreach_add(grads, pulls))  # type: ignore[arg-type]
        if group["update"] == "gibbs":  # θₐ from its conditional given the new θ
            torch._foreach_copy_(anchors, params)
            scale_(anchors, scale)
            self.add_noise(anchors, other)
            return
        velocities = pulls
        if group["anchor_decay"] != 0:
            add_(pulls, anchors, other)
        if group["momentum"] != 0:
            velocities = [self.state_of(p, "anchor_velocity") for p in params]
            scale_(velocities, momentum)
            add_(velocities, pulls, scale)
        else:
            scale_(velocities, scale)
        self.add_noise(velocities, std)
        torch._foreach_add_(anchors, velocities)

    def _anchor(self, p: Tensor) -> Tensor:
        state = self.state[p]
        if ANCHOR not in state:
            state[ANCHOR] = p.detach().to(wide(p.dtype), copy=True)
        return state[ANCHOR]

    @classmethod
    def variables(cls, settings: Mapping[str, Any]) -> Mapping[str, int]:
        return {THETA: 1, ANCHOR: 1}

    def draws(self) -> Iterator[tuple[str, list[Tensor]]]:
        """Yield θ and then θₐ in θ's dtype; a parameter that was never stepped is its own anchor."""
        yield from super().draws()
        yield ANCHOR, [self.state.get(p, {}).get(ANCHOR, p).to(p.dtype) for p in self.parameters()]
