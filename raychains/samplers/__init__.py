"""Samplers: one file for each family of update rules, with its method presets, each a `torch.optim.Optimizer`.

Every file of this folder is searched for samplers, so that a new one is registered by being there. A user's own sampler
is named by its import path, ``module:Class``, or by the short name that its package gives it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from raychains.core import registry
from raychains.core.errors import require
from raychains.core.registry import Kinds
from raychains.core.spec import Part
from raychains.samplers.adamw import AdamW
from raychains.samplers.atmc import ATMC
from raychains.samplers.bsam import BSAM
from raychains.samplers.closure import ClosureSampler
from raychains.samplers.emcmc import EntropyMCMC
from raychains.samplers.entropy_sgd import EntropySGD, EntropySGLD
from raychains.samplers.laplace import LastLayerLaplace
from raychains.samplers.mclmc import MCLMC
from raychains.samplers.psgld import PSGLD
from raychains.samplers.sam import SAM
from raychains.samplers.sampler import MethodPreset, Sampler
from raychains.samplers.settings import setting
from raychains.samplers.sgd import SGD, SGDM
from raychains.samplers.sghmc import SGHMC
from raychains.samplers.sgld import SGLD
from raychains.samplers.sgnht import SGNHT
from raychains.samplers.swag import SWAG

__all__ = [
    "ATMC",
    "BSAM",
    "KINDS",
    "MCLMC",
    "METHODS",
    "PSGLD",
    "SAM",
    "SGD",
    "SGDM",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SWAG",
    "AdamW",
    "ClosureSampler",
    "EntropyMCMC",
    "EntropySGD",
    "EntropySGLD",
    "LastLayerLaplace",
    "MethodPreset",
    "Sampler",
    "build",
    "facts",
    "gradients_per_step",
    "method",
    "setting",
    "variables",
]


KINDS: Kinds[Sampler] = Kinds("sampler", Sampler, __name__)
VARIABLE = re.compile("[a-z]+")
"""Names of variables, which are part of samples' file names."""
METHODS: dict[str, MethodPreset] = {
    name: dataclasses.replace(preset, kind=kind) for kind, c in KINDS.items() for name, preset in c.presets.items()
}
"""By the name that users give; the samplers' own names are among them."""


def method(name: str) -> MethodPreset:
    """Return the preset of a method's name; of a user's sampler, which is imported, its first, or its base's.

    Raises:
        UserError: an unknown name.
    """
    if name in METHODS:
        return METHODS[name]
    own = KINDS.find(name, METHODS)
    preset = next(iter(own.presets.values()), MethodPreset(schedule="cyclical", label=own.__name__))
    if "presets" not in vars(own):  # a base's, whose label is the base's, too
        preset = dataclasses.replace(preset, label=own.__name__, cyclical_label=None, fixed=False)
    return dataclasses.replace(preset, kind=own.kind)


def build(part: Part, params: Any, *, lr: float, temperature: float, seed: int, lanes: int = 1) -> Sampler:
    """Build the sampler that a spec's part describes over ``params``, with the schedule's first lr and temperature.

    Raises:
        UserError: an unknown kind, another revision, or settings that the sampler refuses.
    """
    return registry.build("sampler", KINDS, part, params, lr=lr, temperature=temperature, seed=seed, lanes=lanes)


def variables(part: Part) -> Mapping[str, int]:
    """Return how many draws of each variable one kept step of a spec's sampler yields.

    Raises:
        UserError: an unknown kind, or a variable that no file can be named by.
    """
    if part.facts is not None:
        return dict(part.facts["variables"])
    found = registry.kind_of("sampler", KINDS, part).variables(part.settings)
    for name in found:
        ok = isinstance(name, str) and VARIABLE.fullmatch(name) is not None
        require(
            ok,
            f"variables of sampler {part.kind}",
            name,
            "consist of lower-case letters a to z, because files are named after them",
        )
    return found


def gradients_per_step(part: Part) -> int:
    """Return the gradient evaluations that a step of a spec's sampler spends.

    Raises:
        UserError: an unknown kind.
    """
    if part.facts is not None:
        return int(part.facts["gradients_per_step"])
    return registry.kind_of("sampler", KINDS, part).gradients_per_step


def facts(part: Part) -> dict[str, Any]:
    """Return what a plan stores of a user's sampler, for `Part.facts`."""
    return {"variables": dict(variables(part)), "gradients_per_step": gradients_per_step(part)}
