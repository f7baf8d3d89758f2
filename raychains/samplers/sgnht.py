"""Stochastic-gradient Nosé–Hoover thermostat (Ding et al., 2014)."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch

from raychains.core.validation import one_of
from raychains.samplers.columns import Number, Tensors
from raychains.samplers.sampler import MethodPreset, Presets
from raychains.samplers.settings import setting
from raychains.samplers.thermostat import Thermostat


class SGNHT(Thermostat):
    """With f = z + a₀: p ← e^{−f}·p − ((1−e^{−f})/f)·√(N·lr)·g + √(T·a₀·(1−e^{−2f})/f)·ξ;
    θ ← θ + √(lr/N)·p; z ← z + κ·(p²/T − 1).

    Injected noise is constant and friction adapts: z, from 0, settles where friction takes away the heat of the
    gradient's noise (at lr·N·σ_g²/(2T) for sd σ_g of g's error), so that no estimate of that noise is needed. Friction
    may be negative for a while, f < 0; ATMC's never is.

    ``integrator="euler"`` is the paper's: p ← (1−f)·p − √(N·lr)·g + √(2·a₀·T)·ξ with a = f from a₀ as its ξ; its
    variance is too small by a factor 1 − f/2 or so. Derivation and the splitting: `raychains.samplers.thermostat`.
    The paper's own thermostat rate is κ = lr/N, far too slow at N = 50,000; the default here is ours.
    At T = 0 the thermostat is frozen and no noise is drawn: with z = 0 the step is then SGD with momentum e^{−a₀} and
    step size lr·(1−e^{−a₀})/a₀, by Euler momentum 1 − a₀ and lr.

    A thermostat removes noise that is the same everywhere and in every direction. The noise of a regression's
    minibatches is neither, and there a thermostat need not be nearer to the posterior than constant friction; its error
    falls with √lr.

    Target: exp(−U/T) as for `ATMC`, with the same dependence on a₀ and on ``thermostat_rate``.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Ding et al., "Bayesian sampling using stochastic gradient thermostats" (NeurIPS 2014); the splitting follows
    Heek & Kalchbrenner 2019, https://arxiv.org/abs/1908.03491, Sec. 3.
    """

    lr: float = setting("step size on the mean-loss scale; the time step is h = √(lr/N).")
    momentum: float = setting(
        "1 − a₀ in [0, 1); a₀ is the friction per step that goes with the injected noise.", default=0.9
    )
    thermostat: str = setting(
        '``"coordinate"``: one z per coordinate; ``"scalar"``: one z per parameter group (of densities also per lane), '
        "driven by the mean of p² (the paper's first form).",
        default="coordinate",
        check=partial(one_of, known=("coordinate", "scalar")),
    )
    integrator: str = setting('``"strang"`` (second order) or ``"euler"`` (the paper\'s).', default="strang")

    kind = "sgnht"
    presets: ClassVar[Presets] = {
        # As in ATMC's paper: a cyclical step size, noise throughout, each cycle's last sample is kept.
        "sgnht": MethodPreset(schedule="cyclical", label="SGNHT", settings={"samples_per_cycle": 1, "exploration": 0.0})
    }
    revision = 2

    def _friction(self, z: Tensors, a0: Number) -> tuple[Tensors, Tensors | Number]:
        return [x + a0 for x in z] if isinstance(a0, torch.Tensor) else torch._foreach_add(z, a0), a0
