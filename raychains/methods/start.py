"""Where the chains that a person asks for start, and which of their parameters are sampled: from options to a spec's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from raychains import warmstart
from raychains.errors import UserError
from raychains.options import Sampling
from raychains.sample import tensors_sha256
from raychains.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Start:
    """Of all chains of an arm: they begin at the same point, and their noise parts them."""

    tensors: Mapping[str, Tensor] | None = None
    """As in the model's ``state_dict()``; None initialises from the seed."""
    digest: str | None = None
    """sha256 of ``tensors``."""
    sample_only: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """For the printed plan."""


def start_of(options: Sampling, task: Task, name: str, lanes: int) -> Start:
    """The start that the options name, checked against the task's network.

    Raises:
        UserError: no such file, tensors that do not fit the network, or a pattern that matches no parameter.
    """
    if options.init_from is None:
        if options.sample_only:
            raise UserError(
                f"sample_only must be left out without init_from, got {' '.join(options.sample_only)}: the other parameters "
                "stay where that file has them"
            )
        return Start()
    if options.sample_only and task.low_dimensional:
        raise UserError(
            f"sample_only must be left out for task {name}, got {' '.join(options.sample_only)}: it is a density"
        )
    model = task.build_model(seed=0, lanes=lanes)
    tensors, prefix = warmstart.fitted(warmstart.read(options.init_from), model)
    patterns = tuple(sorted(set(options.sample_only)))
    sampled = warmstart.sampled(model, patterns)
    digest = tensors_sha256(tensors)
    taken = f", its names without {prefix!r}" if prefix else ""
    notes = [f"chains start at {options.init_from} (sha256 {digest[:12]}{taken})"]
    if patterns:
        some, of = (sum(p.numel() for p in ps) for ps in (sampled.values(), model.parameters()))
        notes.append(
            f"sampled are {some:,} of {of:,} parameters ({_names(list(sampled))}); the others stay at the start"
        )
    return Start(tensors=tensors, digest=digest, sample_only=patterns, notes=tuple(notes))


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= warmstart.SHOWN else f"{names[0]} … {names[-1]}, {len(names)} tensors"
