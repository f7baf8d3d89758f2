"""The plan of `raychains fit`: candidates, the rungs in which pilots try them, and the decision after each rung.

A decision is a function of held-out log densities alone, so that a fit that is resumed takes the same one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raychains.core.config import Compare, Fit
from raychains.core.errors import UserError, require
from raychains.planning import draws
from raychains.planning.ensemble_start import METHOD as ENSEMBLE
from raychains.planning.presets.named import Preset, Variant

PILOTS = 1 / 3
"""Share of the budget that pilots may take."""
HELD_OUT = 1 / 6
"""Share of the training examples that a fold holds out."""
FEW = 600
"""Training examples below which there are `FOLDS` folds."""
FOLDS = 3
LONGEST_BATCH, SMALL_BATCH, SMALL = 128, 32, 10_000
"""Batch sizes of a network of one's own: 32 with fewer than 10,000 examples."""
PATIENCE = 20
"""Epochs without a lower loss after which a member of a deep ensemble stops."""
MEMBERS = 0.5
"""Share of a chain's epochs that the member takes at which it starts."""


LONG = 2_000
"""Steps of a chain from which on its step size has `CYCLES` cycles; a shorter one has a single one."""
CYCLES = 4
DRAWS = 12
"""Kept draws of each chain, where there is room."""
EXPLORATION = 0.6
"""β of a chain that starts at random; one that starts at a trained member has noise from its first step on."""


def _candidate(name: str, sampler: str, label: str, **options: Any) -> Variant:
    return Variant(name, label, sampler=sampler, options=options)


def _warm(lr: float, sampler: str) -> dict[str, Any]:
    return {"init_from": ENSEMBLE, "lr": f"{sampler}={lr},{ENSEMBLE}={MEMBER_LR}"}


