"""Names of checkpoints, and which of them are kept: the last two, and the newest that was taken at a cycle's end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from raychains.store.history import History

KEPT = 2
_NAME = re.compile(r"(\d+)-(\d+)(-cycle)?\.safetensors")


@dataclass(frozen=True, order=True)
class Checkpoint:
    """What a file's name says; a later incarnation's is newer whatever its step."""

    incarnation: int
    step: int
    cycle_end: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.step:010d}-{self.incarnation}{'-cycle' if self.cycle_end else ''}.safetensors"


def parse(name: str) -> Checkpoint | None:
    """None when it is no checkpoint's name."""
    match = _NAME.fullmatch(name)
    return Checkpoint(int(match[2]), int(match[1]), bool(match[3])) if match else None


def valid(names: Iterable[str], history: History) -> list[Checkpoint]:
    """The checkpoints that a chain may go on from, the newest last."""
    found = [c for name in names if (c := parse(name)) is not None and c.name == name]
    return sorted(c for c in found if not history.superseded(c.incarnation, c.step))


def to_drop(names: Iterable[str], history: History) -> list[str]:
    """Names of the checkpoints that nobody will go on from."""
    names = list(names)
    good = valid(names, history)
    kept = good[-KEPT:] + [c for c in good if c.cycle_end][-1:]
    keep = {c.name for c in kept}
    return [name for name in names if parse(name) is not None and name not in keep]
