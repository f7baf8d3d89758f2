"""The schedule of a method's chains, from the options and the defaults of method and task."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from raychains import schedules
from raychains.core.errors import UserError, renamed, require
from raychains.core.user_code import is_path
from raychains.planning.method_settings import MethodSettings
from raychains.schedules import NonCyclical, Schedule

SEARCH_LIMIT = 1000
"""Epochs, or steps of a density, by which a chain that is too short for its cycles is tried longer."""


def schedule_of(s: MethodSettings, tune: int) -> Schedule:
    """Return the schedule; of its steps with noise the first ``tune`` tune the sampler, and their draws are not kept.

    Raises:
        UserError: a setting out of range, or cycles that the chain is too short for.
    """
    names = {"ramp": "temperature_ramp"} if s.options.temperature_ramp is not None else {}
    with renamed(names):
        made = _cyclical(s, tune) if s.schedule == "cyclical" else _non_cyclical(s, tune)
        return _tuned(made, tune)


def _common(s: MethodSettings, tune: int) -> dict[str, Any]:
    """Return the settings that all schedules have but their step size."""
    apart = max(1, round(s.lengths.steps_per_epoch * (s.base.cycle_thinning if s.schedule == "cyclical" else 1)))
    if s.method.draws is not None and not s.task.low_dimensional:
        apart = max(1, (s.lengths.steps - tune) // s.method.draws)
    fields: dict[str, Any] = {"steps": s.lengths.steps, "temperature": s.temperature}
    fields["thinning"] = s.options.thinning or apart
    if s.options.temperature_ramp is not None:
        fields["ramp"] = s.options.temperature_ramp
    return fields


def _tuned(made: Schedule, tune: int) -> Schedule:
    """Return the schedule with nothing kept of the ``tune`` steps with noise in which the sampler tunes itself.

    Raises:
        UserError: a schedule with cycles, or too few steps for draws behind them.
    """
    if not tune:
        return made
    if not isinstance(made, NonCyclical):
        raise UserError(
            f"schedule must be one without cycles for a sampler that tunes itself, got {made.kind}: give constant, or "
            "tune=0"
        )
    steps = made.burn_in + tune
    require(steps < made.steps, "tune", tune, f"leave some of the {made.steps} steps for draws")
    share = max(made.warm_up, NonCyclical.noise_from_steps(steps, steps=made.steps))
    left = dataclasses.replace(made, samples=None, warm_up=share)
    samples = None if made.samples is None else min(left.room, made.samples)
    return dataclasses.replace(left, samples=samples)


def _cyclical(s: MethodSettings, tune: int) -> Schedule:
    options, lengths, stages = s.options, s.lengths, s.stages
    exploration = stages.exploration
    if stages.burn_in is not None:
        exploration = lengths.burn_in(stages.burn_in) / math.ceil(lengths.steps / stages.cycles)
    chosen = {"cycles": stages.cycles, "exploration": exploration, "samples_per_cycle": options.samples_per_cycle}
    fields = {**chosen, **_common(s, tune), "lr": s.lr, **s.of_schedule}
    try:
        made = schedules.Cyclical(**fields)
    except UserError as error:
        asked = [options.cycles, options.exploration, stages.burn_in, *(chosen.keys() & s.of_schedule.keys())]
        if any(given is not None for given in asked) or not str(error).startswith(
            ("cycles must be at most", "exploration must leave")
        ):
            raise
        each = lengths.steps_per_epoch / lengths.gradients
        longer = range(lengths.length + 1, lengths.length + SEARCH_LIMIT)
        least = next((n for n in longer if _fits({**fields, "steps": int(n * each)})), None)
        if least is None:
            raise
        why = f"by default a chain has {stages.cycles} cycles, with noise in {1 - exploration:.0%} of each"
        raise UserError(f"{lengths.unit} must be at least {least}, got {lengths.length}: {why}") from None
    if made.samples_per_cycle is None and stages.samples_per_cycle is not None:
        # The default gives way to a short sampling stage; an option does not.
        made = dataclasses.replace(made, samples_per_cycle=min(made.room, stages.samples_per_cycle))
    return made


def _fits(fields: Mapping[str, Any]) -> bool:
    """Return whether there is a cyclical schedule with these settings."""
    try:
        schedules.Cyclical(**fields)
    except UserError:
        return False
    return True


def _non_cyclical(s: MethodSettings, tune: int) -> Schedule:
    """Return a schedule with the task's share without noise and its number of samples, whatever the shape of the step
    size."""
    kind, how, lengths = s.schedule, s.base.non_cyclical, s.lengths
    fields = {"noise_from": how.get("noise_from", 0.0), **_common(s, tune)}
    if s.stages.burn_in is not None:
        fields["noise_from"] = NonCyclical.noise_from_steps(lengths.burn_in(s.stages.burn_in), steps=lengths.steps)
    make, step_sizes = _step_sizes(s)
    fields |= step_sizes
    if is_path(kind):  # an own schedule need not have all of them
        fields = {n: value for n, value in fields.items() if n in {f.name for f in dataclasses.fields(make)}}
    schedule: Schedule = make(**{**fields, **s.of_schedule})
    if "epochs_per_sample" in how and isinstance(schedule, NonCyclical) and schedule.samples is None:
        epochs = lengths.length / lengths.gradients
        # The draws of a method that says how many are spread over its steps: all there is room for.
        samples = schedule.room if s.method.draws is not None else round(epochs / how["epochs_per_sample"])
        schedule = dataclasses.replace(schedule, samples=max(1, min(schedule.room, samples)))
    return schedule


def _step_sizes(s: MethodSettings) -> tuple[Any, dict[str, Any]]:
    """Return what makes the schedule, and how its step size begins and falls."""
    kind, final, how = s.schedule, s.options.final_lr, s.base.non_cyclical
    make: Any = schedules.KINDS[kind]
    lr: Any = s.lr
    if kind in ("linear", "exponential"):
        return make, {"lr": lr, "final_lr": final or lr / 100}
    if kind == "step":
        return make, {"lr": lr, "milestones": (0.5, 0.75), "factor": 0.1}
    if kind != "decreasing":
        return make, {"lr": lr}
    if ("decay" in how or final is not None) and not {"a", "b"} & s.of_schedule.keys():
        return make.between, {"gamma": how["gamma"], "lr": lr, "final_lr": final or lr / how.get("decay", 1.0)}
    return make, {"gamma": how["gamma"], "a": lr, "b": 0.0}
