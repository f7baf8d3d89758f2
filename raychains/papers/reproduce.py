"""`reproduce`: published tables and figures, each with its chains, its numbers and ours, and the verdicts on its
claims."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import raychains
from raychains.api import callbacks, drivers, evaluating, run_context, sampling
from raychains.api.drivers import Clock, OutOfTime, Unclosed
from raychains.api.keywords import ALONE
from raychains.callbacks import Callback, CallbackList
from raychains.core.config import Compare, Reproduce
from raychains.core.data_root import rooted
from raychains.core.errors import (
    ChainsFailed,
    Interrupted,
    RaychainsError,
    RayLost,
    StorageAway,
    StorageRefused,
    UserError,
    format_error,
    require,
)
from raychains.core.options import make
from raychains.core.validation import true_or_false
from raychains.data import standins
from raychains.data.prepared import local_preparation
from raychains.papers import contents, pages, plan_status, reproduce_terminal
from raychains.papers.completed_run import CompletedRun, Computation, joined
from raychains.papers.pages import Folder, Reproduced
from raychains.papers.plan_status import PlannedPart, PlannedReproduction
from raychains.papers.study import Tables, chosen
from raychains.planning import events
from raychains.report.console import standard_output
from raychains.store import ChainStore, Storage, finished_chains

if TYPE_CHECKING:
    from raychains.orchestration.cluster.worker_pool import WorkerPool

HOUR = 3600.0
CORRUPTIONS = 2
"""Types of CIFAR-10-C among the stand-ins: with all 19 a smoke run spends most of its time on them."""


Watch = Callable[[], contextlib.AbstractContextManager[Callback | None]]
"""A callback for one run at a time, such as a terminal's."""


def plan(options: Reproduce) -> PlannedReproduction:
    """Return what `reproduce` with these options would run, without running anything.

    Raises:
        UserError: an unknown name or scale, or an option out of range.
    """
    experiments = chosen(options.names)
    for one in experiments:
        if options.scale not in one.scales:
            raise UserError(f"scale must be one of {', '.join(one.scales)} for {one.name}, got {options.scale!r}")
    every = "be stop or restart-cycle: a table needs every chain"
    require(options.on_divergence != "drop-chain", "on_divergence", options.on_divergence, every)
    with at_scale(options) as common:
        parts = [p for e in experiments for p in plan_status.plan(e, options.scale, common)]
        if options.keep_predictions == "none" and any(s.measures for p in parts for s, _ in p.comparisons):
            raise UserError("keep_predictions must be auto or all, got 'none': measures read predictions again")
        chains = {d: spec for p in parts for d, spec in p.chains().items()}
        finished = frozenset(finished_chains(Storage(options.store), chains))
        measured = _measured(options, parts)
        return PlannedReproduction(scale=options.scale, parts=parts, finished=finished, measured=measured)


def _measured(options: Reproduce, parts: Sequence[PlannedPart]) -> dict[str, float]:
    names = dict.fromkeys(p.experiment.name for p in parts)
    place = place_of(options)
    hours = {n: plan_status.measured(Folder(*place, n).about(), options.scale, parts) for n in names}
    return {name: taken for name, taken in hours.items() if taken is not None}


@contextlib.contextmanager
def at_scale(options: Reproduce) -> Iterator[Compare]:
    """Provide the scale's data in a body, and the options that its comparisons are run with.

    Raises:
        UserError: smoke in a store that is no local folder.
    """
    common = {f.name: getattr(options, f.name) for f in dataclasses.fields(Compare) if hasattr(options, f.name)}
    common |= {"name": None, "resume": True}
    if options.scale != "smoke":
        with rooted(options.data_root):
            yield Compare(**common)
        return
    if "://" in options.store:
        raise UserError(
            f"store must be a local folder at scale smoke, got {options.store!r}: its made-up data lie there"
        )
    folder = standins.make(f"{options.store}/stand-ins", corruptions=CORRUPTIONS)
    local_preparation.prepare(standins.pictures_of(folder), folder / "imagenet")
    common |= {"data_root": str(folder), "keep_predictions": "all"}
    with rooted(str(folder)):
        yield Compare(**common)


