"""Microcanonical Langevin Monte Carlo (Robnik et al., 2022), unadjusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.errors import UserError, require
from raychains.core.validation import integer, is_number, one_of, positive
from raychains.samplers import mile
from raychains.samplers.isokinetic import Evaluate, Isokinetic, each_lane, refreshed, unit
from raychains.samplers.sampler import MethodPreset, Presets
from raychains.samplers.settings import setting

LEAST_LENGTH = 15.0
"""L where none is given and √d is smaller, as in MILE."""


def _length(name: str, value: object) -> None:
    ok = value is None or (is_number(value) and value > 0)
    require(ok, name, value, "be a finite number above 0, or None for max(√d, 15)")


class MCLMC(Isokinetic):
    """A step is R; D(b); θ ← θ + ½h·u; D(1−2b); θ ← θ + ½h·u; D(b); R, with h = ``lr`` and b = .1932. The refresh R is
    u ← normalise(u + νξ), ν² = (exp(h/L) − 1)/d, for d parameters and L = ``length``. The turn D(c) is u ←
    normalise((1−ζ)(1+ζ+(1−ζ)u·e)e + 2ζu), ζ = exp(−c·h·‖∇log p‖/(d−1)), e = ∇log p/‖∇log p‖.

    A step has the length ``lr`` = h in θ, whatever the gradient, N and T: it is *not* on the mean-loss scale. On a
    normal law in d dimensions √d times the narrowest standard deviation is a step with a bias of about one per cent; L
    is about √ΣVar. The turn (formula and derivation: `raychains.samplers.isokinetic`) conserves energy, the refresh R
    makes the chain ergodic. There is no correction: ΔE of a step is not 0, and the law's variances are too small by
    about .25·(⟨ΔE²⟩/d)^⅓ of themselves, those of narrow coordinates by several times that.

    It is made for full batches. With minibatches both gradients of a step are of one, the gradient that begins it of
    the last one, and their noise turns u as a refresh does, without heating.

    Groups with other lr move their coordinates by lr/(the first group's) times as much, as a diagonal preconditioner
    does; the target stays.

    With ``tune`` steps h and L are found first, by MILE's rule (`raychains.samplers.mile`), and fixed then: ``lr`` is
    where h begins, later values of it are not read, and draws of these steps are not to be kept. Tuning needs full
    batches: it compares values of the loss, with several lanes one for each. It waits for steps with T > 0. At T = 0
    nothing is refreshed, and u = −g/‖g‖: steepest descent by steps of length h.

    Target: exp(−U/T) as lr → 0, for exact gradients.

    Raises:
        UserError: a setting out of range, fewer than 2 coordinates, a complex parameter, a sparse gradient or a missing
            closure.

    Source: Robnik, De Luca, Silverstein & Seljak 2022, https://arxiv.org/abs/2212.08549; the refresh: Robnik & Seljak
    2023, https://arxiv.org/abs/2303.18221; as in blackjax.
    """

    lr: float = setting("h, the length of a step in θ.")
    temperature: float = setting("T; 1 samples the posterior, 0 is steepest descent.", default=1.0)
    lanes: int = setting(
        "independent chains stacked on axis 0 of every parameter, each with its own u and norms.", default=1
    )
    length: float | None = setting(
        "L > 0, the length of the path on which u forgets; None is max(√d, 15). Tuning starts from this value.",
        default=None,
        check=_length,
    )
    tune: int = setting(
        "number of steps that tune h and L; 0 leaves both as they are given.",
        default=0,
        check=partial(integer, least=0, most=2**53, why=": the steps that tune h and L"),
    )
    energy_error: float = setting(
        "⟨ΔE²⟩/d, the mean squared energy change per step that tuning aims at. .1, as in MILE, suits networks and "
        "biases the spread of narrow coordinates by 10 % and more; .0005, as in blackjax, by a few per cent.",
        default=0.1,
        check=positive,
    )
    preconditioner: str = setting(
        '``"none"``, or ``"diagonal"``: tuning learns a scale for each coordinate, too.',
        default="none",
        check=partial(one_of, known=("none", "diagonal")),
    )

    kind = "mclmc"
    compilable: ClassVar[Mapping[str, int]] = {"_whole_step": 2, "_judged": 0}
    presets: ClassVar[Presets] = {
        "mclmc": MethodPreset(schedule="constant", label="MCLMC", settings={"burn_in": 0}),
        # Densities: no warm start, and draws whose bias is a few per cent in narrow coordinates, as in blackjax.
        "tuned-mclmc": MethodPreset(
            schedule="constant",
            label="MCLMC, tuned",
            settings={"burn_in": 0, "sampler_settings": {"energy_error": 0.0005, "preconditioner": "diagonal"}},
            fixed=True,
            tuned=0.25,
        ),
        "mile": MethodPreset(
            schedule="constant",
            label="MILE",
            settings={"burn_in": 0, "init_from": "deep-ensemble"},
            tuned=0.5,
            full_batch=True,
            draws=100,
        ),
    }

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        if group["preconditioner"] == "diagonal" and not group["tune"]:
            raise UserError("preconditioner must be 'none' without tune, got 'diagonal': tuning learns its scales")

    @property
    def wants_objective(self) -> bool:
        return self._tuning()

    def _tuning(self) -> bool:
        """Return whether the next step tunes."""
        group = self.param_groups[0]
        return group["temperature"] > 0 and self._adaptive.get("made", 0) < group["tune"]

    def trajectory_length(self) -> Tensor | None:
        """Return L as it is tuned, the mean over lanes; None of a sampler that does not tune."""
        return self._adaptive["L"].mean() if "L" in self._adaptive else None

    def _step(self, theta: Tensor, u: Tensor, g: Tensor, at: Evaluate) -> tuple[Tensor, Tensor, Tensor]:
        if self._tuning():
            return self._tuned_step(theta, u, g, at)
        self._adaptive.pop("loss", None)  # from here on no step is undone
        theta, u, g, _, _ = self._whole_step(theta, u, g, at, *self._lengths(theta), self._all_scales())
        return theta, u, g

    def _whole_step(
        self, theta: Tensor, u: Tensor, g: Tensor, at: Evaluate, h: Tensor, length: Tensor, scales: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Any, Tensor]:
        """Return what `_mclachlan` does, between two refreshes."""
        u = self._refresh(u, h, length)
        theta, u, g, loss, gained = self._mclachlan(theta, u, g, at, h, scales)
        return theta, self._refresh(u, h, length), g, loss, gained

    def _tuned_step(self, theta: Tensor, u: Tensor, g: Tensor, at: Evaluate) -> tuple[Tensor, Tensor, Tensor]:
        group, state = self.param_groups[0], self._adaptive
        if "made" not in state:
            mile.begin(state, self.lanes, *self._given(theta.shape[1]), theta.device)
            state["loss"] = each_lane(at(theta)[0], theta)
            state |= {"made": 0, "potential": self._potential(theta, state["loss"])}
        phases, step, diagonal = mile.Phases(group["tune"]), state["made"], group["preconditioner"] == "diagonal"
        new = self._whole_step(theta, u, g, at, *self._lengths(theta), self._all_scales())
        if "loss" not in state:  # after a step at temperature 0, which does not tune
            state["loss"] = torch.full_like(state["potential"], math.nan)
        kept = state["potential"], state["loss"]
        numbers = [state[name] for name in mile.ADAPTED]
        (theta, u, g), ok, kept, numbers = self._judged(
            (theta, u, g), new, kept, numbers, phases.aim(step, group["energy_error"])
        )
        state |= zip(("potential", "loss"), kept, strict=True)
        if step < phases.moving:
            state |= zip(mile.ADAPTED, numbers, strict=True)
        mile.adapt(state, step, phases, theta, ok, diagonal, self._noise.seeds(self.lanes))
        state["made"] += 1
        if state["made"] == group["tune"]:
            for name in ("potential", "sum", "weight", "cap"):
                del state[name]
        return theta, u, g

    def _judged(
        self,
        old: tuple[Tensor, Tensor, Tensor],
        new: tuple[Tensor, Tensor, Tensor, Any, Tensor],
        kept: tuple[Tensor, Tensor],
        numbers: list[Tensor],
        aim: float | Tensor,
    ) -> tuple[list[Tensor], Tensor, tuple[Tensor, Tensor], list[Tensor]]:
        """Undo a step in lanes where its numbers are not finite, and adapt h to its energy change.

        Returns θ, u and g; the lanes that went on, [lanes, 1]; the potential and the loss, [lanes] each; the tuner's
        `mile.ADAPTED` numbers.
        """
        loss = each_lane(new[3], new[0])
        potential = self._potential(new[0], loss)
        change = new[4] + self.num_data / self.param_groups[0]["temperature"] * (potential - kept[0])
        ok = torch.isfinite(change)[:, None]
        for t in new[:3]:
            ok = ok & torch.isfinite(torch.linalg.vector_norm(t, math.inf, dim=1, keepdim=True))
        moved = [torch.where(ok, a, b) for a, b in zip(new[:3], old, strict=True)]
        kept = torch.where(ok[:, 0], potential, kept[0]), torch.where(ok[:, 0], loss, kept[1])
        return moved, ok, kept, mile.adapted(numbers, aim, new[0].shape[1], change, ok)

    def _lengths(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and L, as they are tuned or given."""
        if "h" in self._adaptive:
            return self._adaptive["h"].to(theta.dtype), self._adaptive["L"].to(theta.dtype)
        h, length = self._given(theta.shape[1])
        return theta.new_full((), h), theta.new_full((), length)

    def _given(self, d: int) -> tuple[float, float]:
        """Return the h and L that the settings give in d dimensions."""
        group = self.param_groups[0]
        return float(group["lr"]), max(d**0.5, LEAST_LENGTH) if group["length"] is None else float(group["length"])

    def _all_scales(self) -> Tensor | None:
        """Return the scales of the groups' lr times those that were learnt."""
        groups, learnt = self._scales(), self._adaptive.get("scales")
        if groups is None or learnt is None:
            return learnt if groups is None else groups
        return groups * learnt

    def _refresh(self, u: Tensor, h: Tensor, length: Tensor) -> Tensor:
        return refreshed(u, self.noise_like(u), h, length) if self.param_groups[0]["temperature"] > 0 else u

    def _first(self, g: Tensor) -> Tensor:
        z = self.noise_like(g)
        return unit(z, z)
