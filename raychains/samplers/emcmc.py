"""Entropy-MCMC (Li & Zhang, 2024): a guiding copy of the parameters, drawn to flat regions, pulls them along."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.sample import THETA
from raychains.core.validation import at_least_0, one_of, positive
from raychains.samplers.base import MethodPreset, Params, Presets, arguments, wide
from raychains.samplers.velocity import VelocitySampler, group_noise_std

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

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        anchors = [self._anchor(p) for p in params]
        # (θ − θₐ)/(ηN), the pull between the two, of which both see the old values.
        pulls = torch._foreach_mul(torch._foreach_sub(params, anchors), 1 / (group["eta"] * self.num_data))
        super()._update(group, params, torch._foreach_add(grads, pulls))  # type: ignore[arg-type]
        if group["update"] == "gibbs":
            self._draw_anchors(group, params, anchors)
        else:
            self._step_anchors(group, params, anchors, pulls)  # type: ignore[arg-type]

    def _step_anchors(
        self, group: dict[str, Any], params: list[Tensor], anchors: list[Tensor], pulls: list[Tensor]
    ) -> None:
        """The second line of the update; ``pulls`` is used up."""
        lr, momentum = group["lr"], group["momentum"]
        if group["anchor_decay"] != 0:
            torch._foreach_add_(pulls, anchors, alpha=-group["anchor_decay"])
        velocities = pulls
        if momentum == 0:
            torch._foreach_mul_(velocities, lr)
        else:
            velocities = [self.state_of(p, "anchor_velocity") for p in params]
            torch._foreach_mul_(velocities, momentum)
            torch._foreach_add_(velocities, pulls, alpha=lr)
        self.add_noise(velocities, group_noise_std(group, self.num_data))
        torch._foreach_add_(anchors, velocities)

    def _draw_anchors(self, group: dict[str, Any], params: list[Tensor], anchors: list[Tensor]) -> None:
        """θₐ from its conditional given the new θ."""
        shrink = 1 / (1 + group["eta"] * self.num_data * group["anchor_decay"])
        torch._foreach_copy_(anchors, params)
        torch._foreach_mul_(anchors, shrink)
        self.add_noise(anchors, math.sqrt(group["temperature"] * group["eta"] * shrink))

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