MEMBER_LR = 0.003
UNIT: Mapping[str, Any] = {"prior": ("gaussian:1",)}
PSGLD: Mapping[str, Any] = {"sampler_settings": ("eps=0.001",)}
CANDIDATES: tuple[Variant, ...] = (
    _candidate("warm-cpsgld", "cpsgld", "lr .003 from trained members", **_warm(0.003, "cpsgld"), **UNIT, **PSGLD),
    _candidate("warm-csghmc", "csghmc", "lr .01 from trained members", **_warm(0.01, "csghmc"), **UNIT),
    _candidate("csghmc", "csghmc", "lr .03", lr=0.03, **UNIT),
    _candidate("deep-ensemble", ENSEMBLE, "lr .003", lr=MEMBER_LR, weight_decay=0.01),
)
"""In the order in which a tie is decided: the first of those within a standard error of the best."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """Pilots of equal length, which try those candidates that are left."""

    number: int
    """From 1."""
    candidates: int
    """How many candidates it tries."""
    chains: int
    """Chains of each on each fold."""
    epochs: int
    """Epochs of each chain, those of the member that it starts at included."""

    def name(self, fold: int) -> str:
        """Return the end of the name of its run on a fold."""
        return f"pilots-{self.number}-fold-{fold}"


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """Everything that a fit does but for what its pilots decide."""

    task: str
    budget: int
    """Epochs of all chains together, those of pilots included."""
    folds: int
    held_out: float
    """Share of the training examples that each fold holds out; 0 where the task has a split ``val``."""
    chains: int
    """Chains of the run on all data."""
    candidates: tuple[Variant, ...]
    rungs: tuple[Rung, ...]
    per_epoch: int
    """Steps of an epoch on all training examples."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Options that all chains share."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        found = dataclasses.asdict(self)
        found["candidates"] = [_variant_json(v) for v in self.candidates]
        found["rungs"] = [dataclasses.asdict(r) for r in self.rungs]
        return {**found, "shared": {n: list(v) if isinstance(v, tuple) else v for n, v in self.shared.items()}}

    @classmethod
    def from_json(cls, data: Any) -> FitPlan:
        """Return the plan that `to_json` wrote.

        Raises:
            UserError: it is none.
        """
        try:
            own = dict(data)
            own["candidates"] = tuple(_variant(v) for v in own["candidates"])
            own["rungs"] = tuple(Rung(**r) for r in own["rungs"])
            own["shared"] = {n: tuple(v) if isinstance(v, list) else v for n, v in own["shared"].items()}
            return cls(**own)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise UserError(f"plan: not a fit that this version reads ({type(error).__name__}: {error})") from None

    def pilots(self, rung: Rung, names: Sequence[str]) -> Preset:
        """Return the comparison of the candidates of these names in a rung."""
        variants = [self.of_length(v, rung.epochs) for v in self.candidates if v.name in names]
        return Preset(name="fit", about=f"pilots of {rung.epochs} epochs", task=self.task, variants=variants)

    def final(self, name: str, left: int) -> dict[str, Any]:
        """Return the options of `raychains run` that sample with a candidate on all data.

        Args:
            name: the candidate's.
            left: epochs that pilots left over.
        """
        variant = self.of_length(self.candidate(name), left // self.chains)
        own = {"sampler": variant.sampler, "schedule": variant.schedule or None, "chains": self.chains}
        return {**own, **variant.options}

    def candidate(self, name: str) -> Variant:
        """Return the candidate of a name."""
        return next(v for v in self.candidates if v.name == name)

    def of_length(self, variant: Variant, epochs: int) -> Variant:
        """Return a candidate whose chains have so many epochs, those of members that they start at included."""
        options, exploration = {**variant.options, "epochs": epochs}, EXPLORATION
        if options.get("init_from") == ENSEMBLE:
            members, exploration = max(1, int(epochs * MEMBERS)), 0.0
            options |= {"epochs": epochs - members, "init_from": f"{ENSEMBLE}:{members},{PATIENCE}"}
        if variant.sampler != ENSEMBLE:
            steps = max(1, int(options["epochs"] * self.per_epoch * (1 - self.held_out)))
            kept = max(1, min(DRAWS, int(0.9 * (1 - exploration) * steps)))
            cycles = CYCLES if steps >= LONG and kept >= CYCLES else 1
            options |= draws.cyclical(steps, kept, cycles, exploration)
        return dataclasses.replace(variant, options=options)


def _variant_json(variant: Variant) -> dict[str, Any]:
    options = {n: list(v) if isinstance(v, tuple) else v for n, v in variant.options.items()}
    own = {"name": variant.name, "label": variant.label, "sampler": variant.sampler, "schedule": variant.schedule}
    return {**own, "options": options}


def _variant(data: Mapping[str, Any]) -> Variant:
    options = {n: tuple(v) if isinstance(v, list) else v for n, v in data["options"].items()}
    return Variant(data["name"], data["label"], data["sampler"], options, (), data["schedule"])


def plan(
    options: Fit, *, budget: int, examples: int, has_val: bool, several_folds: bool, batch_size: int | None
) -> FitPlan:
    """Return the plan of a fit.

    Args:
        options: what the user asks for.
        budget: epochs of all chains together.
        examples: N, the training examples.
        has_val: the task has a split ``val``, on which candidates are judged.
        several_folds: other parts of the training examples can be held out.
        batch_size: the task's; None chooses one by the number of examples.

    Raises:
        UserError: a budget too small for pilots and chains, or folds that cannot be made.
    """
    folds = options.folds
    if has_val or not several_folds:
        why = "it has a split val" if has_val else "only tasks of Task.from_module can be divided in several ways"
        require(folds in (None, 1), "folds", folds, f"be left out for task {options.task}: {why}")
        folds = 1
    elif folds is None:
        folds = FOLDS if examples < FEW else 1
    candidates = tuple(_with_prior(v, options) for v in CANDIDATES)
    rungs = _rungs(int(budget * PILOTS), len(candidates), folds)
    least = math.ceil(_spent(_rungs(0, len(candidates), folds), folds) / PILOTS)
    require(budget >= least, "budget", budget, f"be at least {least} epochs for {len(candidates)} candidates")
    shared = _shared(options)
    if options.batch_size is None and batch_size is None:
        shared["batch_size"] = min(SMALL_BATCH if examples < SMALL else LONGEST_BATCH, examples)
    return FitPlan(
        task=options.task,
        budget=budget,
        folds=folds,
        held_out=0.0 if has_val else HELD_OUT,
        chains=options.chains,
        candidates=candidates,
        rungs=rungs,
        per_epoch=math.ceil(examples / (shared.get("batch_size") or batch_size or examples)),
        shared=shared,
    )


def _with_prior(variant: Variant, options: Fit) -> Variant:
    """Return a candidate with the prior that the user states, if there is one; an optimiser keeps its weight decay."""
    if not options.prior or "prior" not in variant.options:
        return variant
    return dataclasses.replace(variant, options={**variant.options, "prior": options.prior})


def _rungs(epochs: int, candidates: int, folds: int) -> tuple[Rung, ...]:
    """Return two rungs that share so many epochs: the second has a third of the candidates, two at least."""
    found = []
    for number, tried in enumerate((candidates, max(2, round(candidates / 3))), start=1):
        chains = 2 if folds == 1 else 1
        each = max(4, epochs // 2 // (tried * chains * folds) // 2 * 2)
        found.append(Rung(number=number, candidates=tried, chains=chains, epochs=each))
    return tuple(found)


def _spent(rungs: Sequence[Rung], folds: int) -> int:
    return sum(r.candidates * r.chains * r.epochs * folds for r in rungs)


SHARED = (
    "val_split",
    "train_subset",
    "task_settings",
    "batch_size",
    "micro_batch",
    "batchnorm",
    "precision",
    "compile",
    "pack",
)
"""Options of `Fit` that all chains have."""


def _shared(options: Fit) -> dict[str, Any]:
    plain = Compare()
    found = {name: getattr(options, name) for name in (*SHARED, "seed", "fast", "exact", "cpus_per_chain")}
    return {name: value for name, value in found.items() if value != getattr(plain, name)}


# Decisions


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What one rung's pilots of a candidate found."""

    log_p: np.ndarray[Any, Any] | None
    """log p(y | x) of each held-out example under the candidate's predictive, in nats, [examples of all folds]; None: it failed."""
    epochs: float
    """What its pilots cost, in epochs of all training examples."""
    failed: str = ""
    """Why it has no predictive."""

    @property
    def why_not(self) -> str:
        """Return why it cannot be chosen; empty where it can."""
        if self.log_p is None:
            return self.failed or "no chain was finished"
        return "" if np.isfinite(self.log_p).all() else "its log density is not finite on held-out examples"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A candidate after a rung: a row of the table ``choice``."""

    rung: int
    candidate: str
    epochs: float
    density: float
    """Mean held-out log density in nats."""
    se: float
    """Its standard error over examples."""
    behind: float
    """Mean difference of the best candidate's log density and its own, on the same examples."""
    behind_se: float
    kept: bool
    why: str
    """Why it was dropped, or chosen."""


def decide(tried: Mapping[str, Tried], rung: int, keep: int) -> list[Judged]:
    """Return every candidate after a rung, the best first.

    Args:
        tried: by candidate, in the order in which ties are decided.
        rung: the rung's number.
        keep: how many candidates the next rung has; 1 chooses the first of those within one standard error of the best.

    Raises:
        UserError: no candidate has a predictive.
    """
    able = {name: t.log_p for name, t in tried.items() if not t.why_not and t.log_p is not None}
    if not able:
        reasons = "; ".join(f"{name}: {t.why_not}" for name, t in tried.items())
        raise UserError(f"task must be one that some candidate can sample, got none: {reasons}")
    order = sorted(able, key=lambda name: -float(able[name].mean()))
    best = able[order[0]]
    behind = {name: _mean_se(best - able[name]) for name in order}
    tied = [name for name in able if behind[name][0] <= behind[name][1]]
    kept = order[:keep] if keep > 1 else tied[:1]
    found = []
    for name in [*order, *(n for n in tried if n not in able)]:
        one = tried[name]
        density, se = _mean_se(able[name]) if name in able else (math.nan, math.nan)
        away, away_se = behind.get(name, (math.nan, math.nan))
        if name in kept:
            why = "chosen" if keep == 1 else "tried longer"
        elif name in able:
            why = f"{away:.3f} ± {away_se:.3f} nats behind {order[0]}"
        else:
            why = one.why_not
        found.append(
            Judged(
                rung=rung, candidate=name, epochs=one.epochs, density=density, se=se, behind=away, behind_se=away_se,
                kept=name in kept, why=why,
            )
        )  # fmt: skip
    return found


def _mean_se(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the mean and its standard error, 0 of a single value."""
    n = len(values)
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else 0.0
