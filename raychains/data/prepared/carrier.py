"""What carries a chain's batches to it: decoder processes beside it, or decoders elsewhere. The bytes are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from raychains.data.prepared.order import Part, ShardedOrder
from raychains.errors import RaychainsError

Array = np.ndarray[Any, Any]


class DecodingFailed(RaychainsError):
    """A picture or a decoder failed; the text says which."""


class DecoderGone(DecodingFailed):
    """A decoder's process ended: memory ran out, or somebody ended it. The pictures are well."""


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """What is cut: whole batches, or one rank's share of each."""

    uri: str
    split: str
    size: int
    """Pixels of a side."""
    batch_size: int
    """Of the global batch."""
    window: int
    """W: row groups that are mixed."""
    first: int = 0
    last: int = 1
    parts: int = 1
    """Of each batch the pieces [first, last) of so many: see `Part.slice`."""

    def of(self, part: Part) -> Part:
        """What is cut of a batch."""
        return part.slice(self.first, self.parts, self.last)


class Carrier(Protocol):
    """Has the batches of one cutting made ahead, of one epoch at a time. Steps are taken in the order they are asked for."""

    def begin(self, order: ShardedOrder) -> None:
        """An epoch; nothing of the one before is outstanding."""

    def ask(self, step: int) -> None:
        """Have this batch's pictures cut, meanwhile."""

    def take(self, step: int) -> Array:
        """Its pictures, uint8 [at least so many, size, size, 3], once they are there; they stay until the next call.

        Raises:
            DecodingFailed: a picture is damaged or its storage is away.
        """

    def drop(self, step: int) -> None:
        """It was asked for, and nobody wants it any more."""

    def close(self) -> None:
        """Give back what is held, once or more often."""


Carry = Callable[[Cutting], Carrier]
"""Makes the carrier of a cutting; whoever runs a chain may hand one to its task."""
