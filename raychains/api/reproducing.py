"""`reproduce`: published tables and figures, each with its chains, its numbers beside ours, and what became of its claims."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from raychains.api import driving, evaluating, sampling
from raychains.api.deadline import Clock, OutOfTime, Told
from raychains.data.root import rooted
from raychains.errors import (
    ChainsFailed,
    Interrupted,
    RaychainsError,
    StorageAway,
    StorageFull,
    UserError,
    require,
    said,
)
from raychains.listeners import Listener, Listeners
from raychains.options import Compare, Reproduce
from raychains.planning import listener as told
from raychains.schedules.base import is_number
from raychains.store import Root, opening

if TYPE_CHECKING:
    from raychains.orchestration.crew import Crew
    from raychains.published.claims import Verdict
    from raychains.published.experiment import Experiment, Tables
    from raychains.published.folder import Folder
    from raychains.published.standing import Ledger, PlannedPart

HOUR = 3600.0
CORRUPTIONS = 2
"""Types of CIFAR-10-C among the stand-ins: with all 19 a smoke run spends most of its time on them."""


@dataclass(frozen=True, kw_only=True)
class PlannedReproduction:
    """What `reproduce` would run."""

    scale: str
    parts: Sequence[PlannedPart]
    finished: frozenset[str]
    """Digests of the chains that the store holds."""
    measured: Mapping[str, float]
    """Hours that stored results took, by experiment."""

    @property
    def ledger(self) -> Ledger:
        """Gradient evaluations of all of them together."""
        from raychains.published import standing

        return standing.ledger(self.parts, self.finished)


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """One experiment after it was run as far as it could be."""

    experiment: Experiment
    folder: Folder
    about: Mapping[str, Any]
    verdicts: Sequence[Verdict]
    failed: Sequence[str]
    """Parts that failed in this call; the folder may hold an earlier result of them."""
    kept: Mapping[str, str]
    """Why parts whose earlier results were left as they are could not be looked at again, by name."""

    def states(self) -> dict[str, str]:
        """Its parts' states by name: done, not run, failed or unfinished."""
        return {name: part["status"] for name, part in self.about["parts"].items()}


Watch = Callable[[], contextlib.AbstractContextManager[Listener | None]]
"""A listener for one run at a time, such as a terminal's."""


def plan(options: Reproduce) -> PlannedReproduction:
    """What `reproduce` with these options would run, without running anything.

    Raises:
        UserError: an unknown name or scale, or an option out of range.
    """
    from raychains.published import catalogue, standing

    experiments = catalogue.chosen(options.names or (("all",) if options.list else ()))
    check(options)
    with at_scale(options) as given:
        parts = [p for e in experiments for p in standing.plan(e, options.scale, given)]
        chains = {d: spec for p in parts for d, spec in p.chains().items()}
        return PlannedReproduction(
            scale=options.scale, parts=parts, finished=frozenset(opening.finished(Root(options.store), chains)),
            measured=_measured(options, parts),
        )  # fmt: skip


def _measured(options: Reproduce, parts: Sequence[PlannedPart]) -> dict[str, float]:
    from raychains.published import standing
    from raychains.published.folder import Folder

    names = dict.fromkeys(p.experiment.name for p in parts)
    root, prefix = Root(options.to or options.store), prefix_of(options)
    hours = {n: standing.measured(Folder(root, prefix, n).about(), options.scale, parts) for n in names}
    return {name: taken for name, taken in hours.items() if taken is not None}


def plans(options: Reproduce) -> list[PlannedReproduction]:
    """What there is: `plan` at the scale of a dry run, or with ``list`` at every one that has its data.

    Raises:
        UserError: as `plan`.
    """
    from raychains.published.experiment import SCALES

    if not options.list:
        return [plan(options)]
    check(options)
    return [plan(dataclasses.replace(options, scale=scale)) for scale in SCALES if scale != "smoke"]


def check(options: Reproduce) -> None:
    """Refuse options out of range.

    Raises:
        UserError: which.
    """
    from raychains.published import catalogue

    catalogue.check_scale(options.scale)
    hours = options.max_hours
    require(hours is None or (is_number(hours) and hours > 0), "max_hours", hours, "be a finite number above 0")
    require(options.name is None, "name", options.name, "be left out: every comparison has its own")


@contextlib.contextmanager
def at_scale(options: Reproduce) -> Iterator[Compare]:
    """A body in which the scale's data are found; the options that its comparisons are run with.

    Raises:
        UserError: smoke in a store that is no local folder.
    """
    common = {f.name: getattr(options, f.name) for f in dataclasses.fields(Compare) if hasattr(options, f.name)}
    common |= {"name": None, "resume": True}
    if options.scale != "smoke":
        with rooted(options.data_root):
            yield Compare(**common)
        return
    from raychains.data import standins
    from raychains.data.prepared import local

    if "://" in options.store:
        raise UserError(
            f"store must be a local folder at scale smoke, got {options.store!r}: its made-up data lie there"
        )
    folder = standins.make(f"{options.store}/stand-ins", corruptions=CORRUPTIONS)
    local.prepare(standins.pictures_of(folder), folder / "imagenet")
    common |= {"data_root": str(folder), "keep_predictions": "all"}
    with rooted(str(folder)):
        yield Compare(**common)


