"""Stochastic-gradient Langevin dynamics (Welling & Teh, 2011)."""

from __future__ import annotations

from typing import ClassVar

from raychains.samplers.base import MethodPreset, Params, Presets, arguments
from raychains.samplers.velocity import VelocitySampler


class SGLD(VelocitySampler):
    """θ ← θ − lr·g + √(2·lr·T/N)·ξ: SGHMC's code path without momentum.

    On U = λθ²/2 with N = 1 its variance is (T/λ)/(1 − lr·λ/2) exactly.

    Target: exp(−U/T) as lr → 0.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: step size on the mean-loss scale.
        num_data: N, the number of training data.
        temperature: T; 1 samples the posterior, 0 is SGD.
        weight_decay: strength λ of a Gaussian prior N(0, 1/(Nλ)).
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Welling & Teh 2011, Eq. 4; cSG-MCMC (ICLR 2020), Eq. 2.
    """

    kind = "sgld"
    presets: ClassVar[Presets] = {
        "sgld": MethodPreset(schedule="decreasing", label="SGLD", cyclical_label="cSGLD"),
        "csgld": MethodPreset(schedule="cyclical", label="cSGLD", fixed=True),
    }
    revision = 2

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        num_data: int,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(momentum=0.0, **arguments(locals()))
