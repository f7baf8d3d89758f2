"""What planning asks of a task's network before a chain is built: its start, what is sampled of it, and the sizes of
its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from raychains import samplers
from raychains.chain import initialization
from raychains.chain.precision import cast
from raychains.core.errors import renamed, require
from raychains.core.sample import tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.priors import Prior
from raychains.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Start:
    """The start of an arm's chains: all at the same point, so that they differ only in noise, or each at its seed."""

    tensors: Mapping[str, Tensor] | None = None
    """As in the model's ``state_dict()``; None initialises from the seed, or starts at members."""
    digest: str | None = None
    """sha256 of ``tensors``."""
    sample_only: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """For the printed plan."""


def start_of(task: Task, file: str, *, strict: bool, sample_only: Sequence[str], lanes: int) -> Start:
    """Return the start that ``init_from`` names, checked against the task's network.

    Args:
        task: of the chains.
        file: as ``init_from`` has it.
        strict: whether its tensors must be those of the network.
        sample_only: patterns of the parameters that are sampled; none samples all.
        lanes: of the network.

    Raises:
        UserError: no such file, tensors that do not fit the network, or a pattern that matches no parameter.
    """
    model = task.build_model(seed=0, lanes=lanes)
    given, prefix = initialization.read(file), None
    shown = "" if initialization.is_own(file) else file
    notes: list[str] = []
    if strict:
        tensors, prefix = initialization.fitted(given, model, shown)
    else:
        tensors, left_out, kept = initialization.overlapping(given, model, shown)
        for what, names in (("left out of init_from", left_out), ("not in init_from, and initialised by seed 0", kept)):
            notes += [f"{len(names)} tensors are {what}: {initialization.some(names)}"] if names else []
    initialization.check_finite(tensors, file)
    chosen = tuple(sorted(set(sample_only)))
    sampled = initialization.sampled(model, chosen)
    digest = tensors_sha256(tensors)
    without = f", its names without {prefix!r}" if prefix else ""
    notes.insert(0, f"chains start at {file} (sha256 {digest[:12]}{without})")
    if chosen:
        notes.append(_sampled_note(model, sampled))
    return Start(tensors=tensors, digest=digest, sample_only=chosen, notes=tuple(notes))


def sampled_note(task: Task, sample_only: Sequence[str]) -> str:
    """Return a line on the parameters that are sampled while the others stay at the start.

    Raises:
        UserError: a pattern that matches no parameter.
    """
    model = task.build_model(seed=0, lanes=1)
    return _sampled_note(model, initialization.sampled(model, sample_only))


def _sampled_note(model: torch.nn.Module, sampled: Mapping[str, torch.nn.Parameter]) -> str:
    some, of = (sum(p.numel() for p in ps) for ps in (sampled.values(), model.parameters()))
    names = list(sampled)
    many = len(names) > initialization.SHOWN
    shown = f"{names[0]} … {names[-1]}, {len(names)} tensors" if many else ", ".join(names)
    return f"sampled are {some:,} of {of:,} parameters ({shown}); the others stay at the start"


def check_patterns(task: Task, **patterns: Sequence[str]) -> None:
    """Refuse a pattern that matches no parameter, by the option that it was given as.

    Raises:
        UserError: such a pattern.
    """
    names = [name for name, _ in task.build_model(seed=0, lanes=1).named_parameters()]
    known = f"match names of parameters: there are {initialization.some(names)}"
    for field, given in patterns.items():
        for pattern in given:
            require(any(fnmatchcase(name, pattern) for name in names), field, pattern, known)


def check_prior(task: Task, prior: Prior, shown: str) -> None:
    """Refuse a prior that does not fit the network: one that the user wrote as ``shown``.

    Raises:
        UserError: a pattern that matches no parameter, or a parameter without a prior or with two.
    """
    with torch.no_grad(), renamed({"match": f"prior {shown!r}: match"}):
        prior.log_density(dict(task.build_model(seed=0, lanes=1).named_parameters()))


def parameters_of(task: Task) -> int:
    """Return the number of a network's parameters."""
    return sum(p.numel() for p in task.build_model(seed=0, lanes=1).parameters())


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes of one chain's files, without headers of a few kB."""

    sample: int
    checkpoint: int


def sizes(spec: ChainSpec, task: Task) -> Sizes:
    """Return the sizes of a chain's files: its network and the states that its sampler has after a step."""
    model = cast(task.build_model(seed=0, lanes=spec.lanes), spec.precision)
    parameters = list(initialization.sampled(model, spec.sample_only).values())
    sampler = samplers.build(spec.sampler, parameters, lr=1e-6, temperature=0.0, seed=0, lanes=spec.lanes)

    def no_gradient() -> torch.Tensor:
        for p in parameters:
            p.grad = torch.zeros_like(p)
        return torch.zeros(())

    no_gradient()
    step: Any = sampler.step
    if sampler.gradients_per_step == 1:
        step()
    else:
        step([no_gradient] * sampler.parts)
    state = model.state_dict() if not spec.block_draws else {str(i): p for i, p in enumerate(parameters)}
    names = initialization.stored(model, parameters) if spec.sample_only else list(state)
    network = _bytes({name: state[name] for name in names})
    best = network if spec.early_stop is not None else 0
    return Sizes(sample=network, checkpoint=network + best + sum(_bytes(s) for s in sampler.state.values()))


def _bytes(tensors: Mapping[str, Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values() if isinstance(t, torch.Tensor))