def reproduce(
    options: Reproduce | None = None,
    *,
    listener: Listener | Sequence[Listener] | None = None,
    tell: Callable[[Reproduced], None] = lambda one: None,
    watch: Watch = contextlib.nullcontext,
    **settings: Any,
) -> list[Reproduced]:
    """Run published experiments at a scale; see `raychains.options.Reproduce` for the settings.

    What was run before is not run again: finished chains are found by their digests, whichever experiment they were run
    for, and computations go on from the pieces that are kept.

    Args:
        options: what is run and where.
        listener: one or several, told what happens.
        tell: told each experiment as soon as it is done.
        watch: makes a further listener for every comparison, evaluation and computation.

    Raises:
        UserError: an unknown name or scale, or a setting out of range.
        ChainsFailed: some chains were given up; everything else is there.
        Interrupted: the person stopped it; the same command goes on.
    """
    from raychains.published import index

    given = options if options is not None else Reproduce(**settings)
    planned = plan(given)
    _check_folder(given)
    clock = Clock(None if given.max_hours is None else time.monotonic() + given.max_hours * HOUR)
    by_experiment: dict[str, list[PlannedPart]] = {}
    for part in planned.parts:
        by_experiment.setdefault(part.experiment.name, []).append(part)
    done: list[Reproduced] = []
    with Listeners(listener) as listeners, at_scale(given) as common, _crew(given, planned) as crew:
        for parts in by_experiment.values():
            done.append(_Running(given, common, parts, listeners, clock, watch, crew).all())
            index.write(Root(given.to or given.store), prefix_of(given), given.scale)
            tell(done[-1])
    if failed := [f"{r.experiment.name} ({name})" for r in done for name in r.failed]:
        raise ChainsFailed(f"{len(failed)} parts failed: {', '.join(failed)}; everything else is written")
    return done


def _check_folder(options: Reproduce) -> None:
    """Refuse a folder of results of another scale: one index never shows two.

    Raises:
        UserError: which experiment lies there.
    """
    from raychains.published import catalogue
    from raychains.published.folder import Folder

    if options.to is None:
        return
    for name in catalogue.every():
        about = Folder(Root(options.to), "", name).about()
        if about is not None and about["scale"] != options.scale:
            raise UserError(
                f"to must be a folder of its own for scale {options.scale}, got {options.to!r}, which holds {name} at scale "
                f"{about['scale']}"
            )


def _crew(options: Reproduce, planned: PlannedReproduction) -> contextlib.AbstractContextManager[Crew | None]:
    """The actors of all comparisons; without one to run, Ray is not needed."""
    return driving.crew(options) if any(p.comparisons for p in planned.parts) else contextlib.nullcontext()


def index_of(options: Reproduce) -> str:
    """Where the page over all experiments of the scale lies."""
    name = "/".join(part for part in (prefix_of(options), "index.html") if part)
    return Root(options.to or options.store).location(name)


def prefix_of(options: Reproduce) -> str:
    """Where the experiments' folders lie in the store; in a folder of their own they lie at its top."""
    return "" if options.to else f"reproduce/{options.scale}"


