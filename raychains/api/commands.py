"""`plan`, `prepare` and `draw_report`: commands that sample nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raychains import schedules, tasks
from raychains.api.result import Result, load
from raychains.core.config import Plan, Prepare, Report
from raychains.core.errors import UserError, renamed, require
from raychains.core.options import options_of
from raychains.core.spec import canonical_json
from raychains.data.root import data_root, rooted
from raychains.planning import Budget, Comparison, budget, duration
from raychains.planning.budget import gradient_evaluations, gradients_made
from raychains.planning.costs import Costs, costs, devices_of
from raychains.planning.methods import workers_of
from raychains.planning.presets import default_arms
from raychains.planning.prices import PriceList, Quote, bill
from raychains.store import ChainStore, Storage, SweepStore, chains, finished_chains, split_run_path
from raychains.tasks.prepared import check_name

if TYPE_CHECKING:
    from raychains.api.sweep import SweepResult
    from raychains.chain.gpu_time import Step
    from raychains.data.prepared.manifest import Manifest


def _loaded(field: str, path: str, *, trust: bool = False) -> Result:
    """`load`, whose refusals name the argument that the path was given as."""
    with renamed({"run": field}):
        return load(path, trust=trust)


def rate(options: Plan) -> float | None:
    """Return a worker's gradient evaluations a second: the option, or measured on the chains of ``measured_on``; None: neither.

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
        s.seconds() * chains.workers(records[max(records)] if (records := s.attempts()) else {}) for s in stores
    )
    if not seconds:
        raise UserError(f"measured_on must be a run with finished chains, got {options.measured_on!r}")
    return gradients / seconds


def plan(options: Plan) -> tuple[Comparison, Budget, Costs]:
    """Return the comparison that `compare` with these options would run, its ledger and its costs.

    Raises:
        UserError: a setting out of range.
    """
    given = [n for n in ("images_per_second", "measured_on", "gpu") if getattr(options, n) is not None]
    if len(given) > 1:
        raise UserError(f"{given[1]} must be left out beside `{given[0]}`, got {getattr(options, given[1])!r}")
    if options.preemption_loss is not None:
        duration.seconds("preemption_loss", options.preemption_loss)
    workers_of(options)
    with rooted(options.data_root):
        comparison = default_arms.compare(options).comparison
        done = finished_chains(Storage(options.store), comparison.chains())
        return comparison, budget(comparison, done), costs(comparison, tasks.build(comparison.task_spec), done)


def steps_on_gpu(options: Plan, comparison: Comparison) -> dict[str, Step]:
    """Return what a step of each chain takes on the option's ``gpu``, by digest; empty without it.

    Raises:
        UserError: a task of which that cannot be estimated.
    """
    if options.gpu is None:
        return {}
    from raychains.chain.gpu_time import estimate

    known: dict[str, Step] = {}
    found = {}
    with rooted(options.data_root):
        task = tasks.build(comparison.task_spec)
        for digest, spec in comparison.chains().items():
            alike = spec.to_json()
            for name in ("seed", "repeat", "chain", "schedule", "steps", "start", "start_chain"):
                alike.pop(name, None)
            key = canonical_json([alike, schedules.build(spec.schedule).temperature])
            if key not in known:
                known[key] = estimate(spec, task, options.gpu, workers=workers_of(options)[0])
            found[digest] = known[key]
    return found


def mean_rate(comparison: Comparison, steps: Mapping[str, Step]) -> float:
    """Return the gradient evaluations a second of one device on average over all chains."""
    gradients = {digest: gradient_evaluations(spec) for digest, spec in comparison.chains().items()}
    return sum(gradients.values()) / sum(n / steps[digest].rate for digest, n in gradients.items())


