"""Samples: a draw of the posterior with its metadata; progress of the chain that drew it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raychains.core.errors import UserError
from raychains.core.validation import is_int

if TYPE_CHECKING:
    from torch import Tensor

THETA = "theta"


@dataclass(frozen=True, kw_only=True)
class SampleMeta:
    """A sample's place in its chain; stored in the sample file's own header."""

    digest: str
    """Digest of the chain's spec."""
    index: int
    """Position among the chain's samples of this variable, from 0."""
    variable: str = THETA
    cycle: int
    epoch: int
    """Epoch in which the draw was made, from 0."""
    step: int
    """Gradient steps made when it was drawn (of a block: its last draw)."""
    lr: float
    temperature: float
    stage: str
    train_nll: float | None
    """Mean minibatch loss since the last progress record; None for densities, which have no data."""
    draws: int = 1
    """Consecutive kept draws on axis 0 (a block of a low-dimensional target); 1 for networks, without that axis."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SampleMeta:
        """Return the metadata that `to_json` wrote; unknown fields, of later versions, are ignored.

        Raises:
            TypeError: a field is missing or of another kind.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        found = cls(**{k: v for k, v in data.items() if k in known})
        whole = all(is_int(n) and n >= 0 for n in (found.index, found.cycle, found.epoch, found.step, found.draws))
        texts = all(isinstance(text, str) for text in (found.digest, found.variable, found.stage))
        numbers = all(isinstance(x, int | float) for x in (found.lr, found.temperature, found.train_nll or 0.0))
        if not (whole and texts and numbers):
            raise TypeError(f"no sample's metadata: {found}")
        return found


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One draw of a network: tensors exactly as in ``model.state_dict()``; or a block of draws [draws, lanes, dim]."""

    meta: SampleMeta
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A chain's record at its log interval."""

    step: int
    epoch: int
    cycle: int
    stage: str
    lr: float
    temperature: float
    loss: float | None
    """Mean minibatch loss since the last record; None for densities."""
    kinetic_temperature: float | None = None
    """`Sampler.kinetic_temperature` at this step, of all lanes together; None of samplers without momentum."""
    held_out_loss: float | None = None
    """Mean loss on the examples that the chain holds out to stop early; None of chains that do not, which leave it
    out."""

    def to_json(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        return plain if self.held_out_loss is not None else {k: v for k, v in plain.items() if k != "held_out_loss"}


@dataclass(frozen=True, kw_only=True)
class ChainProgress:
    """How far a running chain is, from its last `Progress` record."""

    digest: str
    step: int = 0
    """0 before the first record."""
    seconds: float = 0.0
    """Chain seconds so far, waiting not counted."""
    cycle: int = 0
    stage: str = ""
    loss: float | None = None
    lr: float | None = None
    """Learning rate of this step, on the mean-loss scale; None before the first record, as for the next two."""
    temperature: float | None = None
    kinetic_temperature: float | None = None
    """Temperature of the sampler's velocities; None of samplers without momentum, too."""


def check_tensors(tensors: Mapping[str, Tensor], network: Mapping[str, Tensor], where: str = "") -> None:
    """Raise `UserError` unless ``tensors`` have the names and shapes of a ``network``'s state dict; ``where`` begins
    messages."""
    for name in sorted(tensors.keys() | network.keys()):
        found, expected = (f"of shape {list(t[name].shape)}" if name in t else "none" for t in (tensors, network))
        if found != expected:
            raise UserError(
                f"{where}sample must have the tensors of the task's network, {name!r} {expected}, got {found}"
            )


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of names, dtypes, shapes and bytes, in the order of the names."""
    import torch

    h = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name].detach().cpu().contiguous()
        h.update(f"{name}|{t.dtype}|{tuple(t.shape)}|".encode())
        h.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return h.hexdigest()
