"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin, 2014)."""

from __future__ import annotations

from typing import ClassVar

from raychains.samplers.base import Params
from raychains.samplers.velocity import VelocitySampler


class SGHMC(VelocitySampler):
    """v ← m·v − lr·g + √(2(1−m)·lr·T/N)·ξ;  θ ← θ + v.

    Targets exp(−U/T) as lr → 0; on a quadratic U its variance at a finite step is known exactly
    (`tests/samplers` checks it). The friction of the papers is a = 1 − ``momentum``.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: step size on the mean-loss scale.
        momentum: m in [0, 1); 0 is SGLD, bit for bit.
        num_data: N, the number of training data.
        temperature: T; 1 samples the posterior, 0 is SGD with momentum.
        weight_decay: strength λ of a Gaussian prior N(0, 1/(Nλ)).
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Chen et al. 2014, https://arxiv.org/abs/1402.4102, Eq. 15; cSG-MCMC (ICLR 2020), Eq. 3.
    """

    kind: ClassVar[str] = "sghmc"

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        momentum: float,
        num_data: int,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, defaults, num_data=num_data, temperature=temperature, seed=seed, lanes=lanes)
