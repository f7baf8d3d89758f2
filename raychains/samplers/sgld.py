"""Stochastic-gradient Langevin dynamics (Welling & Teh, 2011)."""

from __future__ import annotations

from typing import ClassVar

from raychains.samplers.sampler import MethodPreset, Presets
from raychains.samplers.settings import setting
from raychains.samplers.sghmc import VelocitySampler


class SGLD(VelocitySampler):
    """θ ← θ − lr·g + √(2·lr·T/N)·ξ.

    On U = λθ²/2 with N = 1 its variance is (T/λ)/(1 − lr·λ/2) exactly.

    Target: exp(−U/T) as lr → 0.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Welling & Teh 2011, Eq. 4; cSG-MCMC (ICLR 2020), Eq. 2.
    """

    temperature: float = setting("T; 1 samples the posterior, 0 is SGD.", default=1.0)
    weight_decay: float = setting("strength λ of a Gaussian prior N(0, 1/(Nλ)).", default=0.0)
    momentum: float = setting(default=0.0, init=False)

    kind = "sgld"
    presets: ClassVar[Presets] = {
        "sgld": MethodPreset(schedule="decreasing", label="SGLD", cyclical_label="cSGLD"),
        "csgld": MethodPreset(schedule="cyclical", label="cSGLD", fixed=True),
    }
    revision = 2
