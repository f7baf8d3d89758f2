"""`compare` and `run`: plan, sample, evaluate, report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raychains import tasks
from raychains.api import plans
from raychains.api.drivers import backend_of, origin, planned_otherwise, publish
from raychains.api.keywords import Call, CompareKeywords, RunKeywords, accepts, reading
from raychains.api.result import Result
from raychains.api.run_context import RunContext, begun
from raychains.callbacks import CallbackList
from raychains.chain import proof
from raychains.core.config import Compare, Fit, Local, Run
from raychains.core.errors import UserError
from raychains.planning import Comparison, budget
from raychains.planning.events import Planned
from raychains.store import RunStore, Storage, finished_chains, initial_states
from raychains.tasks import Task
from raychains.tasks.splits import check_evaluated

if TYPE_CHECKING:
    from raychains.orchestration.cluster.workers import Workers
    from raychains.planning.presets.arms import Planned as PlannedComparison


@accepts(Compare, CompareKeywords)
def compare(call: Call) -> Result:
    """Compare parallel with single chains at equal cost.

    Example: ``rc.compare(task="digits", epochs=40).table()``

    Raises:
        UserError: a setting out of range, or a name that another living driver runs.
        Interrupted: the user stopped the run; what was computed is kept.
        ChainsFailed: some chains were given up; everything else is written.
    """
    return _run("compare", call)


@accepts(Run, RunKeywords)
def run(call: Call) -> Result:
    """Sample one posterior: one task, one sampler, one schedule, several chains.

    Example: ``rc.run(task="digits", sampler="csghmc", chains=2, epochs=40).table()``

    Raises:
        UserError: a setting out of range, or a name that another living driver runs.
        Interrupted: the user stopped the run; what was computed is kept.
        ChainsFailed: some chains were given up; everything else is written.
    """
    return _run("run", call)


def sample(task: Task, workers: Workers | None = None, **settings: Any) -> Result:
    """Sample as `run` does, without progress, evaluation and page.

    Args:
        task: the task itself.
        workers: where chains run; default on Ray.
        settings: options of `run`.

    Raises:
        UserError, Interrupted, ChainsFailed: as `run`.
    """
    with reading(Run, None, {"progress": False, **settings, "task": task}) as call:
        return _run("run", call, workers, page=False, evaluate=False)


def _run(command: str, call: Call, workers: Workers | None = None, **settings: Any) -> Result:
    workers = workers if workers is not None else backend_of(call.options, call.worker_pool)
    planned = getattr(plans, command)(call.options, call.task)
    return execute(command, call.options, planned, call.callback, call.task, workers, **settings)


def execute(
    command: str,
    options: Compare | Run | Local | Fit,
    planned: PlannedComparison,
    callback: CallbackList,
    task: Task | None,
    workers: Workers | None = None,
    *,
    page: bool = True,
    evaluate: bool = True,
    measures: Sequence[str] = (),
) -> Result:
    """Run a planned comparison, under the name and with the resources that the options say.

    Args:
        options: whose settings of chains are in ``planned`` already.
        workers: where actors run: a ``worker_pool``, or workers in this process; default on Ray.
        page: whether the run's page is drawn.
        evaluate: whether the arms are evaluated.
        measures: names of measures whose tables are part of the results.

    Raises:
        UserError, Interrupted, ChainsFailed: as `compare`.
    """
    from raychains.inference.run_data import planned_metrics
    from raychains.orchestration.run.launch import run_chains

    root = Storage(options.store)
    comparison = planned.comparison
    folder = RunStore(root, options.name or comparison.run_name)
    context = RunContext(options, folder, callback, task, workers)
    found = proof.Proof(notes=[])
    if not folder.exists() or not begun(folder, comparison.chains()):  # a plan alone proves nothing
        check_evaluated(tasks.build(comparison.task_spec).splits(), comparison.split, comparison.task)
        found = proof.prove(next(iter(comparison.chains().values())), planned.start)
    notes = [*planned.notes, *found.notes]
    with context.leased(lambda: _check_plan(folder, comparison)) as lease:
        finished = finished_chains(root, comparison.chains())
        plan = dict(context.plan)
        if not plan:
            plan = {"command": command, "comparison": comparison.to_json(), "notes": notes}
            plan |= {**origin(command, options), "metrics": planned_metrics(comparison)}
        if options.bins is not None:  # by which a later evaluation makes the same numbers
            plan["bins"] = options.bins
        if plan != context.plan:
            folder.write_plan(plan)
        callback.on(Planned(comparison=comparison, budget=budget(comparison, finished), notes=notes))
        for start in (planned.start, *planned.further):
            if start is not None:
                initial_states.publish(root, start)

        resources = dataclasses.replace(context.resources, evaluate=evaluate)
        trial = None if context.in_process else found.trial  # this process made it
        with context.driving(lease, comparison.chains(), fresh=not context.plan):
            outcome = run_chains(comparison, root, resources, callback, lease=lease, workers=workers, trial=trial)
        if outcome.interrupted:
            raise context.interrupted(f"{len(outcome.seconds)} of {len(comparison.chains())} chains finished")
        return publish(folder, comparison, outcome, options.data_root, page=page, measures=measures)


def _check_plan(folder: RunStore, comparison: Comparison) -> None:
    """Refuse to continue a run that was planned otherwise."""
    planned = Comparison.from_json(folder.plan().get("comparison"))
    if planned.digest != comparison.digest:
        from raychains.tasks.fingerprint import own_differences

        if found := own_differences(comparison.task_spec, planned.task_spec):
            raise UserError(f"resume: task {comparison.task!r} differs from that of run {folder.name!r}: {found}")
        raise planned_otherwise(folder)
