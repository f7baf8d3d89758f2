"""The Python API: `compare`, `run`, `evaluate`, `draw_report`, `load`. The command line calls the same functions."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from raychains.data.root import data_root, rooted
from raychains.errors import ChainsFailed, Interrupted, UserError
from raychains.options import Common, Compare, Run
from raychains.planning import Comparison, budget
from raychains.planning.listener import Listener, Planned, Silent
from raychains.resumed import planned_from
from raychains.store import ChainStore, Root, RunStore, split_run_path, starts

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from raychains.deploy import Exported, PosteriorPredictive
    from raychains.experiments.comparisons import Planned as PlannedComparison
    from raychains.orchestration.driver import Outcome, Placement
    from raychains.orchestration.lease import Lease
    from raychains.predictive import Predictive, Selection
    from raychains.tasks import Task

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """A run in its store: its table, its files, its posterior predictive."""

    store: RunStore
    comparison: Comparison
    failed: Mapping[str, str]
    """Chains that were given up in this session, and why."""
    data_root: str | None = None
    """Where the task's data lie, if the person said it."""

    @property
    def path(self) -> str:
        """STORE/runs/NAME."""
        return self.store.location()

    @property
    def report(self) -> str:
        """Where the HTML report lies."""
        return self.store.location("report.html")

    def results(self) -> pd.DataFrame:
        """Metrics per arm and repeat."""
        from raychains.report import results

        return results.read(self.store, "results")

    def table(self) -> pd.DataFrame:
        """One row per arm: cost, repeats, samples, chain seconds, mean and standard error of every metric."""
        from raychains.report import results
        from raychains.report.material import metrics_of

        with rooted(self.data_root):
            metrics = metrics_of(self.comparison)
        found = self.results()
        measured = tuple(m for m in metrics if m.name in found.columns) if len(found) else metrics
        return results.summary(self.comparison, found, measured)

    def predictive(self, arm: str | None = None, group: int = 0) -> Predictive:
        """The posterior predictive of one arm (default the first) and group of repeats.

        Chains that were dropped from the arm's results are left out.

        Raises:
            UserError: an unknown arm or group, or a task that predicts nothing.
        """
        from raychains.predictive import Predictive

        return Predictive(self._select(arm, group, None))

    def predict(self, x: Any, arm: str | None = None) -> np.ndarray[Any, Any]:
        """Posterior-predictive probabilities [n, classes] of inputs ``x`` [n, …] under the first arm, or ``arm``."""
        return self.predictive(arm)(x)

    def posterior(self, arm: str | None = None, group: int = 0, *, first: int | None = None) -> PosteriorPredictive:
        """The samples of one arm (default the first) as one `torch.nn.Module`, all of them in memory.

        Raises:
            UserError: as `predictive`, or ``first`` is not a number of its samples.
        """
        from raychains.deploy import posterior

        return posterior(self._select(arm, group, first))

    def export(
        self,
        to: str | None = None,
        arm: str | None = None,
        group: int = 0,
        *,
        first: int | None = None,
        dtype: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Exported:
        """Write the samples of one arm as one file; `PosteriorPredictive.load` makes the module of `posterior` of it.

        Args:
            to: a new file; default NAME.safetensors in the current folder.
            arm: the arm's name; default the first.
            group: which group of repeats.
            first: take this many samples, the first draws of all chains first; default all.
            dtype: fp32, bf16 or fp16; default the samples' own.
            progress: told (samples written, samples).

        Raises:
            UserError: as `posterior`, or a file that exists or cannot be written.
        """
        from raychains.deploy import export

        to = to if to is not None else f"{self.store.name}.safetensors"
        selection = self._select(arm, group, first)
        return export(selection, to, run=self.store.name, dtype=dtype, progress=progress)

    def _select(self, arm: str | None, group: int, first: int | None) -> Selection:
        from raychains.predictive import select

        with rooted(self.data_root):
            return select(self.store.root, self.comparison, arm, group, first, dropped=self._dropped())

    def _dropped(self) -> set[str]:
        """Chains that were given up although their arm has results."""
        failed, results = self.store.table("failed"), self.store.table("results")
        if failed is None or results is None or not results.num_rows:
            return set()
        evaluated = set(zip(results["arm"].to_pylist(), results["group"].to_pylist(), strict=True))
        groups = [(a.name, g, chains) for a in self.comparison.arms for g, chains in enumerate(a.chains)]
        chains = {spec.digest for name, g, specs in groups if (name, g) in evaluated for spec in specs}
        return chains & set(failed["digest"].to_pylist())


def compare(options: Compare | None = None, *, listener: Listener | None = None, **settings: Any) -> Result:
    """Compare parallel with single chains; see `raychains.options.Compare` for the settings.

    ``task`` may be a task's name, its import path, or a `raychains.Task` itself.

    Example: ``rc.compare(task="digits", epochs=40).table()``

    Raises:
        UserError: a setting out of range, or a name that another living driver runs.
        Interrupted: the person stopped the run; what was computed is kept.
    """
    from raychains.experiments import comparisons

    options, task = _options(Compare, options, settings)
    with rooted(options.data_root):
        planned = planned_from(partial(comparisons.compare, task=task), options)
        return _execute("compare", options, planned, listener, task)


def run(options: Run | None = None, *, listener: Listener | None = None, **settings: Any) -> Result:
    """Sample one posterior; see `raychains.options.Run` for the settings. Task and errors as for `compare`."""
    from raychains.experiments import comparisons

    options, task = _options(Run, options, settings)
    with rooted(options.data_root):
        planned = planned_from(partial(comparisons.run, task=task), options)
        return _execute("run", options, planned, listener, task)


def load(path: str, task: Task | None = None) -> Result:
    """The run at STORE/runs/NAME.

    Args:
        path: where it lies.
        task: the run's task, where only the object itself can be it (`Task.from_module`): predictions need it, stored
            results do not.

    Raises:
        UserError: there is none, or ``task`` is another than the run's.
    """
    store, name = split_run_path(path)
    folder = RunStore(Root(store), name)
    comparison = Comparison.from_json(folder.plan().get("comparison"))
    if task is not None:
        from raychains import tasks

        tasks.give_again(task, comparison.task_spec)
    return Result(folder, comparison, {})


def evaluate(
    path: str,
    split: str | None = None,
    *,
    task: Task | None = None,
    options: Common | None = None,
    listener: Listener | None = None,
) -> Result:
    """Evaluate a run's finished chains on a split of its task, write the results and the report.

    ``task`` is as for `load`.

    Raises:
        UserError: no such run or split, or no arm whose chains are all finished.
    """
    options = options if options is not None else Common()
    with rooted(options.data_root):
        return _evaluate(load(path, task), split, options, listener)


def _evaluate(loaded: Result, split: str | None, options: Common, listener: Listener | None) -> Result:
    from raychains import tasks
    from raychains.orchestration.lease import Lease
    from raychains.tasks.splits import check_split

    split = split if split is not None else loaded.comparison.split
    check_split(tasks.build(loaded.comparison.task_spec).splits(), split)
    comparison = dataclasses.replace(loaded.comparison, split=split)
    # Another split's results stand beside the run's own, in a folder without the colons of a split's name.
    suffix = "" if split == loaded.comparison.split else f"-{split.replace(':', '-')}"
    folder = RunStore(loaded.store.root, f"{loaded.store.name}{suffix}")
    with Lease(loaded.store.root, folder.name) as lease:
        outcome = _drive(comparison, loaded.store.root, options, listener or Silent(), run_chains=False, lease=lease)
        if not outcome.views:
            raise UserError(
                f"run must have an arm whose chains are all finished, got {loaded.path!r}: continue it with --resume"
            )
        if suffix:
            folder.write_plan({**loaded.store.plan(), "comparison": comparison.to_json()})
        return _publish(folder, comparison, outcome, options.data_root)


def draw_report(path: str) -> Result:
    """Draw a run's report again from its stored results.

    Raises:
        UserError: no such run, or one without results.
    """
    from raychains.report import page

    result = load(path)
    if result.store.table("results") is None:
        raise UserError(f"run must have results, got {path!r}: continue it with --resume, or evaluate it")
    page.write(result.store, result.comparison)
    return result


def _options(kind: Callable[..., Any], given: Any, settings: Mapping[str, Any]) -> tuple[Any, Task | None]:
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


def _execute(
    command: str, options: Compare | Run, planned: PlannedComparison, listener: Listener | None, task: Task | None
) -> Result:
    from raychains.orchestration import luggage, session
    from raychains.orchestration.lease import Lease

    comparison, listener = planned.comparison, listener or Silent()
    root = Root(options.store)
    placement(options)  # whatever is wrong is said before anything is written or started
    session.look(options.address, object_store_memory=options.object_store_memory)
    if task is not None:
        luggage.check(task)
    folder = RunStore(root, options.name or comparison.run_name)
    if options.resume:
        _check_plan(folder, comparison)
    with Lease(root, folder.name, patient=options.resume) as lease:
        _check_name_is_free(folder, comparison, options.resume)
        finished = _finished(root, comparison)
        listener.on(Planned(comparison=comparison, budget=budget(comparison, finished), notes=planned.notes))
        if not folder.exists():
            folder.write_plan({"command": command, "comparison": comparison.to_json(), "notes": planned.notes})
        if planned.start is not None:
            starts.publish(root, planned.start)
        outcome = _drive(comparison, root, options, listener, run_chains=True, lease=lease)
        if lease.lost:
            raise UserError(f"{lease.lost}; this driver stopped, its chains go on from their last checkpoints")
        if outcome.stopped:
            raise Interrupted(
                f"stopped with {len(outcome.seconds)} of {len(comparison.chains())} chains finished; the others go on "
                f"from their last checkpoints. To go on: the same command with --resume --name {folder.name}"
            )
        return _publish(folder, comparison, outcome, options.data_root)


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


def _finished(root: Root, comparison: Comparison) -> set[str]:
    from raychains.chain import expected_samples

    return {d for d, spec in comparison.chains().items() if ChainStore(root, d).finished(expected_samples(spec))}


def placement(options: Common) -> Placement:
    """The part of the options that says where chains run."""
    from raychains.orchestration.driver import Placement
    from raychains.planning.duration import seconds

    return Placement(
        cpus_per_chain=options.cpus_per_chain,
        gpus_per_chain=options.gpus_per_chain,
        evaluators=options.evaluators,
        gpus_per_evaluator=options.gpus_per_evaluator if options.gpus_per_evaluator is not None else 0.0,
        checkpoint_every=seconds("checkpoint_every", options.checkpoint_every),
        max_failures=options.max_failures,
        on_divergence=options.on_divergence,  # type: ignore[arg-type]  # checked there
        data_root=str(data_root(options.data_root)) if options.data_root is not None else None,
    )


def _drive(
    comparison: Comparison, root: Root, options: Common, listener: Listener, *, run_chains: bool, lease: Lease
) -> Outcome:
    from raychains.orchestration.driver import Driver
    from raychains.orchestration.session import connect

    session = connect(options.address, object_store_memory=options.object_store_memory)
    try:
        lease.confirm()  # an entry that came at the same time is listed by now
        return Driver(comparison, root, placement(options), listener, run_chains=run_chains, lease=lease).run()
    finally:
        session.close()


def _publish(folder: RunStore, comparison: Comparison, outcome: Outcome, data_root: str | None) -> Result:
    from raychains.report import page, results

    results.write(folder, comparison, outcome.views, outcome.seconds)
    if outcome.failed:
        folder.write_table("failed", [{"digest": d, "reason": r} for d, r in outcome.failed.items()])
    page.write(folder, comparison)
    result = Result(folder, comparison, outcome.failed, data_root)
    if outcome.failed:
        digest, reason = next(iter(outcome.failed.items()))
        raise ChainsFailed(
            f"{len(outcome.failed)} of {len(comparison.chains())} chains failed, results of the others are in {result.path}; "
            f"the first, {digest[:12]}: {reason}"
        )
    return result
