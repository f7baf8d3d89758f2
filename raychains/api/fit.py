"""`fit`: choose method, step size and prior by pilots on held-out data, then sample on all data."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from raychains import tasks
from raychains.api import plans, sampling
from raychains.api.drivers import Unclosed, backend_of, origin, planned_otherwise, worker_pool
from raychains.api.keywords import Call, FitKeywords, accepts, reading
from raychains.api.result import Result, load
from raychains.callbacks import CallbackList
from raychains.core.config import Compare, Fit, Run
from raychains.core.errors import ChainsFailed, Interrupted, RayLost, UserError, require
from raychains.core.spec import digest_of
from raychains.evaluation import bootstrap, metrics
from raychains.inference.families import family_of
from raychains.measures import against
from raychains.planning import fitting, gradient_evaluations, methods
from raychains.planning.budget import gradients_made
from raychains.planning.comparison import run_name
from raychains.planning.ensemble_start import METHOD as ENSEMBLE
from raychains.planning.events import ChainFinished, Message, Ready, RunEvent
from raychains.planning.fitting import FitPlan, Judged, Rung, Tried
from raychains.planning.presets import arms
from raychains.planning.presets.arms import Planned
from raychains.planning.presets.named import Preset
from raychains.store import ChainStore, FitStore, RunStore, Storage, finished_chains
from raychains.store.filesystem import json_bytes
from raychains.tasks import Task
from raychains.tasks.from_options import make_task
from raychains.tasks.user_defaults import defaults_of

BUDGET = 1000
"""Epochs of all chains together where neither ``budget`` nor ``minutes`` is given."""
NETWORKS = 5
"""Members of the deep ensemble that ``reference`` trains."""
REFERENCES = {"network": "one AdamW network", "ensemble": f"a deep ensemble of {NETWORKS}"}
OPTIONS = "options.json"
"""File in the run's folder with the options by which `raychains run --options` makes the same chains."""
LAPLACE = "laplace"
"""The method that not every network, likelihood and prior can have."""
OF_TASK = ("task_settings", "train_subset", "val_split")
"""Options that a task which is made already has in it."""
TIMED_STEPS = 200
"""Steps of the chains by which minutes are turned into epochs, at least."""


@accepts(Fit, FitKeywords)
def fit(call: Call) -> Result:
    """Sample a posterior without tuning: choose method, step size and prior by held-out data, then sample on all data.

    The result's one arm is a deep ensemble mixed with the candidate that gains most beside it. `Result.choice` is the
    table of all candidates: what each cost, its held-out log density, and why it was dropped.

    Example: ``rc.fit(task="digits", budget=1000).choice``

    Raises:
        UserError: a setting out of range, a density, or a name that another living driver runs.
        Interrupted: the user stopped the fit; what was computed is kept.
        ChainsFailed: all chains of every candidate were given up.
    """
    return _fit(call)


def sample(task: Task, **settings: Any) -> Result:
    """Fit as `fit` does, without progress, evaluation of the result and page.

    Args:
        task: the task itself.
        settings: options of `fit`.

    Raises:
        UserError, Interrupted, ChainsFailed: as `fit`.
    """
    with reading(Fit, None, {"progress": False, **settings, "task": task}) as call:
        return _fit(call, page=False)


def _fit(call: Call, *, page: bool = True) -> Result:
    fitting_of = _Fitting(call.options, call.task, call.worker_pool, call.callback, page)
    with fitting_of.connected():
        return fitting_of.all()


@dataclass
class _Stopwatch:
    """A callback that measures how long chains run."""

    slots: int = 0
    began: float = math.nan
    ended: float = math.nan
    busy: float = 0.0
    """Chain seconds."""

    def on(self, event: RunEvent) -> None:
        """Note the time of what begins and ends sampling."""
        if isinstance(event, Ready):
            self.slots, self.began = event.slots, time.monotonic()
        elif isinstance(event, ChainFinished):
            self.ended, self.busy = time.monotonic(), self.busy + event.seconds


