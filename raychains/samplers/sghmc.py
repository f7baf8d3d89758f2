"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin, 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from raychains.core.errors import require
from raychains.core.validation import is_number
from raychains.samplers.base import MethodPreset, Params, Presets, arguments
from raychains.samplers.velocity import VelocitySampler


class SGHMC(VelocitySampler):
    """v ← m·v − lr·g + √(2(1−m−γ̂)·lr·T/N)·ξ;  θ ← θ + v.

    The friction of the papers is a = 1 − ``momentum``. The minibatch gradient brings noise of its own: γ̂ is the share
    of the friction that this noise feeds already, and that much less is injected. If each coordinate of the mean-loss
    gradient has an error of standard deviation σ, then γ̂ = lr·N·σ²/(2T) makes the total noise what it would be with
    exact gradients. That value goes with lr/T and γ̂ is constant: under a schedule choose it for the sampling steps.

    Target: exp(−U/T) as lr → 0; on a quadratic U the variance at a finite step is known exactly (`tests/samplers`
    checks it).

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: step size on the mean-loss scale.
        momentum: m in [0, 1); 0 is SGLD, bit for bit.
        num_data: N, the number of training data.
        noise_estimate: γ̂ in [0, 1 − momentum]; 0 injects as if gradients were exact.
        temperature: T; 1 samples the posterior, 0 is SGD with momentum.
        weight_decay: strength λ of a Gaussian prior N(0, 1/(Nλ)).
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Chen et al. 2014, https://arxiv.org/abs/1402.4102, Eq. 15 (γ̂ is its β̂); cSG-MCMC (ICLR 2020), Eq. 3.
    """

    kind = "sghmc"
    presets: ClassVar[Presets] = {
        "sghmc": MethodPreset(schedule="decreasing", label="SGHMC", cyclical_label="cSGHMC"),
        "csghmc": MethodPreset(schedule="cyclical", label="cSGHMC", fixed=True),
    }
    revision = 2
    omitted_defaults: ClassVar[Mapping[str, Any]] = {"noise_estimate": 0.0}

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        momentum: float,
        num_data: int,
        noise_estimate: float = 0.0,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        estimate, friction = group["noise_estimate"], 1 - group["momentum"]
        allowed = f"lie in [0, {friction:.6g}]: at most the friction 1 − momentum"
        require(is_number(estimate) and 0 <= estimate <= friction + 1e-12, "noise_estimate", estimate, allowed)
