"""Entropy-MCMC (Li & Zhang, 2024): a guiding copy of the parameters, drawn to flat regions, pulls them along."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.sample import THETA
from raychains.core.validation import at_least_0, one_of, positive
from raychains.samplers.base import MethodPreset, Number, Params, Presets, add_, arguments, scale_, scaled, wide
from raychains.samplers.velocity import VelocitySampler

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

    Target: exp(−[U(θ) + ‖θ−θₐ‖²/(2η)]/T) as lr → 0 (λₐ = 0). The marginal of θ is the original posterior exp(−U/T);
    only θₐ is drawn to flat regions: its marginal is that posterior smoothed by N(0, TηI).

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: step size on the mean-loss scale.
        eta: η > 0, variance of θₐ around θ at T = 1; small pulls hard.
        momentum: m in [0, 1); 0 is SGLD for the pair.
        num_data: N, the number of training data.
        temperature: T; 1 samples the posterior, 0 follows its gradient.
        weight_decay: strength λ of a Gaussian prior N(0, 1/(Nλ)) on θ.
        anchor_decay: λₐ, the same for θₐ.
        update: ``joint`` or ``gibbs``.
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Li & Zhang 2024 (Entropy-MCMC), Eq. 4, 5 and 11; A.1 and A.2 for N and T; A.3 for Gibbs.
    """

    kind = "emcmc"
    presets: ClassVar[Presets] = {
        # The authors' code: noise always on, θ and θₐ of the last two epochs of each cycle.
        "emcmc": MethodPreset(
            schedule="cyclical", label="Entropy-MCMC", settings={"samples_per_cycle": 2, "exploration": 0.0}
        )
    }
    revision = 2
    statistics_fit = False
    elementwise = VelocitySampler.elementwise | {"eta", "anchor_decay"}
    noises = 2

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        eta: float,
        momentum: float = 0.0,
        num_data: int,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        anchor_decay: float = 0.0,
        update: str = "joint",
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        positive("eta", group["eta"])
        at_least_0("anchor_decay", group["anchor_decay"])
        one_of("update", group["update"], UPDATES)

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> dict[str, float]:
        lr, eta, decay = group["lr"], group["eta"], group["anchor_decay"]
        numbers = {**super().coefficients(group, update), "pull": 1 / (eta * self.num_data)}
        if group["update"] == "gibbs":
            shrink = 1 / (1 + eta * self.num_data * decay)
            return numbers | {"shrink": shrink, "anchor_noise": math.sqrt(group["temperature"] * eta * shrink)}
        return numbers | {"anchor_step": lr} | ({"anchor_decay": -decay} if decay != 0 else {})

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        velocities = {"velocity": 0.0, "anchor_velocity": 0.0} if group["momentum"] != 0 else {}
        return {**velocities, ANCHOR: None}

    @classmethod
    def updates_together(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("update", "joint") == "joint"

    def apply(
        self, group: Mapping[str, Any], numbers: Mapping[str, Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        anchors = [self._anchor(p) for p in params]
        # (θ − θₐ)/(ηN), the pull between the two, of which both see the old values.
        pulls = scaled(torch._foreach_sub(params, anchors), numbers["pull"])  # type: ignore[arg-type]
        super().apply(group, numbers, params, torch._foreach_add(grads, pulls))  # type: ignore[arg-type]
        if "shrink" in numbers:  # θₐ from its conditional given the new θ
            torch._foreach_copy_(anchors, params)
            scale_(anchors, numbers["shrink"])
            self.add_noise(anchors, numbers["anchor_noise"])
            return
        velocities = pulls
        if "anchor_decay" in numbers:
            add_(pulls, anchors, numbers["anchor_decay"])
        if "momentum" in numbers:
            velocities = [self.state_of(p, "anchor_velocity") for p in params]
            scale_(velocities, numbers["momentum"])
            add_(velocities, pulls, numbers["anchor_step"])
        else:
            scale_(velocities, numbers["anchor_step"])
        self.add_noise(velocities, numbers["noise"])
        torch._foreach_add_(anchors, velocities)

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        self.apply(group, self.coefficients(group), params, grads)

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
