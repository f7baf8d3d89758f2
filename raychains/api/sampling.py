"""`compare` and `run`: plan, sample, evaluate, report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from raychains.api import listening
from raychains.api.driving import drive, placement, publish
from raychains.api.result import Result
from raychains.data.root import rooted
from raychains.errors import Interrupted, UserError
from raychains.listeners import Listener, Listeners
from raychains.options import Compare, Run
from raychains.planning import Comparison, budget
from raychains.planning.listener import Planned
from raychains.resumed import planned_from
from raychains.store import Root, RunStore, opening, starts

if TYPE_CHECKING:
    from raychains.experiments.comparisons import Planned as PlannedComparison
    from raychains.orchestration.crew import Crew
    from raychains.tasks import Task


def compare(
    options: Compare | None = None,
    *,
    listener: Listener | Sequence[Listener] | None = None,
    crew: Crew | None = None,
    **settings: Any,
) -> Result:
    """Compare parallel with single chains; see `raychains.options.Compare` for the settings.

    ``task`` may be a task's name, its import path, or a `raychains.Task` itself; ``listener`` one `raychains.Listener` or
    several, which are told what happens and closed at the end; ``crew`` the actors to work with, which go on afterwards
    (`raychains.api.driving.crew`); default those of this call alone.

    Example: ``rc.compare(task="digits", epochs=40).table()``

    Raises:
        UserError: a setting out of range, or a name that another living driver runs.
        Interrupted: the person stopped the run; what was computed is kept.
    """
    from raychains.experiments import comparisons

    options, task = options_and_task(Compare, options, settings)
    with rooted(options.data_root):
        planned = planned_from(partial(comparisons.compare, task=task), options)
        with Listeners(listener) as listeners:
            return execute("compare", options, planned, listeners, task, crew)


def run(
    options: Run | None = None,
    *,
    listener: Listener | Sequence[Listener] | None = None,
    crew: Crew | None = None,
    **settings: Any,
) -> Result:
    """Sample one posterior; see `raychains.options.Run` for the settings. Task, listener, crew and errors as for `compare`."""
    from raychains.experiments import comparisons

    options, task = options_and_task(Run, options, settings)
    with rooted(options.data_root):
        planned = planned_from(partial(comparisons.run, task=task), options)
        with Listeners(listener) as listeners:
            return execute("run", options, planned, listeners, task, crew)


def options_and_task(kind: Callable[..., Any], given: Any, settings: Mapping[str, Any]) -> tuple[Any, Task | None]:
    """The options, with a task's name in them; and the task where the object itself was given."""
    try:
        made = given if given is not None else kind(**settings)
    except TypeError as error:
        raise UserError(f"settings: {error}") from None
    if isinstance(made.task, str):
        return made, None
    from raychains import tasks

    if not isinstance(made.task, tasks.Task):
        got = type(made.task).__name__
        raise UserError(f"task must be a name, an import path 'module:name' or a raychains.Task, got a {got}")
    task = tasks.give(made.task)
    return dataclasses.replace(made, task=tasks.name_of(task)), task


def execute(
    command: str,
    options: Compare | Run,
    planned: PlannedComparison,
    listener: Listeners,
    task: Task | None,
    crew: Crew | None = None,
    *,
    page: bool = True,
) -> Result:
    """Run what is planned, under the name and with the placement that the options say.

    Args:
        command: of the run's plan.
        options: whose settings of chains are in ``planned`` already.
        planned: the comparison.
        listener: told what happens.
        task: the object that the person gave, if it was one.
        crew: as for `compare`.
        page: whether the run's page is drawn.

    Raises:
        UserError, Interrupted, ChainsFailed: as `compare`.
    """
    from raychains.orchestration import luggage, session
    from raychains.orchestration.lease import Lease

    comparison = planned.comparison
    root = Root(options.store)
    placement(options)  # whatever is wrong is said before anything is written or started
    listening.check(options)
    session.look(options.address, object_store_memory=options.object_store_memory)
    if task is not None:
        luggage.check(task)
    folder = RunStore(root, options.name or comparison.run_name)
    if options.resume:
        _check_plan(folder, comparison)
    with Lease(root, folder.name, patient=options.resume) as lease:
        _check_name_is_free(folder, comparison, options.resume)
        finished = opening.finished(root, comparison.chains())
        listening.listen(listener, options, folder, lease.driver_id)
        listener.on(Planned(comparison=comparison, budget=budget(comparison, finished), notes=planned.notes))
        if not folder.exists():
            folder.write_plan({"command": command, "comparison": comparison.to_json(), "notes": planned.notes})
        if planned.start is not None:
            starts.publish(root, planned.start)
        outcome = drive(comparison, root, options, listener, lease, crew)
        if lease.lost:
            raise UserError(f"{lease.lost}; this driver stopped, its chains go on from their last checkpoints")
        if outcome.stopped:
            raise Interrupted(
                f"stopped with {len(outcome.seconds)} of {len(comparison.chains())} chains finished; the others go on "
                f"from their last checkpoints. To go on: the same command with --resume --name {folder.name}"
            )
        return publish(folder, comparison, outcome, options.data_root, page=page)


def _check_name_is_free(folder: RunStore, comparison: Comparison, resume: bool) -> None:
    if not folder.exists():
        return
    if not resume:
        raise UserError(
            f"name must be a new one, got {folder.name!r}: the run exists; continue it with --resume or choose another --name"
        )
    _check_plan(folder, comparison)


def _check_plan(folder: RunStore, comparison: Comparison) -> None:
    """Whether the run, if there is one, was planned as it is continued."""
    if not folder.exists():
        return
    planned = Comparison.from_json(folder.plan().get("comparison"))
    if planned.digest != comparison.digest:
        from raychains.tasks import identity

        if found := identity.own_differences(comparison.task_spec, planned.task_spec):
            raise UserError(f"resume: task {comparison.task!r} differs from that of run {folder.name!r}: {found}")
        raise UserError(
            f"resume: run {folder.name!r} was planned with other settings; repeat its command or choose another --name"
        )
