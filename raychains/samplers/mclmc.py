"""Microcanonical Langevin Monte Carlo (Robnik et al., 2022), unadjusted."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from raychains.core.errors import require
from raychains.core.validation import is_number
from raychains.samplers.base import MethodPreset, Params, Presets, arguments
from raychains.samplers.isokinetic import Evaluate, Isokinetic, refreshed, unit

LEAST_LENGTH = 15.0
"""L where none is given and √d is smaller, as in MILE."""


class MCLMC(Isokinetic):
    """u ← R(u); then with e = ∇log p/‖∇log p‖: u turns towards e by b·h, θ ← θ + ½h·u, u turns by (1−2b)·h,
    θ ← θ + ½h·u, u turns by b·h; u ← R(u); R(u) = normalise(u + νξ), ν² = (e^{h/L} − 1)/d.

    A step has the length ``lr`` = h in θ, whatever the gradient, N and T: it is *not* on the mean-loss scale. On a normal
    law in d dimensions √d times the narrowest standard deviation is a step with a bias of about one per cent; L is about √ΣVar. The turn (formula and derivation: `raychains.samplers.isokinetic`) conserves energy, the refresh R
    makes the chain ergodic. There is no correction: ΔE of a step is not 0, and the law's variances are too small by about
    .25·(⟨ΔE²⟩/d)^⅓ of themselves, those of narrow coordinates by several times that.

    It is made for full batches. With minibatches both gradients of a step are of one, the gradient that begins it of the last
    one, and their noise turns u as a refresh does, without heating; see `SMILE`.

    Groups with other lr move their coordinates by lr/(the first group's) times as much, as a diagonal preconditioner does;
    the target stays. At T = 0 nothing is refreshed, and u = −g/‖g‖: steepest descent by steps of length h.

    Target: exp(−U/T) as lr → 0, for exact gradients.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: h, the length of a step in θ.
        num_data: N, the number of training data.
        length: L > 0, the length of the path on which u forgets; None is max(√d, 15).
        temperature: T; 1 samples the posterior, 0 is steepest descent.
        weight_decay: strength λ of a Gaussian prior N(0, 1/(Nλ)).
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter, each with its own u and norms.

    Raises:
        UserError: a setting out of range, fewer than 2 coordinates, a complex parameter, a sparse gradient or a missing closure.

    Source: Robnik, De Luca, Silverstein & Seljak 2022, https://arxiv.org/abs/2212.08549; the refresh: Robnik & Seljak
    2023, https://arxiv.org/abs/2303.18221; as in blackjax.
    """

    kind = "mclmc"
    presets: ClassVar[Presets] = {"mclmc": MethodPreset(schedule="constant", label="MCLMC", settings={"burn_in": 0})}

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        num_data: int,
        length: float | None = None,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        length = group["length"]
        ok = length is None or (is_number(length) and length > 0)
        require(ok, "length", length, "be a finite number above 0, or None for max(√d, 15)")

    def _step(self, theta: Tensor, u: Tensor, g: Tensor, at: Evaluate) -> tuple[Tensor, Tensor, Tensor]:
        h, length = self._lengths(theta)
        u = self._refresh(u, h, length)
        theta, u, g, _, _ = self._mclachlan(theta, u, g, at, h, self._scales())
        return theta, self._refresh(u, h, length), g

    def _lengths(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and L."""
        group = self.param_groups[0]
        length = max(theta.shape[1] ** 0.5, LEAST_LENGTH) if group["length"] is None else group["length"]
        return theta.new_tensor(group["lr"]), theta.new_tensor(length)

    def _refresh(self, u: Tensor, h: Tensor, length: Tensor) -> Tensor:
        return refreshed(u, self.noise_like(u), h, length) if self.param_groups[0]["temperature"] > 0 else u

    def _first_direction(self, like: Tensor) -> Tensor:
        z = self.noise_like(like).clone()
        return unit(z, z)
