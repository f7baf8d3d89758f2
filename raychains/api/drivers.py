"""Parts that drivers of runs, sweeps and evaluations share: a plan's origin, the workers, the stored results."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raychains import tasks
from raychains.api.result import Result
from raychains.api.run_context import connected
from raychains.callbacks import CallbackList
from raychains.core.config import Common, Compare, Fit, Local, Run
from raychains.core.errors import ChainsFailed, UserError, last_line, shown
from raychains.core.options import command_line
from raychains.planning import Comparison
from raychains.planning.events import Measuring, RunEvent, Tick
from raychains.store import RunStore, Storage, initial_states

if TYPE_CHECKING:
    from torch import Tensor

    from raychains.orchestration.cluster.worker_pool import WorkerPool
    from raychains.orchestration.cluster.workers import Workers
    from raychains.orchestration.run.outcome import DriverOutcome


class OutOfTime(Exception):
    """The hours that the user allowed are over."""


@dataclass
class Clock:
    """The end of the time that the user allowed; as a callback it stops a run at that time."""

    until: float | None
    expired: bool = False

    @property
    def over(self) -> bool:
        """Return whether the time is over."""
        return self.until is not None and time.monotonic() >= self.until

    def check(self) -> None:
        """Raise `OutOfTime` if the time is over."""
        if self.over:
            raise OutOfTime

    def on(self, event: RunEvent) -> None:
        """Stop the run as Ctrl-C does: chains write checkpoints, and the next command resumes them."""
        if isinstance(event, Tick | Measuring) and self.over and not self.expired:
            self.expired = True
            signal.raise_signal(signal.SIGINT)


@dataclass(frozen=True)
class Unclosed:
    """Hands events to callbacks that outlive one run: it has no ``close``."""

    callbacks: CallbackList

    def on(self, event: RunEvent) -> None:
        """Hand the event on."""
        self.callbacks.on(event)


def portable(options: Run, start: Mapping[str, Tensor] | None) -> Run:
    """Return the options as other processes need them: the store's full address, and the start of the chains, if there
    is one, in the store in place of its file."""
    root = Storage(options.store)
    if start is not None:
        options = dataclasses.replace(options, init_from=initial_states.file_of(initial_states.publish(root, start)))
    return dataclasses.replace(options, store=root.uri)


def origin(command: str, options: Common) -> dict[str, str]:
    """Return how and when a plan was made, for its page: the command line, and the time.

    A store's URI may hold secrets, which are left out. The command of a task that was passed as an object needs that
    object.
    """
    shown = dataclasses.replace(options, store=Storage(options.store).location(), resume=False)
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"command_line": command_line(command, shown), "made": made}


def planned_otherwise(folder: RunStore) -> UserError:
    """Return the error for a run or sweep whose plan is not what is to be resumed; it shows the command of the plan."""
    command = folder.plan().get("command_line")
    by = f", by {shown(command)}" if isinstance(command, str) else ""
    return UserError(
        f"resume: {folder.kind} {folder.name!r} was planned with other settings{by}; repeat its command or choose "
        "another `name`"
    )


def check_failed(failed: Mapping[str, str], what: str, folder: RunStore) -> None:
    """Raise if chains were given up.

    Args:
        failed: why, by digest.
        what: follows their number in the message.
        folder: of the run or the sweep, in which everything else is written.
    """
    if failed:
        digest, reason = next(iter(failed.items()))
        raise ChainsFailed(
            f"{len(failed)} {what} failed; what was computed is in {folder.location()}; the first, {digest[:12]}: "
            f"{last_line(reason)}"
        )


@contextlib.contextmanager
def worker_pool(options: Common, name: str = "crew") -> Iterator[WorkerPool]:
    """Yield actors (`raychains.orchestration.cluster.worker_pool`) for several runs and evaluations, one after another.

    The connection to Ray is made here and ends with the body.

    Args:
        options: the address of Ray and what belongs to it; all other options are those of each run.
        name: the first part of the actors' names.
    """
    from raychains.orchestration.cluster.worker_pool import WorkerPool

    with connected(options), WorkerPool(name) as made:
        yield made


def backend_of(options: Run | Compare | Local | Fit, pool: Workers | None) -> Workers | None:
    """Return where actors run: a ``worker_pool``, or with ``backend=process`` threads of this process; None is Ray."""
    if options.backend == "ray":
        return pool
    from raychains.orchestration.cluster.thread_workers import ThreadWorkers

    return ThreadWorkers(cpus=options.cpus_per_chain)


def store_results(folder: RunStore, comparison: Comparison, outcome: DriverOutcome) -> None:
    """Write a driver's outcome as the run's tables."""
    from raychains.inference import results

    results.write(folder, comparison, outcome.views, outcome.seconds, outcome.gradients)
    if outcome.failed:
        folder.write_table("failed", [{"digest": d, "reason": r} for d, r in outcome.failed.items()])


def _store_measures(folder: RunStore, comparison: Comparison, outcome: DriverOutcome, names: Sequence[str]) -> None:
    """Write the tables of these measures, and of those that a density's every run has in its report."""
    density = bool(comparison.arms[0].chains[0][0].block_draws)
    if not outcome.views or not (density or names):
        return
    from raychains import measures
    from raychains.inference.predictive import Selection, select
    from raychains.store.caches import predictions

    task, groups = tasks.build(comparison.task_spec), sorted(outcome.views)
    about: dict[str, Any] = {"store": folder, "comparison": comparison, "split": comparison.split, "task": task}

    def selected(arm: int, group: int) -> Selection:
        return select(folder.root, comparison, comparison.arms[arm].name, group, dropped=outcome.failed)

    def predicted(arm: int, group: int) -> Iterator[Any]:
        return predictions(folder.root, task.splits()[comparison.split], selected(arm, group).records)

    if not density:
        about |= {"select": selected, "predictions": predicted}
    context = measures.Context(groups=groups, **about)
    for measure in map(measures.named, (*(task.measures if density else ()), *names)):
        for name, rows in measure.tables(context).items():
            folder.write_table(name, rows)


def publish(
    folder: RunStore,
    comparison: Comparison,
    outcome: DriverOutcome,
    data_root: str | None,
    *,
    page: bool = True,
    measures: Sequence[str] = (),
) -> Result:
    """Write tables and ``page`` of a run, those of its task's own measures and of ``measures`` included; return its
    `Result`.

    Raises:
        ChainsFailed: some chains were given up; everything else is written.
    """
    from raychains.report import run_page as pages

    if not outcome.failed:
        folder.remove_table("failed")  # of an earlier session, whose chains are through now
    store_results(folder, comparison, outcome)
    _store_measures(folder, comparison, outcome, measures)
    if page:
        pages.write(folder, comparison)
    result = Result(folder, comparison, outcome.failed, data_root)
    check_failed(outcome.failed, f"of {len(comparison.chains())} chains", folder)
    return result
