"""Preparing a small set in this process and into a local folder; `raychains prepare` does it on a cluster for large
ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from raychains.core import bounded
from raychains.core.errors import UserError
from raychains.data.prepared import sources
from raychains.data.prepared.manifest import NAME, Manifest
from raychains.data.prepared.plan import ROW_GROUP, Plan, encode


def prepare(source: Path, to: Path, *, row_group: int = ROW_GROUP, seed: int = 0) -> Manifest:
    """Prepare the pictures of ``source`` as the set with the folder ``to``; a complete set there is left as it is.

    The folder appears when everything is in it.

    Raises:
        UserError: no such pictures, damaged ones, or a target that cannot be written.
    """
    manifest = to / NAME
    try:
        if not manifest.exists():
            _build(Plan(name=to.name, source=sources.find(source), row_group=row_group, seed=seed), to)
        return Manifest.loads(bounded.read(manifest), str(manifest))
    except OSError as error:
        raise UserError(f"set {to} cannot be prepared there: {error.strerror or error}") from error


def _build(plan: Plan, to: Path) -> None:
    building = to.with_name(f".{to.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    written = {}
    for work in plan.works:
        data, written[work.name] = encode(work.items, work.name, plan.row_group)
        (building / work.name).write_bytes(data)
    (building / NAME).write_bytes(plan.manifest(written, skip_damaged=False).dumps())
    try:
        os.rename(building, to)
    except OSError:
        shutil.rmtree(building, ignore_errors=True)
        if not (to / NAME).exists():  # another process may have been faster
            raise
