"""Kinetic temperatures of finished chains, from their progress records: samples hold no momenta."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from raychains import samplers, schedules
from raychains.analyses.followed import finished
from raychains.evaluation import diagnostics
from raychains.evaluation.diagnostics import Estimate
from raychains.samplers.velocity import VelocitySampler
from raychains.schedules import Schedule
from raychains.spec import ChainSpec
from raychains.store import ChainStore, Root


def of_chains(root: Root, chains: Sequence[ChainSpec]) -> tuple[Estimate, int]:
    """⟨p·∇K⟩/d of a group's finished chains over their records at the sampling temperature, and how many those are.

    The estimate is nan where no record counts: see `usable`.
    """
    series = []
    for _, spec in finished(root, chains):
        schedule, momentum = schedules.build(spec.schedule), float(spec.sampler.settings.get("momentum", 0.0))
        remembers = issubclass(samplers.KINDS[spec.sampler.kind], VelocitySampler)
        found = []
        for record in ChainStore(root, spec.digest).progress():
            value, step = record.get("kinetic_temperature"), int(record["step"])
            if value is not None and not math.isnan(value) and usable(schedule, step, momentum):
                found.append(value * (lr_share(schedule, step, momentum) if remembers else 1.0))
        series.append(found)
    least = min(len(s) for s in series)
    if not least:
        return Estimate(value=float("nan"), error=float("nan")), 0
    return diagnostics.mean(np.array([s[len(s) - least :] for s in series])), least * len(series)


def window(momentum: float) -> int:
    """Steps after which momenta have forgotten what was before, to e^-10 of their variance."""
    return math.ceil(5 / (1 - momentum))


def usable(schedule: Schedule, step: int, momentum: float) -> bool:
    """Whether the noise has been that of the sampling temperature for long enough: not after noise-free exploration."""
    before = step - window(momentum)
    return before >= 1 and schedule.at(before).temperature == schedule.at(step).temperature == schedule.temperature


def lr_share(schedule: Schedule, step: int, momentum: float) -> float:
    """lr_k·T / ((1−m²)·Σ_j m^{2j}·lr_{k−j}·T_{k−j}): what a changing lr does to N(1+m)‖v‖²/(2·lr·d), taken out.

    v_k is a sum of m^j times the noise of step k − j, whose variance goes with lr·T of *that* step; at the end of a
    cosine cycle the last lr is far below those.
    """
    ages = np.arange(min(step, 2 * window(momentum)))
    settings = [schedule.at(step - int(j)) for j in ages]
    heats = np.array([s.lr * s.temperature for s in settings])
    return float(heats[0] / ((1 - momentum**2) * (momentum ** (2.0 * ages) * heats).sum()))


def row(root: Root, chains: Sequence[ChainSpec]) -> dict[str, Any]:
    """What `raychains.analyses.temperatures` says of a group whose sampler keeps momenta."""
    estimate, records = of_chains(root, chains)
    over, notice = f"momenta at {records} records", ""
    if not records:
        over, notice = "", "no progress record holds momenta at the sampling temperature"
    elif math.isnan(estimate.error):
        notice = f"{records} records: no standard error below {diagnostics.FEWEST_FOR_ESS} a chain"
    return {"estimate": estimate.value, "error": estimate.error, "draws": records, "gradient": over, "notice": notice}
