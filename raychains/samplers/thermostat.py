"""The step that SGNHT and ATMC share: momentum whose friction a thermostat adapts, by Strang splitting or by Euler.

The dynamics leave exp(−(U + K)/T) invariant, for a kinetic energy K(p) that is a sum over coordinates:

    dθ = ∇K dt
    dp = −∇U dt − (ζ + β(ζ))·∇K dt + √(2·β(ζ)·T) dW
    dζ = ((∇K)² − T·∇²K)/m_ζ dt

because friction − β = ζ. Noise of the gradient heats p, which raises ζ until its friction takes the heat away again:
with sd s of ∇U's error, ζ ~ N(B/T, T/m_ζ), B = h·s²/2, and θ keeps its law whatever s is.

In torch terms, with g = ∇loss + weight_decay·θ, so that ∇U = N·g, the time step is h = √(lr/N), and h·∇U = √(N·lr)·g.
State per coordinate is p, of unit mass (not v = h·p, which a changing lr would heat), and z = h·ζ, both from 0.
Per step, friction is f = h·(ζ + β), injected share is h·β, a₀ = h·D = 1 − ``momentum`` is the constant in β, and z
moves by κ·((∇K)²/T − ∇²K) with κ = h²·T/m_ζ = lr·T/(N·m_ζ). Without gradient noise z ~ N(0, κ).

Kinetic energy is Gaussian, K = p²/2, or, with a speed limit c, symmetric-hyperbolic, K = c²·√(p²/c² + 1): with
M(p) = √(p²/c² + 1), ∇K = p/M < c and ∇²K = 1/M³.

Strang: A moves θ and z with p fixed, B is the exact Ornstein–Uhlenbeck step of p with θ, z and M fixed (rate f/M):

    B: p ← e^{−f/M}·p − ((1−e^{−f/M})·M/f)·√(N·lr)·g + √(T·hβ·M·(1−e^{−2f/M})/f)·ξ
    A: θ ← θ + h·∇K;  z ← z + κ·((∇K)²/T − ∇²K)

A step A(h/2) B(h) A(h/2) ends where the next one begins with A(h/2), and the gradient is needed between the two: an
optimizer's step is therefore B(h) and a whole A(h), and parameters between steps are those at which B acts. For a
constant lr this is the same chain. While lr changes, the whole A takes h of its own step where the halves would take
the mean with the next; that moves the law of θ by O(h·Δh), Δh the change of h in one step.
Euler: e^{−f/M} becomes 1 − f/M and both factors their limits for f → 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.validation import is_number, one_of
from raychains.samplers.columns import Number, Tensors, add_, addcmul_, plus, positive_number, scale_
from raychains.samplers.sampler import Sampler, coordinates, lane_sums, mean_of, spread, squares, wide
from raychains.samplers.settings import setting
from raychains.schedules.schedule import LARGEST_LR

TINY = 1e-36
"""Stands for a friction of 0, at which the coefficients of B have a limit but 0/0 has none; no other f/M is so small
that it shows."""


def _rate(name: str, value: object) -> None:
    allowed = f"lie in [0, {LARGEST_LR:g}]: 0 freezes the thermostat"
    require(is_number(value) and 0 <= value <= LARGEST_LR, name, value, allowed)


class Thermostat(Sampler):
    """Base of the samplers with thermostats; a leaf says how friction and injected noise follow from z."""

    weight_decay: float = setting("strength λ of a Gaussian prior N(0, 1/(Nλ)).", default=0.0, column=True)
    momentum: float = setting("1 − a₀ in [0, 1).", default=0.9, column=True)
    thermostat_rate: float = setting(
        "κ ≥ 0, the change of z per step and unit of (p²/T − 1); 0 freezes the thermostat.",
        default=1e-3,
        check=_rate,
        column=True,
    )
    integrator: str = setting(
        '``"strang"`` (second order for Gaussian momentum) or ``"euler"``.',
        default="strang",
        check=partial(one_of, known=("strang", "euler")),
    )

    @abstractmethod
    def _friction(self, z: Tensors, a0: Number) -> tuple[Tensors, Tensors | Number]:
        """Return friction f and injected share hβ per step, f − hβ = z."""

    @classmethod
    def updates_together(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("thermostat", "coordinate") == "coordinate"

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> tuple[float, ...]:
        """Return √T, h, −√(N·lr), a₀, λ, κ and κ/T; the last two are 0 at T = 0."""
        lr, temperature, rate = group["lr"], group["temperature"], group["thermostat_rate"]
        rates = (rate, rate / temperature) if temperature > 0 else (0.0, 0.0)
        forces = -math.sqrt(self.num_data * lr), 1 - group["momentum"], group["weight_decay"]
        return math.sqrt(temperature), math.sqrt(lr / self.num_data), *forces, *rates

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"momentum": 0.0, "thermostat": 0.0}

    def apply(
        self, group: Mapping[str, Any], numbers: Sequence[Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        _, time, *_, rate, _ = numbers
        momenta = [self.state_of(p, "momentum") for p in params]
        self._kick(group, numbers, params, grads, momenta)
        masses = relativistic_masses(momenta, group.get("speed_limit"))
        speeds = momenta if masses is None else list(torch._foreach_div(momenta, masses))
        add_(params, speeds, time)
        if positive_number(rate):
            self._adapt(group, numbers, params, speeds, masses)

    def _kick(
        self,
        group: Mapping[str, Any],
        numbers: Sequence[Number],
        params: list[Tensor],
        grads: list[Tensor],
        momenta: list[Tensor],
    ) -> None:
        """B(h), or its Euler form: friction, force and noise on p."""
        noise, _, force, a0, decay, *_ = numbers
        heated = positive_number(noise)
        forces: list[Tensor] = [g.to(p.dtype) for g, p in zip(grads, momenta, strict=True)]
        if group["weight_decay"] != 0:
            forces = plus(forces, params, decay)
        friction, injected = self._friction(self._thermostats(group, params), a0)
        masses = relativistic_masses(momenta, group.get("speed_limit"))
        rates = friction if masses is None else torch._foreach_div(friction, masses)
        factors = exact if group["integrator"] == "strang" else first_order
        keep, response, spreading = factors(rates)
        if heated:
            if isinstance(injected, Tensor):
                scale_(list(spreading), injected)
            else:
                torch._foreach_mul_(spreading, injected)
            torch._foreach_sqrt_(spreading)
        if scalar(group):
            keep, response, spreading = ([spread(x[0], p) for p in params] for x in (keep, response, spreading))
        torch._foreach_mul_(momenta, keep)
        addcmul_(momenta, response, forces, force)
        if heated:
            addcmul_(momenta, spreading, self.noises_like(momenta), noise)

    def _adapt(
        self,
        group: Mapping[str, Any],
        numbers: Sequence[Number],
        params: list[Tensor],
        speeds: list[Tensor],
        masses: Tensors | None,
    ) -> None:
        """The thermostat's half of A(h): z ← z + κ·((∇K)²/T − ∇²K), or with its mean over a lane's coordinates."""
        z, (rate, heat) = self._thermostats(group, params), numbers[-2:]
        if scalar(group):
            sums = lane_sums(torch._foreach_mul(speeds, speeds), self.lanes)
            mean = sums.to(z[0].device) / coordinates(speeds, self.lanes)
            z[0].add_(mean / group["temperature"] - 1, alpha=group["thermostat_rate"])
            return
        addcmul_(z, speeds, speeds, heat)
        curvatures = None if masses is None else torch._foreach_pow(masses, -3)
        if isinstance(rate, Tensor):
            for number, x in enumerate(z):
                x.sub_(rate if curvatures is None else rate * curvatures[number])
        elif curvatures is None:
            torch._foreach_sub_(z, rate)
        else:
            torch._foreach_sub_(z, curvatures, alpha=rate)

    def _thermostats(self, group: Mapping[str, Any], params: list[Tensor]) -> list[Tensor]:
        """Return z of each parameter; the scalar one, [lanes], lies in the state of the group's first parameter."""
        if not scalar(group):
            return [self.state_of(p, "thermostat") for p in params]
        first = group["params"][0]
        state = self.state[first]
        if "thermostat" not in state:
            state["thermostat"] = torch.zeros(self.lanes, dtype=wide(first.dtype), device=first.device)
        return [state["thermostat"]]

    def kinetic(self) -> Tensor | None:
        """Return the mean of p², or with a speed limit of p²/M: the momentum between two steps is B's, which A leaves
        as it is."""
        sums, count = [], 0
        for group in self.param_groups:
            momenta = [p for q in group["params"] if (p := self.state.get(q, {}).get("momentum")) is not None]
            if momenta and group["temperature"] > 0:
                masses = relativistic_masses(momenta, group.get("speed_limit"))
                roots = momenta if masses is None else torch._foreach_div(momenta, torch._foreach_sqrt(masses))
                sums.append(squares(roots))
                count += sum(p.numel() for p in momenta)
        return mean_of(sums, count)

    def effective_noise_std(self) -> float:
        """Return the standard deviation of the noise that the next step injects into θ, where z = 0 and p is far below
        c."""
        group = self.param_groups[0]
        a0 = 1 - group["momentum"]
        variance = -math.expm1(-2 * a0) if group["integrator"] == "strang" else 2 * a0
        return math.sqrt(group["lr"] / self.num_data * group["temperature"] * variance)


