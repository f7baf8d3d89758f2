"""`plan`, `prepare` and `draw_report`: commands that sample nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raychains import tasks
from raychains.api import plans
from raychains.api.result import Result, load
from raychains.core.config import Plan, Prepare, Report
from raychains.core.data_root import data_root, rooted
from raychains.core.errors import UserError, renamed
from raychains.core.options import options_of
from raychains.planning import Budget, Comparison, budget
from raychains.planning.budget import gradients_made
from raychains.planning.costs import Costs, costs
from raychains.store import ChainStore, Storage, SweepStore, chain_store, finished_chains, split_run_path
from raychains.tasks.prepared import check_set_name

if TYPE_CHECKING:
    from raychains.api.sweep import SweepResult
    from raychains.data.prepared.manifest import Manifest


def _loaded(field: str, path: str, *, trust: bool = False) -> Result:
    """`load`, whose refusals name the argument that the path was given as."""
    with renamed({"run": field}):
        return load(path, trust=trust)


def rate(options: Plan) -> float | None:
    """Return a worker's gradient evaluations a second: the option, or measured on the chains of ``measured_on``; None:
    neither.

    Raises:
        UserError: no such run, or none of its chains is finished.
    """
    if options.measured_on is None:
        return options.images_per_second
    run = _loaded("measured_on", options.measured_on)
    specs, root = run.comparison.chains(), run.store.root
    finished = finished_chains(root, specs)
    stores = [ChainStore(root, digest) for digest in finished]
    gradients = sum(gradients_made(specs[store.digest], store.records()) for store in stores)
    seconds = sum(
        s.seconds() * chain_store.workers(records[max(records)] if (records := s.attempts()) else {}) for s in stores
    )
    if not seconds:
        raise UserError(f"measured_on must be a run with finished chains, got {options.measured_on!r}")
    return gradients / seconds


def plan(options: Plan) -> tuple[Comparison, Budget, Costs]:
    """Return the comparison that `compare` with these options would run, its ledger and its costs.

    Raises:
        UserError: a setting out of range.
    """
    if options.measured_on is not None and options.images_per_second is not None:
        raise UserError(f"measured_on must be left out beside `images_per_second`, got {options.measured_on!r}")
    with rooted(options.data_root):
        comparison = plans.compare(options).comparison
        done = finished_chains(Storage(options.store), comparison.chains())
        return comparison, budget(comparison, done), costs(comparison, tasks.build(comparison.task_spec), done)


def prepare(options: Prepare, *, progress: Callable[[str, int, int], Any] | None = None) -> tuple[Manifest, str]:
    """Prepare an image set for streaming, see `raychains.core.config.Prepare`; return its manifest and location.

    Raises:
        UserError: no such pictures, damaged ones, or a target that holds something else; what was written stays.
        RayLost: Ray died; what was written stays, and the same call goes on.
    """
    from raychains.data.prepared import sources
    from raychains.data.prepared.plan import Plan
    from raychains.orchestration import prepare
    from raychains.orchestration.cluster import session

    check_set_name(options.set)
    folder = Path(os.path.expanduser(options.source)).absolute()
    if not os.path.isdir(folder):
        raise UserError(f"source must be an existing folder, got {options.source!r}")
    with renamed({"store": "to"}):
        to = Storage(options.to if options.to is not None else data_root() / options.set)
    order = {"shards": options.shards, "row_group": options.row_group, "seed": options.seed}
    plan = Plan(name=options.set, source=sources.find(folder), **order)  # type: ignore[arg-type]
    prepare.check_target(plan, to)
    joined = session.connect(options.address, object_store_memory=options.object_store_memory)
    try:
        return prepare.prepare(plan, to, skip_damaged=options.skip_damaged, progress=progress), to.location()
    finally:
        joined.close()


def draw_report(
    path: str,
    compare: Sequence[str] = (),
    *,
    trust: bool = False,
) -> Result | SweepResult:
    """Draw a run's or a sweep's report again from its stored results.

    Args:
        path: STORE/runs/NAME or STORE/sweeps/NAME.
        compare: further runs that are shown side by side with it, on a page in its folder:
            `raychains.report.comparing`.
        trust: as for `raychains.load`; without it the figures that need a user's schedule are left out.

    Raises:
        UserError: no such run, or one without results; or runs that cannot be compared.
    """
    from raychains.report import comparing, run_page

    compare = options_of(Report)["compare"].checked(compare)
    if _is_sweep(path) and not compare:
        from raychains.api.sweep import draw

        return draw(path)
    result = load(path, trust=trust)
    if result.store.table("results") is None:
        raise UserError(f"run must have results, got {path!r}: continue it with `resume=True`, or evaluate it")
    others = [_loaded("compare", other, trust=trust) for other in compare]
    if others:
        comparing.check([result, *others])  # before anything is drawn
    run_page.write(result.store, result.comparison)
    if others:
        comparing.write([result, *others])
    return result


def _is_sweep(path: str) -> bool:
    try:
        split_run_path(path, SweepStore.kind)
    except UserError:
        return False
    return True


def compared(path: str, compare: Sequence[str]) -> str:
    """Return the location of the page that `draw_report` draws of several runs."""
    from raychains.report import comparing

    runs = [load(each) for each in (path, *compare)]
    return runs[0].store.location(comparing.file_name(runs))
