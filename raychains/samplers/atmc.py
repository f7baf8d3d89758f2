"""Adaptive thermostat Monte Carlo (Heek & Kalchbrenner, 2019)."""

from __future__ import annotations

from typing import ClassVar

import torch

from raychains.core.errors import require
from raychains.core.validation import is_number
from raychains.samplers.columns import Number, Tensors
from raychains.samplers.sampler import MethodPreset, Presets
from raychains.samplers.settings import setting
from raychains.samplers.thermostat import Thermostat


def _speed_limit(name: str, value: object) -> None:
    ok = value is None or (is_number(value) and value > 0)
    require(ok, name, value, "be a finite number above 0, or None for Gaussian momentum")


class ATMC(Thermostat):
    """With f = max(a₀, z) and b = max(0, a₀ − z): p ← e^{−f}·p − ((1−e^{−f})/f)·√(N·lr)·g + √(T·b·(1−e^{−2f})/f)·ξ;
    θ ← θ + √(lr/N)·p; z ← z + κ·(p²/T − 1).

    The noise of the gradient stands in for injected noise: as z, one per coordinate and from 0, rises towards
    lr·N·σ_g²/(2T) (σ_g the sd of g's error), less is injected, and friction stays at a₀ until the gradient's noise
    alone is too much. Friction is never negative, unlike SGNHT's.

    With a ``speed_limit`` c the momentum is relativistic, K(p) = c²·√(p²/c² + 1): with M = √(p²/c² + 1), f becomes f/M
    above, θ ← θ + h·p/M and z ← z + κ·((p/M)²/T − 1/M³), so that no coordinate moves by more than h·c in a step,
    h = √(lr/N), whatever its gradient. M is frozen while p moves, which makes the step first order in h. Speeds are
    about √T when c is far above that. A mass m would be redundant: the chain with (m, lr, c) is the one with unit mass,
    lr/m and c·√m (and friction by the step as before), so lr sets the typical and c the greatest move.

    Derivation and the splitting: `raychains.samplers.thermostat`. The paper's step sizes, mass and c are unreadable in
    the text that we have, hence unknown; the defaults are ours. It draws one sample at each end of a cyclical step
    size. At T = 0 the thermostat is frozen and no noise is drawn: while z ≤ a₀ the step is then SGD with momentum
    e^{−a₀} and step size lr·(1−e^{−a₀})/a₀, by Euler momentum 1 − a₀ and lr.

    A thermostat removes noise that is the same everywhere and in every direction. The noise of a regression's
    minibatches is neither, and there a thermostat need not be nearer to the posterior than constant friction; its error
    falls with √lr.

    Target: exp(−U/T) as lr, ``thermostat_rate`` and a₀ → 0, if the gradient's noise is Gaussian with constant
    variance. At a fixed a₀ the variance of θ is multiplied by (a₀/2)·coth(a₀/2) ≈ 1 + a₀²/12 under Strang's splitting
    (1.0008 at the default) and by 1 − a₀/2 under Euler's. With ``thermostat_rate`` 0 the gradient's noise adds to T as
    in SGHMC.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Heek & Kalchbrenner 2019, https://arxiv.org/abs/1908.03491, Sec. 2.4 and 3; relativistic momentum: Lu et al.
    2016, https://arxiv.org/abs/1609.04388.
    """

    lr: float = setting("step size on the mean-loss scale; the time step is h = √(lr/N).")
    momentum: float = setting("1 − a₀ in [0, 1); a₀ is the least friction per step.", default=0.9)
    speed_limit: float | None = setting(
        "c > 0, the limit of dθ/dt per coordinate, by relativistic momentum; None for Gaussian momentum.",
        default=None,
        check=_speed_limit,
    )

    kind = "atmc"
    presets: ClassVar[Presets] = {
        # The paper's: a cyclical step size, noise throughout, each cycle's last sample is kept.
        "atmc": MethodPreset(schedule="cyclical", label="ATMC", settings={"samples_per_cycle": 1, "exploration": 0.0})
    }
    revision = 2

    def _friction(self, z: Tensors, a0: Number) -> tuple[Tensors, Tensors | Number]:
        friction: Tensors
        if isinstance(a0, torch.Tensor):
            friction = [torch.maximum(x, a0) for x in z]
        else:
            friction = torch._foreach_clamp_min(z, a0)
        return friction, torch._foreach_sub(friction, z)