def scalar(group: Mapping[str, Any]) -> bool:
    """Return whether all coordinates of a lane share one z."""
    return group.get("thermostat") == "scalar"


def relativistic_masses(momenta: list[Tensor], speed_limit: float | None) -> Tensors | None:
    """Return M = √(p²/c² + 1) by coordinate (hypot, so that no p overflows); none for Gaussian momentum."""
    if speed_limit is None:
        return None
    one = momenta[0].new_ones(())
    return [torch.hypot(x, one.to(x.device)) for x in torch._foreach_div(momenta, speed_limit)]


def exact(rates: Tensors) -> tuple[Tensors, Tensors, Tensors]:
    """Return e^{−x}, (1−e^{−x})/x and (1−e^{−2x})/x for each rate x = f/M of any sign; at x = 0 their limits 1, 1 and
    2."""
    minus = torch._foreach_neg(rates)
    torch._foreach_add_(minus, TINY)
    keep = torch._foreach_expm1(minus)
    response = torch._foreach_div(keep, minus)
    torch._foreach_add_(keep, 1)
    spreading = torch._foreach_add(keep, 1)
    torch._foreach_mul_(spreading, response)  # 1 − e^{−2x} = (1 − e^{−x})(1 + e^{−x})
    return keep, response, spreading


def first_order(rates: Tensors) -> tuple[Tensors, Tensors, Tensors]:
    """Return 1 − x, 1 and 2: Euler's factors for each rate x."""
    keep = torch._foreach_neg(rates)
    torch._foreach_add_(keep, 1)
    return keep, [torch.ones_like(x) for x in rates], [torch.full_like(x, 2) for x in rates]
