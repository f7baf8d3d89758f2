"""What is computed without chains, in pieces that are kept: an interrupted computation goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raychains.published.folder import Folder

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """What a computation is given."""

    scale: str
    part: str
    """The part's name."""
    folder: Folder
    """The experiment's in the store, which holds the pieces and whatever raw draws they keep."""
    revision: int
    """The experiment's: pieces of another are not used."""
    tell: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    """Told (what is computed, done, total); it raises where the time is up."""

    def piece(self, name: str, compute: Callable[[], Sequence[Row]]) -> list[dict[str, Any]]:
        """The rows of a piece: those that were kept, else computed now and kept.

        Args:
            name: unique in the part: letters, digits, ``-`` and ``.``.
            compute: gives the rows, all with the same columns.
        """
        file = f"pieces/{self.part}-{name}-r{self.revision}"
        kept = self.folder.table(file)
        if kept is not None:
            return list(kept.to_pylist())
        self.tell(name, 0, 1)
        rows = [dict(row) for row in compute()]
        self.folder.write_table(file, rows)
        return rows