@dataclass
class _Running:
    """One experiment at a scale."""

    options: Reproduce
    common: Compare
    parts: Sequence[PlannedPart]
    listeners: Listeners
    clock: Clock
    watch: Watch
    crew: Crew | None

    def __post_init__(self) -> None:
        from raychains.published.folder import Folder

        self.experiment = self.parts[0].experiment
        name, scale = self.experiment.name, self.options.scale
        self.folder = Folder(Root(self.options.to or self.options.store), prefix_of(self.options), name)
        self.pieces = Folder(Root(self.options.store), f"reproduce/{scale}", name)

    def all(self) -> Reproduced:
        from raychains.published import found, pages, provenance, standing

        tables: list[Tables] = []
        states: dict[str, dict[str, Any]] = {}
        earlier = self._earlier()
        for part in self.parts:
            state, made = self._part(part)
            state |= self._cost(part)
            state["seconds"] = standing.spent(state, earlier["parts"].get(part.part.name, {}))
            states[part.part.name] = state
            tables += [made] if made is not None else []
        failed = [name for name, state in states.items() if state["status"] == "failed"]
        if kept := self._kept(states, earlier):
            return Reproduced(
                experiment=self.experiment, folder=self.folder, about=earlier, failed=failed, kept=kept,
                verdicts=pages.write(self.experiment, self.folder),
            )  # fmt: skip
        joined = found.joined(tables)
        for name, rows in joined.items():
            self.folder.write_table(name, rows)
        root = Root(self.common.store)
        ran = [d for p in self.parts if states[p.part.name]["status"] == "done" for d in p.chains()]
        environments, of = provenance.environments(root, ran)
        about = {
            "experiment": self.experiment.name, "scale": self.options.scale, "revision": self.experiment.revision,
            "commit": provenance.commit(), "parts": states, "tables": sorted(joined), "environments": environments,
            "environments_of": of,
        }  # fmt: skip
        self.folder.write_about(about)
        verdicts = pages.write(self.experiment, self.folder)
        return Reproduced(
            experiment=self.experiment, folder=self.folder, about=about, verdicts=verdicts, failed=failed, kept={}
        )

    def _earlier(self) -> Mapping[str, Any]:
        """What is known of the results that lie there, as far as they are whole, of today's chains and formulas."""
        from raychains.published import standing

        about, now = self.folder.about(), (self.options.scale, self.experiment.revision)
        if about is None or (about["scale"], about["revision"]) != now or standing.outdated(about, self.parts):
            return {"parts": {}}
        return about if all(self.folder.table(name) is not None for name in about["tables"]) else {"parts": {}}

    @staticmethod
    def _kept(states: Mapping[str, Mapping[str, Any]], earlier: Mapping[str, Any]) -> dict[str, str]:
        """Parts that were done before and are not now, with the reason: what lies there is worth more than that."""
        done = {name for name, part in earlier["parts"].items() if part["status"] == "done"}
        return {n: f"{s['status']}: {s['reason']}" for n, s in states.items() if n in done and s["status"] != "done"}

    def _cost(self, part: PlannedPart) -> dict[str, Any]:
        """The part's chains, their gradient evaluations, and the seconds of those that are finished."""
        from raychains.published import standing
        from raychains.store import ChainStore

        chains, root = part.chains(), Root(self.common.store)
        finished = opening.finished(root, chains)
        return {
            "chains": sorted(chains),
            "gradients": standing.ledger([part]).unique,
            "chain_seconds": round(sum(ChainStore(root, digest).seconds() for digest in finished), 1),
        }

    def _part(self, planned: PlannedPart) -> tuple[dict[str, Any], Tables | None]:
        """Its state and its tables; nothing that goes wrong in one part costs the others."""
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
            if not isinstance(stop, OutOfTime) and not self.clock.rang:
                raise Interrupted(
                    f"stopped in {self.experiment.name} ({planned.part.name}); what is computed is kept, and chains go on from "
                    "their last checkpoints. To go on: the same command"
                ) from None
            status, reason = "unfinished", "the time given by max_hours was over; the same command goes on"
        except (StorageFull, StorageAway):
            raise
        except RaychainsError as error:
            status, reason = "failed", said(error) if not isinstance(error, UserError) else str(error)
        seconds = round(time.monotonic() - before, 1)
        return {"status": status, "reason": reason, "seconds": seconds}, tables

    def _run(self, planned: PlannedPart) -> Tables:
        from raychains.published.found import Found, joined
        from raychains.published.work import Work

        part, scale = planned.part, self.options.scale
        made: list[Tables] = []
        found = []
        for number, (sampled, comparison) in enumerate(planned.comparisons):
            options = dataclasses.replace(self.common, name=planned.run_name(scale, number))
            with self._heard() as heard:
                result = sampling.execute("reproduce", options, comparison, heard, None, self.crew, page=False)
            for one in sampled.evaluations:
                with self._heard() as heard:
                    evaluating.evaluate(
                        result.path, views=one.views, measures=one.measures,
                        options=options, listener=heard, crew=self.crew, page=False,
                    )  # fmt: skip
            found.append(Found(result.store, result.comparison, sampled.preset))
        if part.tables is not None:
            with self._heard() as heard:
                tell = partial(self._tell, heard)
                made.append(part.tables(scale, [dataclasses.replace(one, tell=tell) for one in found]))
        if part.computed is not None:
            with self._heard() as heard:
                tell = partial(self._tell, heard)
                made.append(part.computed(Work(scale, part.name, self.pieces, self.experiment.revision, tell)))
        return joined(made)

    @contextlib.contextmanager
    def _heard(self) -> Iterator[Listeners]:
        """Who listens to one run, if there is time for it."""
        self.clock.check()
        with self.watch() as one, Listeners([Told(self.listeners), self.clock, *([one] if one else [])]) as heard:
            yield heard

    def _tell(self, heard: Listeners, what: str, done: int, total: int) -> None:
        self.clock.check()
        heard.on(told.Measuring(what=f"{self.experiment.name} {what}", done=done, total=total))
