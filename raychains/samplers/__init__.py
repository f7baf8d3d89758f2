"""Samplers: one update rule per file, each a `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raychains.errors import UserError, unknown_name
from raychains.samplers.atmc import ATMC
from raychains.samplers.base import Sampler
from raychains.samplers.bsam import BSAM
from raychains.samplers.emcmc import EntropyMCMC
from raychains.samplers.entropy_sgd import EntropySGD, EntropySGLD
from raychains.samplers.psgld import PSGLD
from raychains.samplers.sam import SAM
from raychains.samplers.sgd import SGD, SGDM
from raychains.samplers.sghmc import SGHMC
from raychains.samplers.sgld import SGLD
from raychains.samplers.sgnht import SGNHT
from raychains.spec import Part

KINDS: dict[str, type[Sampler]] = {
    c.kind: c for c in (SGD, SGDM, SGLD, SGHMC, PSGLD, SGNHT, ATMC, EntropyMCMC, EntropySGD, EntropySGLD, SAM, BSAM)
}

__all__ = [
    "ATMC", "BSAM", "KINDS", "PSGLD", "SAM", "SGD", "SGDM", "SGHMC", "SGLD", "SGNHT", "EntropyMCMC", "EntropySGD",
    "EntropySGLD", "Sampler", "build", "variables",
]  # fmt: skip


def build(part: Part, params: Any, *, lr: float, temperature: float, seed: int, lanes: int = 1) -> Sampler:
    """The sampler that a spec's part describes, over ``params``; the schedule's first lr and temperature.

    Raises:
        UserError: an unknown kind, another revision, or settings that the sampler refuses.
    """
    if part.kind not in KINDS:
        raise unknown_name("sampler", part.kind, KINDS)
    kind: Any = KINDS[part.kind]
    if part.revision != kind.revision:
        raise UserError(f"sampler {part.kind} revision must be {kind.revision} for this version, got {part.revision}")
    try:
        return kind(params, lr=lr, temperature=temperature, seed=seed, lanes=lanes, **part.settings)
    except TypeError as error:
        raise UserError(f"sampler {part.kind}: {error}") from None


def variables(part: Part) -> Mapping[str, int]:
    """How many draws of each variable one kept step of a spec's sampler yields.

    Raises:
        UserError: an unknown kind.
    """
    if part.kind not in KINDS:
        raise unknown_name("sampler", part.kind, KINDS)
    return KINDS[part.kind].variables(part.settings)