def reproduce(
    options: Reproduce | None = None,
    *,
    callback: callbacks.Requested = None,
    progress: bool = True,
    tell: Callable[[Reproduced], None] = lambda one: None,
    watch: Watch | None = None,
    **settings: Any,
) -> list[Reproduced]:
    """Run published experiments at a scale; see `raychains.core.config.Reproduce` for the settings.

    What was run before is not run again: finished chains are found by their digests, whichever experiment they were run
    for, and computations resume from the pieces that are kept.

    Args:
        options: what is run and where.
        callback: one or several, called with events; names of built-in ones, too.
        progress: whether progress is shown, as by `rc.run`.
        tell: called with each experiment as soon as it is done.
        watch: makes another callback than the progress for every comparison, evaluation and computation.

    Raises:
        UserError: an unknown name or scale, or a setting out of range.
        ChainsFailed: some chains were given up; everything else is there.
        Interrupted: the user stopped it; the same command resumes.
    """
    true_or_false("progress", progress)
    require(callable(tell), "tell", tell, "be a function of an experiment's result")
    require(watch is None or callable(watch), "watch", watch, "make a callback for one run at a time")
    require(options is None or isinstance(options, Reproduce), "options", options, "be the options of reproduce")
    given, own = callbacks.named(options if options is not None else make(Reproduce, settings), callback)
    if watch is None:
        watch = callbacks.progress_display if progress else contextlib.nullcontext
    if given.list:
        contents.show(given)
        return []
    planned = plan(given)
    if given.dry_run:
        reproduce_terminal.show_plan(standard_output(), planned)
        return []
    _check_folder(given)
    clock = Clock(None if given.max_hours is None else time.monotonic() + given.max_hours * HOUR)
    done: list[Reproduced] = []
    experiments = [list(parts) for _, parts in itertools.groupby(planned.parts, key=lambda part: part.experiment.name)]
    with ALONE, CallbackList(own) as called, at_scale(given) as common:

        def run(workers: WorkerPool | None = None) -> None:
            for parts in experiments:
                done.append(_Running(given, common, parts, Unclosed(called), clock, watch, workers).all())
                pages.write_index(*place_of(given), given.scale, [part.experiment for part in planned.parts])
                tell(done[-1])

        if any(part.comparisons for part in planned.parts):
            with run_context.on_ray(given, "the same command", called), drivers.worker_pool(given) as workers:
                run(workers)
        else:  # Ray is not needed
            run()
    if failed := [f"{r.experiment.name} ({name})" for r in done for name in r.failed]:
        raise ChainsFailed(
            f"{len(failed)} part{'s' * (len(failed) > 1)} failed: {', '.join(failed)}; everything else is written. To "
            "try again: the same command"
        )
    return done


def _check_folder(options: Reproduce) -> None:
    """Refuse a folder of results of another scale: one index never shows two.

    Raises:
        UserError: which experiment lies there.
    """
    for listing in [*contents.published(), *contents.select(options.names)] if options.to is not None else ():
        about = Folder(Storage(str(options.to)), "", listing.name).about()
        if about is not None and about["scale"] != options.scale:
            raise UserError(
                f"to must be a folder of its own for scale {options.scale}, got {options.to!r}, which holds "
                f"{listing.name} at scale {about['scale']}"
            )


def index_of(options: Reproduce) -> str:
    """Return where the page over all experiments of the scale lies."""
    root, prefix = place_of(options)
    return root.location("/".join(filter(None, (prefix, "index.html"))))


def place_of(options: Reproduce) -> tuple[Storage, str]:
    """Return the root and the prefix of the experiments' folders: in a folder of their own they lie at its top."""
    return (Storage(options.to), "") if options.to else (Storage(options.store), f"reproduce/{options.scale}")


