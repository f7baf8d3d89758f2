"""A run that goes on needs no file of its start: the store holds the start's tensors since the run began."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from raychains.errors import UserError
from raychains.options import Sampling
from raychains.planning import Comparison
from raychains.store import Root, RunStore, starts

if TYPE_CHECKING:
    from raychains.experiments.comparisons import Planned

Options = TypeVar("Options", bound=Sampling)


def planned_from(plan: Callable[[Options], Planned], options: Options) -> Planned:
    """``plan(options)``; where ``init_from`` is gone and the run of this name goes on, from the store's copy of its start.

    Raises:
        UserError: as ``plan``, or the file is gone and no run of this name began at a start.
    """
    given = options.init_from
    if given is None or not options.resume or Path(given).exists():
        return plan(options)
    root = Root(options.store)
    digest = _start_of(root, options.name)
    if digest is None:
        raise UserError(
            f"init_from must be a file, got {given!r}: to go on without it, give the --name of a run that began at it"
        )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "start.safetensors"
        copy.write_bytes(root.read(starts.file_of(digest)))
        planned = plan(dataclasses.replace(options, init_from=str(copy)))
    notes = [note.replace(str(copy), root.location(starts.file_of(digest))) for note in planned.notes]
    return dataclasses.replace(planned, notes=notes)


def _start_of(root: Root, name: str | None) -> str | None:
    if name is None or not (folder := RunStore(root, name)).exists():
        return None
    found = {spec.start for spec in Comparison.from_json(folder.plan().get("comparison")).chains().values()}
    return found.pop() if len(found) == 1 else None