@dataclass
class _Fitting:
    """One call of `fit`."""

    options: Fit
    given: Task | None
    """The task where the user passed the object itself."""
    pool: Any
    callback: CallbackList
    page: bool = True
    """Whether the result is evaluated and has a page."""

    def __post_init__(self) -> None:
        options = self.options
        both = options.minutes is None or options.budget is None
        require(both, "budget", options.budget, "be left out beside `minutes`, which is turned into one")
        self.task = make_task(options, options.task, self.given)
        density = "be a network's: a density has no examples to hold out; sample it by raychains.run"
        require(not self.task.low_dimensional, "task", options.task, density)
        self.root = Storage(options.store)
        self.divisible = _divisible(self.task)
        self.part = None if self.divisible or "val" in list(self.task.splits()) else self._held_out()
        self.without: dict[str, str] = {}
        self.without = self._without(self._plan(BUDGET * (options.folds or 1)))  # enough for all candidates
        first = self._plan(options.budget or BUDGET)
        minutes = {} if options.minutes is None else {"minutes": options.minutes}
        about = {**first.to_json(), "spec": self.task.spec().to_json(), **minutes}
        self.name = options.name or run_name(options.task, digest_of(about))
        self.folder = FitStore(self.root, self.name)
        self.about = {
            key: about[key] for key in about.keys() - {"candidates", "rungs", *(["budget"] if minutes else [])}
        }
        if self.folder.exists():
            if not options.resume:
                raise UserError(
                    f"name must be a new one, got {self.name!r}: the fit exists; continue it with `resume=True` or "
                    "choose another `name`"
                )
            if self.folder.plan().get("about") != self.about:
                raise planned_otherwise(self.folder)

    def _without(self, plan: FitPlan) -> dict[str, str]:
        """Return why the network or its prior cannot have some of the candidates, by name.

        Raises:
            UserError: an option that no candidate can have.
        """
        found = {}
        for variant in plan.candidates:
            own = Run(**{"task": plan.task, **plan.shared, **plan.final(variant.name, plan.budget)})
            schedule = variant.schedule or None
            try:
                methods.resolve(own, task=self.task, sampler=variant.sampler, schedule=schedule)
            except UserError as error:
                if variant.sampler != LAPLACE:
                    raise
                found[variant.name] = str(error)
        return found

    def _held_out(self) -> Task:
        """Return a task that cannot be divided from outside, made with a part held out."""
        options = dataclasses.replace(self.options, val_split=fitting.HELD_OUT)
        try:
            return make_task(options, options.task, self.given)
        except UserError as error:
            allowed = "have a split val, on which candidates are judged, or training examples that can be held out"
            raise UserError(f"task must {allowed}, got {options.task}: {error}") from None

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Keep the actors of all runs alive in the body, where they are not threads of this process."""
        if self.pool is not None or self.options.backend != "ray":
            yield
            return
        with worker_pool(self.options, name=self.name) as self.pool:
            yield

    def _plan(self, budget: int) -> FitPlan:
        return fitting.plan(
            self.options,
            budget=budget,
            examples=self.task.num_data,
            has_val="val" in list(self.task.splits()),
            several_folds=self.divisible,
            regression=family_of(self.task).numbers,
            labels=self.task.labels_per_example,
            batch_size=None if tasks.is_own(self.task.spec()) else defaults_of(self.task).batch_size,
            without=self.without,
        )

    def all(self) -> Result:
        """Run the pilots, rung by rung, and sample with what they choose on all data."""
        self.plan = self._stored_plan()
        names = [v.name for v in self.plan.candidates]
        judged: list[Judged] = []
        for rung in self.plan.rungs:
            following = self.plan.rungs[rung.number :]
            decision = self._decided(rung, names, following[0].candidates if following else 1)
            judged += decision
            kept = {one.candidate for one in decision if one.kept}
            names = [name for name in names if name in kept]
            self._say(_in_words(rung, decision))
        result = self._final({one.candidate: one.share for one in decision if one.kept}, judged)
        if self.options.reference:
            self._compare_with_networks(result)
        return result

    def _stored_plan(self) -> FitPlan:
        """Return the plan that the folder holds; a new one is stored."""
        if self.folder.exists():
            return FitPlan.from_json(self.folder.plan()["fit"])
        plan = self._plan(self.options.budget or BUDGET if self.options.minutes is None else self._affordable())
        self.folder.write_plan(
            {"command": "fit", "fit": plan.to_json(), "about": self.about, **origin("fit", self.options)}
        )
        rungs = ", then ".join(f"{r.candidates} candidates of {r.epochs} epochs" for r in plan.rungs)
        self._say(f"fit of {plan.budget:,} epochs: {rungs}, then the best on all data")
        for name, why in self.without.items():
            self._say(f"{name} is left out: {why.rpartition(': ')[2]}")
        return plan

    def _affordable(self) -> int:
        """Return the epochs that the minutes allow, by the time that the first few take."""
        assert self.options.minutes is not None
        first = self._plan(BUDGET)
        epochs = max(2, math.ceil(TIMED_STEPS / first.per_epoch))
        chains = next(v for v in first.candidates if v.name not in first.bases)
        variants = [first.of_length(chains, epochs, first.per_epoch)]
        preset = Preset(name="fit", about="the epochs that minutes allow", task=first.task, variants=variants)
        watch = _Stopwatch()
        planned = self._compared(first, preset, self.options.chains, self.task)
        self._run(f"{self.name}-timed", planned, self.given, watch, evaluate=False)
        seconds = max(watch.ended - watch.began, 1e-3)
        if not math.isfinite(seconds):
            raise UserError(f"name must be a new one, got {self.name!r}: its chains ran before their time was stored")
        return max(1, int(60 * self.options.minutes * epochs * self.options.chains / seconds))

    def _decided(self, rung: Rung, names: list[str], keep: int) -> list[Judged]:
        """Return the decision after a rung, of the store or taken now and stored."""
        stored = self.folder.decision(rung.number)
        if stored is not None:
            return [Judged(**row) for row in stored]
        folds, watches = [], [_Stopwatch() for _ in range(self.plan.folds)]
        for fold, watch in enumerate(watches):
            folds.append(self._pilots(rung, names, fold, watch))
        if all(watch.slots > 1 and watch.busy for watch in watches):
            busy, whole = (
                sum(s) for s in zip(*((w.busy, w.slots * (w.ended - w.began)) for w in watches), strict=True)
            )
            self._say(f"pilots {rung.number}: {watches[0].slots} chains at once, {busy / whole:.0%} of the time")
        tried = {name: _joined([fold[name] for fold in folds]) for name in names}
        decision = fitting.decide(tried, rung.number, keep, self.plan.bases)
        self.folder.publish_decision(rung.number, [dataclasses.asdict(one) for one in decision])
        return decision

    def _pilots(self, rung: Rung, names: list[str], fold: int, watch: _Stopwatch) -> dict[str, Tried]:
        """Run a rung's pilots on one fold; return what each candidate found."""
        task, given, held = self._on_fold(fold)
        preset = self.plan.pilots(rung, names)
        planned = self._compared(self.plan, preset, rung.chains, task, held, given)
        result = self._run(f"{self.name}-{rung.name(fold)}", planned, given, watch)
        return dict(zip(names, _tried(result, self.task.num_data), strict=True))

    def _on_fold(self, fold: int) -> tuple[Task, Task | None, dict[str, Any]]:
        """Return the task without a fold, the object where workers cannot make it, and the options that make it."""
        if not self.plan.held_out:
            return self.task, self.given, {}
        if self.part is not None:
            return self.part, None, {"val_split": self.plan.held_out}
        task = tasks.give(self.task.holding_out(self.plan.held_out, fold))
        return task, task if self.given is not None else None, {}

    def _compared(
        self,
        plan: FitPlan,
        preset: Preset,
        chains: int,
        task: Task,
        held: dict[str, Any] | None = None,
        given: Task | None = None,
    ) -> Planned:
        """Return the comparison of candidates on a task, evaluated on what is held out."""
        shared = {name: value for name, value in plan.shared.items() if held or name not in OF_TASK}
        options = Compare(task=plan.task, chains=chains, **{**shared, **(held or {})})
        planned = arms.arms_of(preset, options, None if held else task)
        split = "val" if "val" in list(task.splits()) else planned.comparison.split
        return dataclasses.replace(planned, comparison=dataclasses.replace(planned.comparison, split=split), notes=[])

    def _final(self, shares: dict[str, float], judged: list[Judged]) -> Result:
        """Sample with the chosen candidates on all data; what an earlier one did not need is the next one's."""
        left = self.plan.budget - sum(one.epochs for one in judged)
        made: list[Planned] = []
        for name in shares:
            last = len(made) == len(shares) - 1
            own = self._options(name, left if last else left * fitting.part(shares[name]))
            if name in self.plan.bases and not made:
                first = plans.run(Run(**own), self.given)
                run = self._run(f"{self.name}-{ENSEMBLE}", first, self.given, evaluate=False)
                cost = sum(_made(run).values()) / self.task.num_data
                if last:  # members that stopped early left room for others, in packs of the same width
                    width = first.comparison.arms[0].chains[0][0].pack
                    own |= {"chains": fitting.members(own["chains"], cost, left), "pack": str(width or "none")}
                left -= cost
            made.append(plans.run(Run(**own), self.given))
        folder = RunStore(self.root, self.name)
        folder.write_file(OPTIONS, json_bytes({name: value for name, value in own.items() if value is not None}))
        folder.write_table("choice", [dataclasses.asdict(one) for one in judged])
        drop: dict[str, Any] = {"on_divergence": "drop-chain"} if self.options.on_divergence == "stop" else {}
        return self._run(
            self.name, _together(made, shares), self.given, page=self.page, evaluate=self.page, least=1, **drop
        )

    def _options(self, name: str, epochs: float) -> dict[str, Any]:
        """Return the options of `raychains run` for a candidate on all data, in so many epochs of all chains."""
        return {"task": self.plan.task, **self.plan.shared, **self.plan.final(name, int(epochs))}

    def _compare_with_networks(self, result: Result) -> None:
        """Train plain networks at the fit's cost; write paired differences to the result, the table ``reference``."""
        own = {"task": self.plan.task, **self.plan.shared, **self.plan.candidates[0].options}
        own |= {"sampler": self.plan.candidates[0].sampler, "epochs": max(1, self.plan.budget // NETWORKS)}
        ours, rows = against.points(_rows(result)), []
        for who, chains in (("network", 1), ("ensemble", NETWORKS)):
            planned = plans.run(Run(**{**own, "chains": chains}), self.given)
            run = self._run(f"{self.name}-reference-{who}", planned, self.given)
            theirs, cost = against.points(_rows(run)), sum(_made(run).values()) / self.task.num_data
            for metric, found in bootstrap.paired(ours, theirs).items():
                values = {"value": float(ours[metric].mean()), "against": float(theirs[metric].mean())}
                ends = {"difference": found.value, "low": found.low, "high": found.high}
                rows.append({"reference": who, "metric": metric, **values, **ends, "epochs": cost})
                self._say(
                    f"{metric} {values['value']:.4f} beside {values['against']:.4f} of {REFERENCES[who]} "
                    f"({cost:.0f} epochs): difference {found.value:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
                )
        result.store.write_table("reference", rows)

    def _run(
        self,
        name: str,
        planned: Planned,
        given: Task | None,
        watch: _Stopwatch | None = None,
        *,
        page: bool = False,
        evaluate: bool = True,
        least: int = 0,
        **changed: Any,
    ) -> Result:
        """Run one comparison under a name, or go on with it.

        Args:
            least: chains that must be finished.

        Raises:
            ChainsFailed: fewer were.
        """
        options = dataclasses.replace(self.options, name=name, resume=True, **changed)
        callback = CallbackList([Unclosed(self.callback), *([] if watch is None else [watch])])
        workers = backend_of(self.options, self.pool)
        try:
            return sampling.execute("fit", options, planned, callback, given, workers, page=page, evaluate=evaluate)
        except ChainsFailed:
            folder = RunStore(self.root, name)
            rows = folder.table("failed")
            failed = {} if rows is None else {row["digest"]: row["reason"] for row in rows.to_pylist()}
            if least and len(planned.comparison.chains()) - len(failed) < least:
                raise
            return dataclasses.replace(load(folder.location(), given), failed=failed)
        except (Interrupted, RayLost) as error:
            raise type(error)(str(error).replace(f"`name={name}`", f"`name={self.name}`")) from None

    def _say(self, text: str) -> None:
        self.callback.on(Message(text=text))


def _divisible(task: Task) -> bool:
    """Return whether parts of the task's training examples can be held out from outside."""
    try:
        return task.holding_out(fitting.HELD_OUT) is not task
    except UserError:
        return False


def _rows(result: Result) -> dict[str, Any]:
    """Return the columns of a run's rows, one entry per example."""
    rows = result.store.table("rows")
    frame = rows.to_pandas() if rows is not None else pd.DataFrame()
    return {name: frame[name].to_numpy() for name in frame.columns}


def _made(result: Result) -> dict[str, int]:
    """Return the gradient evaluations of a run's chains by digest, those that stopped early with what they made."""
    root, specs = result.store.root, result.comparison.chains()
    finished = finished_chains(root, specs)
    return {
        digest: gradients_made(spec, ChainStore(root, digest).records())
        if digest in finished
        else gradient_evaluations(spec)
        for digest, spec in specs.items()
    }


def _tried(result: Result, examples: int) -> list[Tried]:
    """Return what each arm of a run found on the held-out examples."""
    rows = result.store.table("rows")
    frame = rows.to_pandas() if rows is not None else pd.DataFrame({"arm": []})
    made, found = _made(result), []
    for arm in result.comparison.arms:
        specs = result.comparison.needed(arm.chains[0])
        why = [result.failed[digest] for digest in specs if digest in result.failed]
        own = frame[frame["arm"] == arm.name]
        log_p = None
        if len(own) and not why:
            log_p = -np.asarray(metrics.POINTS["nll"]({n: own[n].to_numpy() for n in own.columns}), dtype=float)
        reason = f"{len(why)} of {len(specs)} chains failed: {why[0].splitlines()[-1]}" if why else ""
        found.append(Tried(log_p=log_p, epochs=sum(made[d] for d in specs) / examples, failed=reason))
    return found


def _together(made: Sequence[Planned], shares: Mapping[str, float]) -> Planned:
    """Return the comparison of one arm with the chains of all of these, the last one's first, each in its share."""
    arms, parts = [planned.comparison.arms[0] for planned in reversed(made)], [*shares.values()][::-1]
    if len(arms) == 1:
        return made[0]
    chains = tuple(spec for arm in arms for spec in arm.chains[0])
    label = " and ".join(f"{arm.label} ({part:.0%})" for arm, part in zip(arms, parts, strict=True))
    of_chains = tuple(part / len(arm.chains[0]) for arm, part in zip(arms, parts, strict=True) for _ in arm.chains[0])
    whole = dataclasses.replace(arms[0], name=f"{arms[0].name}-mixed", label=label, chains=(chains,), shares=of_chains)
    last = made[-1]
    notes = list(dict.fromkeys(note for planned in made for note in planned.notes))
    return dataclasses.replace(last, comparison=dataclasses.replace(last.comparison, arms=(whole,)), notes=notes)


def _joined(folds: list[Tried]) -> Tried:
    """Return what a candidate found on all folds."""
    failed = next((fold for fold in folds if fold.why_not), None)
    cost = sum(fold.epochs for fold in folds)
    if failed is not None:
        return Tried(log_p=None, epochs=cost, failed=failed.why_not)
    return Tried(log_p=np.concatenate([fold.log_p for fold in folds if fold.log_p is not None]), epochs=cost)


def _in_words(rung: Rung, decision: Sequence[Judged]) -> str:
    """Return a line on a decision."""
    kept = ", ".join(f"{one.candidate} ({one.density:.3f} ± {one.se:.3f}; {one.why})" for one in decision if one.kept)
    return f"pilots {rung.number}, held-out log density in nats: {kept}"
