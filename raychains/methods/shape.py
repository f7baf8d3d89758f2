"""A method's schedule: its length in steps, and the fields that options, method and task leave to one another."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from raychains import schedules
from raychains.errors import UserError, require
from raychains.methods import settings
from raychains.methods.defaults import Defaults
from raychains.methods.names import Named
from raychains.options import Sampling
from raychains.schedules import Cyclical, Decreasing, Schedule
from raychains.schedules.straight import Straight


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long a chain is."""

    length: int
    """Epochs, or steps of a density, as a cost: with two gradients per step half as many are made."""
    gradients: int
    """Per step."""
    steps: int
    steps_per_epoch: int
    batch_size: int


def make_schedule(
    kind: str, options: Sampling, base: Defaults, method: Named, lengths: Lengths, *, lr: float, temperature: float
) -> Schedule:
    """The schedule of one method.

    Raises:
        UserError: a setting out of range, or β and a burn-in both.
    """
    own = method.plan if kind == method.schedule else {}
    if options.burn_in is not None and options.exploration is not None:
        raise UserError(
            f"burn_in must be left out beside exploration, got {options.burn_in}: both say how long no noise is"
        )
    apart = max(1, round(lengths.steps_per_epoch * (base.cycle_thinning if kind == "cyclical" else 1)))
    common: dict[str, Any] = {
        "steps": lengths.steps,
        "temperature": temperature,
        "thinning": options.thinning if options.thinning is not None else apart,
    }
    if options.temperature_ramp is not None:
        common["ramp"] = options.temperature_ramp
    given = settings.pick(settings.read("schedule_settings", options.schedule_settings), schedules.KINDS[kind])
    if kind == "cyclical":
        return _cyclical(options, base, own, lengths, {**common, "lr": lr, **given})
    return _straight(kind, options, base, lengths, lr, common, given)


def _cyclical(options: Sampling, base: Defaults, own: Any, lengths: Lengths, fields: dict[str, Any]) -> Cyclical:
    cycles = options.cycles if options.cycles is not None else own.get("cycles", base.cycles)
    exploration = options.exploration if options.exploration is not None else own.get("exploration", base.exploration)
    if options.burn_in is not None:
        exploration = _burn_in(options.burn_in, lengths) / math.ceil(lengths.steps / max(1, cycles))
    made = Cyclical(
        **{"cycles": cycles, "exploration": exploration, "samples_per_cycle": options.samples_per_cycle, **fields}
    )
    if made.samples_per_cycle is None and base.samples_per_cycle is not None:
        # The default gives way to a short sampling stage; what a person asks for does not.
        wanted = own.get("samples_per_cycle", base.samples_per_cycle)
        made = dataclasses.replace(made, samples_per_cycle=min(made.room, wanted))
    return made


def _straight(
    kind: str,
    options: Sampling,
    base: Defaults,
    lengths: Lengths,
    lr: float,
    common: dict[str, Any],
    given: dict[str, Any],
) -> Schedule:
    """Without cycles: the task's share without noise and its number of samples, whatever the shape of the step size."""
    how = base.decreasing
    fields = {"noise_from": how.get("noise_from", 0.0), **common}
    if options.burn_in is not None:
        fields["noise_from"] = Straight.noise_from_steps(_burn_in(options.burn_in, lengths), steps=lengths.steps)
    made: Any = schedules.KINDS[kind]
    if kind == "decreasing":
        fields["gamma"] = how["gamma"]
        if "decay" in how and "a" not in given:
            fields |= {"lr": lr, "final_lr": _final(options, lr / how["decay"])}
            made = Decreasing.between
        else:
            fields |= {"a": lr, "b": 0.0}
    else:
        fields["lr"] = lr
    if kind in ("linear", "exponential"):
        fields["final_lr"] = _final(options, lr / 100)
    if kind == "step":
        fields |= {"milestones": (0.5, 0.75), "factor": 0.1}
    schedule = made(**{**fields, **given})
    if "epochs_per_sample" in how and schedule.samples is None:
        wanted = round(lengths.length / lengths.gradients / how["epochs_per_sample"])
        schedule = dataclasses.replace(schedule, samples=max(1, min(schedule.room, wanted)))
    return schedule


def _final(options: Sampling, default: float) -> float:
    return default if options.final_lr is None else options.final_lr


def _burn_in(length: int, lengths: Lengths) -> int:
    """Steps without noise."""
    most = lengths.length
    ok = isinstance(length, int) and not isinstance(length, bool) and 0 <= length < most
    require(ok, "burn_in", length, f"be an integer in [0, {most - 1}]")
    return length * lengths.steps_per_epoch // lengths.gradients
