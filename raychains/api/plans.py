"""The plans of `compare`, `run`, `local` and `sweep`: their task is made, then planned.

Each function takes options, and the task where the user passed the object itself, and raises `UserError` for a setting
out of range.
"""

from __future__ import annotations

from raychains.core.config import Compare, Local, Run, Sweep
from raychains.planning import sweep_points
from raychains.planning.presets import arms, default_arms, local_arms
from raychains.planning.presets.arms import Planned
from raychains.tasks import Task
from raychains.tasks.from_options import deciding_metric, make_task, with_validation


def compare(options: Compare, task: Task | None = None) -> Planned:
    """Return the comparison of a preset's arms, or of the default ones."""
    if options.preset is not None:
        return arms.of_preset(options, task)
    return default_arms.compare(options, make_task(options, options.task, task))


def run(options: Run, task: Task | None = None) -> Planned:
    """Return the comparison of one arm."""
    return default_arms.run(options, make_task(options, options.task, task))


def local(options: Local, task: Task | None = None) -> Planned:
    """Return the comparison of local posteriors around checkpoints."""
    return local_arms.local(options, make_task(options, options.task, task))


def sweep(options: Sweep, task: Task | None = None) -> sweep_points.Planned:
    """Return the points of a sweep, on a task with a split val."""
    made, options, notes = with_validation(options, task)
    metric = deciding_metric(made, options.metric)
    return sweep_points.plan(options, made, metric, notes)