def quote(options: Plan, costs: Costs, rate: float | None) -> Quote | None:
    """Return what a plan costs on each machine of ``prices``; None without a price list.

    Raises:
        UserError: a wrong price list, or one beside a price.
    """
    if options.prices is None:
        return None
    if options.price is not None:
        raise UserError(f"prices must be left out beside `price`, got {options.prices!r}")
    prices = PriceList.read(options.prices)
    loss, preemptions = preemption_loss(options)
    workers, devices = workers_of(options)[0], devices_of(options, costs)
    rates = [machine.images_per_second or rate for machine in prices.machines]
    hours = [costs.device_hours(rate) if rate is not None else None for rate in rates]
    bills = [
        bill(machine, each, devices=devices, workers=workers, loss=loss)
        for machine, each in zip(prices.machines, hours, strict=True)
    ]
    return Quote(currency=prices.currency, bills=bills, loss=loss, preemptions=preemptions)


def preemption_loss(options: Plan) -> tuple[float | None, int]:
    """Return the seconds that a preemption costs, as given or on average in ``measured_on``, and how many were measured.

    None where nothing says it: none of the run's chains left a node, or its files were copied, which gives them other times.
    """
    if options.preemption_loss is not None:
        return duration.seconds("preemption_loss", options.preemption_loss), 0
    if options.measured_on is None:
        return None, 0
    run = _loaded("measured_on", options.measured_on)
    stores = [ChainStore(run.store.root, digest) for digest in run.comparison.chains()]
    losses = [chains.preemption_losses(store) for store in stores]
    seconds, times = sum(lost for lost, _ in losses), sum(times for _, times in losses)
    return (seconds / times, times) if seconds > 0 else (None, 0)


def prepare(options: Prepare, *, progress: Callable[[str, int, int], Any] | None = None) -> tuple[Manifest, str]:
    """Prepare an image set for streaming, see `raychains.core.config.Prepare`; return its manifest and location.

    Raises:
        UserError: no such pictures, damaged ones, or a target that holds something else; what was written stays.
        RayLost: Ray died; what was written stays, and the same call goes on.
    """
    from raychains.data.prepared import sources
    from raychains.data.prepared.plan import Plan
    from raychains.orchestration import prepare, session

    check_name(options.set)
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
    prices: str | None = None,
    machine: str | None = None,
) -> Result | SweepResult:
    """Draw a run's or a sweep's report again from its stored results.

    Args:
        path: STORE/runs/NAME or STORE/sweeps/NAME.
        compare: further runs that are shown side by side with it, on a page in its folder: `raychains.report.comparing`.
        trust: as for `raychains.load`; without it the figures that need a user's schedule are left out.
        prices: a price list's file: a run's page says what the device hours of its chains cost, and their energy.
        machine: the price list's machine that the chains ran on; default the only one.

    Raises:
        UserError: no such run, or one without results; or runs that cannot be compared; or a wrong price list.
    """
    from raychains.report import comparing, page

    options = options_of(Report)
    compare, prices, machine = (
        options[name].checked(value) for name, value in (("compare", compare), ("prices", prices), ("machine", machine))
    )
    require(machine is None or prices is not None, "machine", machine, "be left out without `prices`")
    if _is_sweep(path) and not compare:
        require(prices is None, "prices", prices, "be left out for a sweep")
        from raychains.api.sweep import draw

        return draw(path)
    result = load(path, trust=trust)
    if result.store.table("results") is None:
        raise UserError(f"run must have results, got {path!r}: continue it with `resume=True`, or evaluate it")
    others = [_loaded("compare", other, trust=trust) for other in compare]
    if others:
        comparing.check([result, *others])  # before anything is drawn
    page.write(result.store, result.comparison, spent=spent(result, prices, machine) if prices is not None else ())
    if others:
        comparing.write([result, *others])
    return result


def spent(run: Result, prices: str, machine: str | None) -> list[str]:
    """Return the line of a run's page on the device hours of its chains, their price and their energy.

    Raises:
        UserError: a wrong price list, or no such machine in it.
    """
    from raychains.report.terminal import spent_line

    listed = PriceList.read(prices)
    on = listed.machine(machine)
    stores = [ChainStore(run.store.root, digest) for digest in run.comparison.chains()]
    seconds = sum(chains.device_seconds(store) for store in stores)
    return [spent_line(bill(on, seconds / 3600, devices=on.devices), listed.currency)]


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
