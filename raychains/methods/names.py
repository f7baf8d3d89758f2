"""Named methods: a name gives a sampler, the schedule that its paper runs it under, and the paper's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raychains import samplers
from raychains.errors import unknown_name


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a method's name stands for; whatever a person gives takes precedence."""

    kind: str
    """The sampler."""
    schedule: str
    label: str
    """For people, with the schedule: ``cSGLD``."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the plan, by the names of `raychains.options.Sampling`."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the schedule that no option carries."""
    fixed: bool = False
    """Whether the schedule belongs to the name: ``csgld`` is SGLD under a cyclical step size and nothing else."""


METHODS: dict[str, Named] = {
    "sgd": Named(kind="sgd", schedule="decreasing", label="SGD"),
    "sgdm": Named(kind="sgdm", schedule="decreasing", label="SGDM"),
    # Snapshot ensembles (Huang et al. 2017): one sample at the end of each cycle, no noise.
    "snapshot-sgd": Named(kind="sgd", schedule="cyclical", label="Snapshot-SGD", plan={"samples_per_cycle": 1}, fixed=True),
    "snapshot-sgdm": Named(
        kind="sgdm", schedule="cyclical", label="Snapshot-SGDM", plan={"samples_per_cycle": 1}, fixed=True
    ),
    "sgld": Named(kind="sgld", schedule="decreasing", label="SGLD"),
    "csgld": Named(kind="sgld", schedule="cyclical", label="cSGLD", fixed=True),
    "sghmc": Named(kind="sghmc", schedule="decreasing", label="SGHMC"),
    "csghmc": Named(kind="sghmc", schedule="cyclical", label="cSGHMC", fixed=True),
    "psgld": Named(kind="psgld", schedule="decreasing", label="pSGLD"),
    "cpsgld": Named(kind="psgld", schedule="cyclical", label="cpSGLD", fixed=True),
    # ATMC's paper runs both under a cyclical step size, with noise throughout, and keeps each cycle's last sample.
    "sgnht": Named(
        kind="sgnht", schedule="cyclical", label="SGNHT", plan={"samples_per_cycle": 1, "exploration": 0.0}
    ),
    "atmc": Named(kind="atmc", schedule="cyclical", label="ATMC", plan={"samples_per_cycle": 1, "exploration": 0.0}),
    # The authors' code: noise always on, θ and θₐ of the last two epochs of each cycle.
    "emcmc": Named(
        kind="emcmc", schedule="cyclical", label="Entropy-MCMC", plan={"samples_per_cycle": 2, "exploration": 0.0}
    ),
    "entropy-sgd": Named(kind="entropy-sgd", schedule="decreasing", label="Entropy-SGD"),
    "entropy-sgld": Named(kind="entropy-sgld", schedule="decreasing", label="Entropy-SGLD"),
    # One cosine from the first step to the last, as both papers' code has it; the last iterate counts.
    "sam": Named(
        kind="sam", schedule="cyclical", label="SAM", plan={"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
    ),
    "bsam": Named(
        kind="bsam", schedule="cyclical", label="bSAM", plan={"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
    ),
}  # fmt: skip
"""By name. The names of the samplers themselves are among them, with the schedule that is used when none is given."""


def named(name: str) -> Named:
    """The method of a name.

    Raises:
        UserError: an unknown name.
    """
    if name not in METHODS:
        raise unknown_name("sampler", name, METHODS)
    return METHODS[name]


def label(name: str, schedule: str) -> str:
    """What a method under a schedule is called in tables: ``cSGLD``, ``Snapshot-SGD``, ``SAM, decreasing``."""
    method = named(name)
    if method.fixed or schedule == method.schedule:
        return method.label
    if schedule == "cyclical" and name in ("sgd", "sgdm", "sgld", "sghmc", "psgld"):
        return f"c{method.label}"
    return f"{method.label} {schedule}"


def noise_free(name: str) -> bool:
    """Whether a method optimises: its temperature is 0."""
    return samplers.KINDS[named(name).kind].instead is not None
