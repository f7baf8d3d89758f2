"""Chains that start at the members of a deep ensemble: the option ``init_from=deep-ensemble[:epochs,patience]``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from raychains.core.config import DEEP_ENSEMBLE, RANDOM, Sampling
from raychains.core.spec import EarlyStop
from raychains.planning import per_sampler
from raychains.planning.per_sampler import PER_SAMPLER
from raychains.samplers import MethodPreset
from raychains.tasks import Task

METHOD = "deep-ensemble"
"""The method that makes the members, and the option's first word."""
Options = TypeVar("Options", bound=Sampling)


@dataclass(frozen=True, kw_only=True)
class EnsembleStart:
    """Settings of a deep ensemble's members, as the option gives them."""

    epochs: int | None = None
    """The most epochs of each; None is the task's number."""
    patience: int | None = None
    """Epochs without a lower loss on what each holds out; None is the method's number."""


def init_from(given: str | None, method: MethodPreset, task: Task) -> str | None:
    """Return where a method's chains start: as the option says, otherwise as the method does; None at random.

    Densities have no deep ensemble to start at.
    """
    if given is None and not task.low_dimensional:
        return method.settings.get("init_from")
    return None if given == RANDOM else given


def is_file(init_from: str | None) -> bool:
    """Return whether the option names a file."""
    return init_from not in (None, RANDOM) and ensemble_start(init_from) is None


def ensemble_start(init_from: str | None) -> EnsembleStart | None:
    """Return what the option says where it names a deep ensemble; None of a file, and without it."""
    found = DEEP_ENSEMBLE.fullmatch(init_from or "")
    if found is None:
        return None
    epochs, patience = (int(n) if n is not None else None for n in found.groups())
    return EnsembleStart(epochs=epochs, patience=patience)


def stopping_early(options: Options, preset: EarlyStop) -> tuple[Options, EarlyStop]:
    """Return the options of chains that stop early, with their one sample at the end, and when they stop.

    Where ``init_from`` describes the ensemble, they are the very members that other arms' chains start at: their
    options are the chains', but for what makes a chain of a sampler. A number of ``lr``, say, is the chains' own;
    ``lr=deep-ensemble=.01`` is the members'.
    """
    others: dict[str, Any] = {}
    start = ensemble_start(options.init_from)
    if start is not None:
        own = per_sampler.chosen(options, METHOD)
        by_sampler = {name for name in PER_SAMPLER if isinstance(getattr(options, name), str)}
        others |= {name: getattr(own, name) if name in by_sampler else None for name in PER_SAMPLER}
        others |= {"init_from": None, "epochs": start.epochs, "thinning": None, "samples_per_cycle": None}
        others |= {"sample_only": (), "sampler_settings": ()}
        preset = dataclasses.replace(preset, patience=start.patience or preset.patience)
    others |= {"schedule_settings": ("samples=1", "noise_from=0.0"), "burn_in": None}
    return dataclasses.replace(options, **others), preset