@dataclass
class _Running:
    """One experiment at a scale."""

    options: Reproduce
    common: Compare
    parts: Sequence[PlannedPart]
    callback: Callback
    clock: Clock
    watch: Watch
    workers: WorkerPool | None

    def __post_init__(self) -> None:
        self.experiment = self.parts[0].experiment
        name, scale = self.experiment.name, self.options.scale
        self.folder = Folder(*place_of(self.options), name)
        self.pieces = Folder(Storage(self.options.store), f"reproduce/{scale}", name)

    def all(self) -> Reproduced:
        tables: list[Tables] = []
        states: dict[str, dict[str, Any]] = {}
        earlier = self._earlier()
        for part in self.parts:
            state, made = self._part(part)
            state |= self._cost(part)
            state["seconds"] = plan_status.spent(state, earlier["parts"].get(part.part.name, {}))
            states[part.part.name] = state
            tables += [made] if made is not None else []
        kept = self._kept(states, earlier)
        about = earlier if kept else self._write(states, joined(tables))
        failed = [name for name, state in states.items() if state["status"] == "failed"]
        written: dict[str, Any] = {"experiment": self.experiment, "folder": self.folder, "about": about}
        verdicts = pages.write(self.experiment, self.folder)
        return Reproduced(**written, verdicts=verdicts, failed=failed, kept=kept)

    def _write(self, states: Mapping[str, Mapping[str, Any]], tables: Tables) -> dict[str, Any]:
        """Publish the tables and about.json, and return the latter."""
        for name, rows in tables.items():
            self.folder.write_table(name, rows)
        ran = [d for p in self.parts if states[p.part.name]["status"] == "done" for d in p.chains()]
        known, of = environments(Storage(self.common.store), ran)
        about = {"experiment": self.experiment.name, "scale": self.options.scale, "revision": self.experiment.revision}
        about |= {"commit": commit(), "parts": states, "tables": sorted(tables)}
        about |= {"environments": known, "environments_of": of}
        self.folder.write_about(about)
        return about

    def _earlier(self) -> Mapping[str, Any]:
        """Return what is known of the stored results, as far as they are whole, of today's chains and formulas."""
        about, now = self.folder.about(), (self.options.scale, self.experiment.revision)
        if about is None or (about["scale"], about["revision"]) != now or plan_status.outdated(about, self.parts):
            return {"parts": {}}
        return about if all(self.folder.table(name) is not None for name in about["tables"]) else {"parts": {}}

    @staticmethod
    def _kept(states: Mapping[str, Mapping[str, Any]], earlier: Mapping[str, Any]) -> dict[str, str]:
        """Return the parts that were done before and are not now, with the reason: their results are kept."""
        done = {name for name, part in earlier["parts"].items() if part["status"] == "done"}
        return {n: f"{s['status']}: {s['reason']}" for n, s in states.items() if n in done and s["status"] != "done"}

    def _cost(self, part: PlannedPart) -> dict[str, Any]:
        """Return the part's chains, their gradient evaluations, and the seconds of those that are finished."""
        chains, root = part.chains(), Storage(self.common.store)
        seconds = sum(ChainStore(root, digest).seconds() for digest in finished_chains(root, chains))
        gradients = plan_status.ledger([part]).unique
        return {"chains": sorted(chains), "gradients": gradients, "chain_seconds": round(seconds, 1)}

    def _part(self, planned: PlannedPart) -> tuple[dict[str, Any], Tables | None]:
        """Return its state and its tables; an error in one part costs the others nothing."""
        before = time.monotonic()
        tables: Tables | None = None
        status, reason = "done", ""
        try:
            if planned.lacks:
                status, reason = "not run", planned.lacks
            elif planned.refused:
                status, reason = "failed", planned.refused
            else:
                tables = self._run(planned)
        except (OutOfTime, Interrupted, KeyboardInterrupt) as stop:
            if not isinstance(stop, OutOfTime) and not self.clock.expired:
                raise Interrupted(
                    f"stopped in {self.experiment.name} ({planned.part.name}); what is computed is kept, and chains "
                    "go on from their last checkpoints. To go on: the same command"
                ) from None
            status, reason = "unfinished", "the time given by max_hours was over; the same command goes on"
        except (StorageRefused, StorageAway, RayLost):
            raise
        except UserError as error:
            status, reason = "failed", str(error)
        except RaychainsError as error:
            status, reason = "failed", format_error(error, kind=True)
        seconds = round(time.monotonic() - before, 1)
        return {"status": status, "reason": reason, "seconds": seconds}, tables

    def _run(self, planned: PlannedPart) -> Tables:
        part, scale = planned.part, self.options.scale
        runs: list[CompletedRun] = []
        for number, (sampled, comparison) in enumerate(planned.comparisons):
            options = dataclasses.replace(self.common, name=planned.run_name(scale, number))
            with self._listening() as called:
                result = sampling.execute("reproduce", options, comparison, called, None, self.workers, page=False)
            if sampled.views or sampled.measures:
                asked: dict[str, Any] = {name: getattr(sampled, name) for name in ("views", "measures", "reference")}
                asked |= {"options": options, "page": False, "progress": False}
                with self._listening() as called:
                    evaluating.evaluate(result.path, **asked, callback=called, worker_pool=self.workers)
            runs.append(CompletedRun(result.store, result.comparison, sampled.preset, part.name, scale))
        with self._listening() as called:
            tell = partial(self._tell, called)
            if part.computed is not None:
                return part.computed(Computation(scale, part.name, self.pieces, self.experiment.revision, tell))
            return planned.experiment.tables_of(part, [dataclasses.replace(one, tell=tell) for one in runs])

    @contextlib.contextmanager
    def _listening(self) -> Iterator[CallbackList]:
        """Provide the callbacks of one run, if there is time for it."""
        self.clock.check()
        with self.watch() as one, CallbackList([self.callback, self.clock, *([one] if one else [])]) as several:
            yield several

    def _tell(self, callbacks: CallbackList, what: str, done: int, total: int) -> None:
        self.clock.check()
        callbacks.on(events.Measuring(what=f"{self.experiment.name} {what}", done=done, total=total))


# Where results come from


def commit() -> str:
    """Return the commit of the checkout that this package belongs to, with ``-dirty`` if changed; else the version."""
    # An environment may lie in somebody else's checkout, which does not know this file.
    known = _git("ls-files", "--error-unmatch", Path(raychains.__file__).name)
    found = _git("describe", "--always", "--abbrev=12", "--dirty") if known else ""
    return found or f"raychains {raychains.__version__}"


def _git(*command: str) -> str:
    """Return git's output in the package's folder; empty where it fails."""
    folder = str(Path(raychains.__file__).resolve().parent)
    try:
        ended = subprocess.run(["git", "-C", folder, *command], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""


def environments(root: Storage, digests: Iterable[str]) -> tuple[list[dict[str, Any]], dict[str, list[int]]]:
    """Return the different Environments that chains ran in, and by digest the numbers of those of its attempts."""
    known: list[dict[str, Any]] = []
    of: dict[str, list[int]] = {}
    for digest in digests:
        for record in ChainStore(root, digest).attempts().values():
            found = record.get("environment")
            if isinstance(found, dict):
                if found not in known:
                    known.append(found)
                if known.index(found) not in of.setdefault(digest, []):
                    of[digest].append(known.index(found))
    return known, of
