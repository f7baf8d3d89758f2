"""The plan of `raychains fit`: candidates, the rungs in which pilots try them, and the decision after each rung.

A decision is a function of held-out log densities alone, so that a fit that is resumed takes the same one.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raychains import samplers
from raychains.core.config import Compare, Fit
from raychains.core.errors import UserError, require
from raychains.evaluation.averaging_weights import stack
from raychains.planning import thinning
from raychains.planning.ensemble_start import METHOD as ENSEMBLE
from raychains.planning.presets.named import Preset, Variant
from raychains.tasks.user_defaults import LARGE_BATCH, SMALL_BATCH, SMALL_DATA

PILOTS = 1 / 4
"""Share of the budget that pilots may take."""
HELD_OUT = 1 / 6
"""Share of the training examples that a fold holds out."""
FEW = 600
"""Training examples below which there are `FOLDS` folds."""
FOLDS = 3
LONG_PILOT = 100
"""Epochs of a chain from which on pilots have two rungs; shorter ones are not halved once more."""
PARTS = (1 / 3, 2 / 3)
"""Least and most of what pilots left over that the base takes beside another candidate; between them it is its
share."""
LEAST_SHARE = 0.1
"""Share of a predictive below which a candidate is left out of it, and that the base has at least: it is there where
chains fail."""
EXTRAPOLATION_LIMIT = 4
"""How many times as long as its last pilots a candidate's chains are at most: what held for those may not hold for much
longer ones. More chains take the rest."""
MOST_CHAINS, ROOM = 20, 0.9
"""Most chains of a candidate, and the share of what is left that members of an ensemble alone are planned to take."""
PSEUDO = 1
"""Held-out examples added for each of two candidates alone, so that few examples do not give one of them all weight."""
CYCLE_STEPS = 500
"""Steps of a cycle at least: a chain of fewer than `CYCLES` times as many has a single one."""
CYCLES = 4
DRAWS = 12
"""Kept draws of each chain, where there is room."""
EXPLORATION = {1: 0.6, CYCLES: 0.8}
"""β by the number of cycles."""

UNIT, DECAY = ("gaussian:1",), {"weight_decay": 0.01}


def candidates(regression: bool, labels: float = 1.0) -> tuple[Variant, ...]:
    """Return the candidates in the order of ties, those that may be the base first.

    Gradients of a regression, divided by its noise, ask for shorter steps; csghmc's chains diverge on too many of them.
    So do those of a sum over ``labels`` of an example.
    """
    lr = (0.01 if regression else 0.03) / labels
    bases = [
        Variant(f"{ENSEMBLE}-{rate:g}", f"AdamW, lr {rate:g}", ENSEMBLE, {"lr": rate, **DECAY}, schedule="linear")
        for rate in (0.01, 0.02)
    ]
    eps = ("eps=0.001",)
    others = [
        Variant("csghmc", f"lr {lr:g}", sampler="csghmc", options={"lr": lr, "prior": UNIT}),
        Variant("cpsgld", "lr .003", sampler="cpsgld", options={"lr": 0.003, "prior": UNIT, "sampler_settings": eps}),
        Variant("laplace", f"lr {lr:g}", sampler="laplace", options={"lr": lr, "prior": UNIT}, schedule="linear"),
    ]
    return (*bases, *others[regression:])


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
    """Epochs of each chain."""

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
    per_pilot_epoch: int
    """Steps of an epoch of pilots, at least."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Options that all chains share."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return found

    @classmethod
    def from_json(cls, data: Any) -> FitPlan:
        """Return the plan that `to_json` wrote.

        Raises:
            UserError: it is none.
        """
        try:
            own = {**data, "shared": _with_tuples(data["shared"])}
            variants = [{**v, "options": _with_tuples(v["options"]), "variables": ()} for v in data["candidates"]]
            own["candidates"] = tuple(Variant(**v) for v in variants)
            own["rungs"] = tuple(Rung(**r) for r in data["rungs"])
            return cls(**own)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise UserError(f"plan: not a fit that this version reads ({type(error).__name__}: {error})") from None

    def pilots(self, rung: Rung, names: Sequence[str]) -> Preset:
        """Return the comparison of the candidates of these names in a rung."""
        variants = [self.of_length(v, rung.epochs, self.per_pilot_epoch) for v in self.candidates if v.name in names]
        return Preset(name="fit", about=f"pilots of {rung.epochs} epochs", task=self.task, variants=variants)

    def final(self, name: str, epochs: int) -> dict[str, Any]:
        """Return the options of `raychains run` for a candidate on all data, in so many epochs of all chains."""
        chains = max(self.chains, min(MOST_CHAINS, epochs // (EXTRAPOLATION_LIMIT * self.rungs[-1].epochs)))
        variant = self.of_length(self.candidate(name), max(2, epochs // chains), self.per_epoch)
        own = {"sampler": variant.sampler, "schedule": variant.schedule or None, "chains": chains}
        return {**own, **variant.options}

    @property
    def bases(self) -> list[str]:
        """Return the names of the candidates that the others may be mixed with."""
        return [v.name for v in self.candidates if v.sampler == ENSEMBLE]

    def candidate(self, name: str) -> Variant:
        """Return the candidate of a name."""
        return next(v for v in self.candidates if v.name == name)

    def of_length(self, variant: Variant, epochs: int, per_epoch: int) -> Variant:
        """Return a candidate whose chains have so many epochs of so many steps."""
        options = {**variant.options, "epochs": epochs}
        if samplers.method(variant.sampler).schedule == "cyclical":
            steps = epochs * per_epoch
            cycles = CYCLES if steps >= CYCLES * CYCLE_STEPS else 1
            kept = max(1, min(DRAWS, int(0.9 * (1 - EXPLORATION[cycles]) * steps)))
            options |= thinning.cyclical(steps, kept, cycles, EXPLORATION[cycles])
        return dataclasses.replace(variant, options=options)


def _with_tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of options with tuples in place of JSON's lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def plan(
    options: Fit,
    *,
    budget: int,
    examples: int,
    has_val: bool,
    several_folds: bool,
    regression: bool,
    labels: float = 1.0,
    batch_size: int | None,
    without: Collection[str] = (),
) -> FitPlan:
    """Return the plan of a fit.

    Args:
        options: what the user asks for.
        budget: epochs of all chains together.
        examples: N, the training examples.
        has_val: the task has a split ``val``, on which candidates are judged.
        several_folds: other parts of the training examples can be held out.
        regression: the task predicts numbers.
        labels: `Task.labels_per_example`.
        batch_size: the task's; None chooses one by the number of examples.
        without: candidates that the network cannot have.

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
    tried = tuple(_with_prior(v, options) for v in candidates(regression, labels) if v.name not in without)
    rungs = _rungs(int(budget * PILOTS), len(tried), folds)
    least = math.ceil(_spent(_rungs(0, len(tried), folds), folds) / PILOTS)
    require(budget >= least, "budget", budget, f"be at least {least} epochs for {len(tried)} candidates")
    shared = _shared(options)
    learned = examples if has_val else int(examples * (1 - HELD_OUT))
    if options.batch_size is None and batch_size is None:
        shared["batch_size"] = min(SMALL_BATCH if examples < SMALL_DATA else LARGE_BATCH, max(1, learned))
    batch = shared.get("batch_size") or batch_size or examples
    return FitPlan(
        task=options.task,
        budget=budget,
        folds=folds,
        held_out=0.0 if has_val else HELD_OUT,
        chains=options.chains,
        candidates=tried,
        rungs=rungs,
        per_epoch=math.ceil(examples / batch),
        per_pilot_epoch=max(1, learned // batch),
        shared=shared,
    )


def _with_prior(variant: Variant, options: Fit) -> Variant:
    """Return a candidate with the prior that the user states, if there is one; an optimiser keeps its weight decay."""
    if not options.prior or "prior" not in variant.options:
        return variant
    return dataclasses.replace(variant, options={**variant.options, "prior": options.prior})


def _rungs(epochs: int, candidates: int, folds: int) -> tuple[Rung, ...]:
    """Return one rung of so many epochs; where chains are long two that share them, the second with half the
    candidates."""
    chains = 2 if folds == 1 else 1
    each = epochs // (candidates * chains * folds)
    if each < LONG_PILOT:
        return (Rung(number=1, candidates=candidates, chains=chains, epochs=max(4, each // 2 * 2)),)
    return tuple(
        Rung(number=n, candidates=tried, chains=chains, epochs=epochs // 2 // (tried * chains * folds) // 2 * 2)
        for n, tried in ((1, candidates), (2, max(2, candidates // 2)))
    )


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
    return {"repeats": 1, **{name: value for name, value in found.items() if value != getattr(plain, name)}}


# Decisions


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What one rung's pilots of a candidate found."""

    log_p: np.ndarray[Any, Any] | None
    """log p(y | x) in nats of each held-out example of all folds under the predictive, [n]; None: it failed."""
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


Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A candidate after a rung: a row of the table ``choice``."""

    rung: int
    candidate: str
    epochs: float
    """What its pilots cost, in epochs of all training examples."""
    density: float
    """Mean held-out log density in nats."""
    se: float
    """Its standard error over examples."""
    mixed: float
    """Mean held-out log density of its mixture with the base, by the weights that stack them."""
    share: float
    """Its share of that mixture; after the last rung its share of the final predictive."""
    kept: bool
    why: str
    """Why it was dropped, or its part in what follows."""


def decide(tried: Mapping[str, Tried], rung: int, keep: int, bases: Collection[str]) -> list[Judged]:
    """Return every candidate after a rung, the base first and the others by the density of their mixtures with it.

    The base is the best of several, or the first one within one standard error of it. Each other candidate is mixed
    with it by the weights that stack the two on the held-out examples (`raychains.evaluation.averaging_weights.stack`),
    with `PSEUDO` examples for either alone. With ``keep`` above 1 the base and the ``keep`` − 1 best others go on. With
    1 the final predictive is chosen: the base mixed with the first of the others whose mixture lies within one standard
    error of the best one; the other one is left out with a share of less than `LEAST_SHARE`, and the base has at least
    that.

    Args:
        tried: by candidate, in the order in which ties are decided.
        rung: the rung's number.
        keep: how many candidates the next rung has.
        bases: the candidates that may be the base; where all of them failed it is the first of the others.

    Raises:
        UserError: no candidate has a predictive.

    Source: Yao, Vehtari, Simpson & Gelman 2018, for stacking.
    """
    able = {name: t.log_p for name, t in tried.items() if not t.why_not and t.log_p is not None}
    if not able:
        reasons = "; ".join(f"{name}: {t.why_not}" for name, t in tried.items())
        raise UserError(f"task must be one that some candidate can sample, got none: {reasons}")
    ranking = _ranked(able, bases)
    kept, tied = ranking.order[:keep], list[str]()
    if keep == 1:
        parts, tied = _final(ranking)
        kept, ranking = list(parts), dataclasses.replace(ranking, shares=parts)
    found = []
    for name in [*ranking.order, *(n for n in tried if n not in able)]:
        density, se = _mean_se(able[name]) if name in able else (math.nan, math.nan)
        mixed, share = ranking.mean(name), ranking.shares.get(name, 0.0)
        if name in kept:
            why = "tried longer" if keep > 1 else f"{share:.0%} of the predictive"
        else:
            why = tried[name].why_not or _why_dropped(name, ranking, tied)
        found.append(
            Judged(
                rung=rung, candidate=name, epochs=tried[name].epochs, density=density, se=se, mixed=mixed, share=share,
                kept=name in kept, why=why,
            )
        )  # fmt: skip
    return found


@dataclass(frozen=True, kw_only=True)
class _Ranking:
    """The candidates that have a predictive: the base first, the others by the density of their mixtures with it."""

    order: list[str]
    shares: Mapping[str, float]
    """In their mixtures with the base, or in the final predictive."""
    mixtures: Mapping[str, Numbers]
    """Log densities [examples]."""

    def mean(self, name: str) -> float:
        """Return the mean log density of a mixture, NaN of a candidate without a predictive."""
        return float(self.mixtures[name].mean()) if name in self.mixtures else math.nan


def _ranked(able: Mapping[str, Numbers], bases: Collection[str]) -> _Ranking:
    leading = [name for name in able if name in bases] or list(able)[:1]
    base = _within_se({name: able[name] for name in leading})[0]
    others = [name for name in able if name not in leading] + [name for name in leading if name != base]
    shares = {name: stacked(able[base], able[name]) for name in others}
    mixtures = {name: mixture(able[base], able[name], share) for name, share in shares.items()}
    order = sorted(others, key=lambda name: -float(mixtures[name].mean()))
    return _Ranking(order=[base, *order], shares={**shares, base: 1.0}, mixtures={**mixtures, base: able[base]})


def _final(ranking: _Ranking) -> tuple[dict[str, float], list[str]]:
    """Return the parts of the final predictive, and the candidates whose mixtures are as good as the best, the chosen
    first."""
    base, *others = ranking.order
    if not others:
        return {base: 1.0}, []
    # In the order in which ties are decided, which is that of the shares.
    tied = _within_se({name: ranking.mixtures[name] for name in ranking.shares if name != base})
    share = min(ranking.shares[tied[0]], 1 - LEAST_SHARE)
    left = {name: part for name, part in ((base, 1 - share), (tied[0], share)) if part >= LEAST_SHARE}
    return {name: part / sum(left.values()) for name, part in left.items()}, tied


def _why_dropped(name: str, ranking: _Ranking, tied: Sequence[str]) -> str:
    base, best, *_ = ranking.order
    if name in (base, *tied[:1]):
        return f"a share below {LEAST_SHARE:.0%}"
    if name in tied:
        return f"tied with {tied[0]}, which comes first"
    return f"{ranking.mean(best) - ranking.mean(name):.3f} nats behind {best}"


def part(share: float) -> float:
    """Return the part of what pilots left over that the base takes beside another candidate."""
    return min(max(share, PARTS[0]), PARTS[1])


def members(first: int, cost: float, left: float) -> int:
    """Return how many members an ensemble has where the first ones cost so many of the epochs that are left."""
    return max(first, min(MOST_CHAINS, int(ROOM * left * first / max(cost, 1e-9))))


def _within_se(log_p: Mapping[str, Numbers]) -> list[str]:
    """Return the names of those within one standard error, of the paired difference, of the best one."""
    best = max(log_p.values(), key=lambda values: float(values.mean()))
    behind = {name: _mean_se(best - values) for name, values in log_p.items()}
    return [name for name, (mean, se) in behind.items() if mean <= se]


def stacked(base: Numbers, other: Numbers) -> float:
    """Return the share of ``other`` that stacks two predictives, from their log densities [examples], with `PSEUDO`
    examples of either alone."""
    alone = np.full((2, PSEUDO), [[0.0], [-np.inf]])
    logs = np.concatenate([np.stack([base, other]), alone, alone[::-1]], axis=1)
    return float(stack(logs)[1])


def mixture(base: Numbers, other: Numbers, share: float) -> Numbers:
    """Return the log density [examples] of (1 − share)·base + share·other."""
    with np.errstate(divide="ignore"):
        return np.logaddexp(base + np.log1p(-share), other + np.log(share))


def _mean_se(values: Numbers) -> tuple[float, float]:
    """Return the mean and its standard error, 0 of a single value."""
    n = len(values)
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else 0.0
