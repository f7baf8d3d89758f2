"""What is suspect in a finished run, in sentences: metrics that are no numbers, losses that still fall, temperatures,
R-hat.

A run that is as it should be has none. They are functions of what the store holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raychains import schedules
from raychains.core.errors import RaychainsError
from raychains.core.sample import THETA
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array
from raychains.inference import results
from raychains.inference.run_data import RunData, built_in_metrics
from raychains.measures import temperatures
from raychains.measures.diagnostics import CHAIN
from raychains.measures.draws import ENTROPY, P_LABEL
from raychains.planning import Arm
from raychains.plotting.layout import sentence

FEWEST = 4
"""Kept samples of a chain from which on quarters of them are compared."""
STILL_FALLING = 0.05
"""Share of the whole fall since the first record by which the loss may fall between the last two quarters of the
samples: at the default settings of digits it is below .02."""
NATS = 10.0
"""The fall in nats of all data (times T above 1) that counts: chains at a trained start have next to nothing to
lose."""
OFF = 0.25
"""Relative distance of a kinetic temperature from T, which is below .1 where chains are well."""
R_HAT = 2.0
"""R-hat of what networks predict on average: chains in several modes are at 1.1 to 1.7 at the default settings of
digits."""


def of_run(run: RunData) -> list[str]:
    """Return a sentence for everything that is suspect; none where the store cannot be read, which others report."""
    found: list[str] = []
    for check in (not_numbers, falling, temperature, mixing):
        try:
            found += check(run)
        except RaychainsError:
            continue
    return found


def not_numbers(run: RunData) -> Iterator[str]:
    """Say of which metrics the table has no number although the arm was evaluated, and why."""
    own = {m.name for m in run.measured} - {m.name for m in built_in_metrics(run.results.columns)}
    for arm in run.comparison.arms:
        mine = run.of(run.results, arm)
        by_reason: dict[str, list[str]] = {}
        for metric in run.measured:
            bad = mine[~np.isfinite(mine[metric.name].to_numpy(dtype=float))] if len(mine) else mine
            if not len(bad):
                continue
            repeat = int(bad["repeat"].iloc[0])
            if (sample := _first_bad(run, arm, repeat, metric.name)) is not None:
                reason = (
                    f"sample {sample} of {int(bad['samples'].iloc[0])} is the first whose predictions are not finite"
                )
            elif metric.name in own:
                reason = "the metric's function raised an error, which the log has, or returned no finite number"
            else:
                reason = f"it is not defined for these predictions on the split “{run.comparison.split}”"
            where = f" in {len(bad)} of {len(mine)} repeats" if len(mine) > 1 else ""
            by_reason.setdefault(f"no finite number{where}: {reason}", []).append(metric.label)
        for reason, labels in by_reason.items():
            yield f"{sentence(labels)} of {arm.label}: {reason}"


def _first_bad(run: RunData, arm: Arm, repeat: int, metric: str) -> int | None:
    """Return how many first samples of a repeat make a predictive without a finite metric, if all of them do."""
    curve = run.of(run.curves, arm)
    if metric not in curve:
        return None
    curve = curve[curve["repeat"] == repeat].sort_values("samples")
    finite = np.isfinite(curve[metric].to_numpy(dtype=float))
    if not len(finite) or finite[-1]:
        return None
    return int(curve["samples"].iloc[len(finite) - int(np.argmax(finite[::-1])) if finite.any() else 0])


def falling(run: RunData) -> Iterator[str]:
    """Say of which arms the chains' training losses still fall while they keep samples."""
    for arm in run.comparison.arms:
        fell, whole, nats = 0.0, 0.0, 0.0
        for spec in (spec for spec in run.chains(arm) if spec.digest in run.finished):
            kept, losses = _train_nll(run, spec), run.losses(spec)
            if len(kept) < FEWEST or not losses:
                continue
            before, last = (float(part.mean()) for part in np.array_split(kept[len(kept) // 2 :], 2))
            fell, whole = fell + before - last, whole + losses[0][1] - last
            heat = max(1.0, float(schedules.build(spec.schedule).temperature))
            nats = max(nats, (before - last) * int(spec.sampler.settings.get("num_data", 0)) / heat)
        if whole > 0 and fell > STILL_FALLING * whole and nats > NATS:
            yield (
                f"{arm.label}: the training loss still falls, between the last two quarters of the samples by "
                f"{fell / whole:.0%} of its whole fall: more epochs may help"
            )


def _train_nll(run: RunData, spec: ChainSpec) -> Array:
    """Return the training losses of a chain's samples in their order."""
    metas = (record.meta for record in run.chain(spec.digest).records() if record.meta.variable == THETA)
    return np.array([meta.train_nll for meta in metas if meta.train_nll is not None], dtype=float)


def temperature(run: RunData) -> Iterator[str]:
    """Say of which arms the momenta have another temperature than was set, changes of the step size taken out."""
    for arm in run.comparison.arms:
        specs = run.chains(arm)
        t = float(schedules.build(arm.chains[0][0].schedule).temperature)
        momentum = float(arm.chains[0][0].sampler.settings.get("momentum", 0.0))
        if t <= 0 or momentum <= 0 or not any(spec.digest in run.finished for spec in specs):
            continue
        found, _ = temperatures.of_chains(run.store.root, specs)
        if np.isfinite(found.error) and abs(found.value - t) > max(OFF * t, 3 * found.error):
            yield (
                f"{arm.label}: the momenta have the temperature {found.value:.3g} instead of {t:g}: a shorter step or "
                "larger batches may help"
            )


def mixing(run: RunData) -> Iterator[str]:
    """Say of which arms the chains disagree in what they predict, where the measure `diagnostics` was computed."""
    found = results.read_rows(run.store, "diagnostics", texts=("arm", "quantity", "unit"), numbers=("r_hat",))
    for arm in run.comparison.arms if found is not None else ():
        mine = run.of(found, arm)
        worst = mine[(mine["unit"] == CHAIN) & mine["quantity"].isin([P_LABEL, ENTROPY])]["r_hat"].max()
        if worst > R_HAT:
            yield f"{arm.label}: the chains predict differently, R-hat is {worst:.2f}: longer chains may help"
