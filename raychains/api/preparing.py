"""`prepare`: pictures as they are distributed become a set that chains stream from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raychains.data.root import data_root
from raychains.errors import UserError, require
from raychains.options import Prepare
from raychains.store import Root

if TYPE_CHECKING:
    from raychains.data.prepared.manifest import Manifest


def prepare(options: Prepare, *, progress: Callable[[str, int, int], Any] | None = None) -> tuple[Manifest, str]:
    """Prepare an image set; see `raychains.options.Prepare`. The manifest, and where the set lies.

    Raises:
        UserError: no such pictures, damaged ones, or a target that holds something else; what was written stays.
    """
    from raychains.data.prepared import sources
    from raychains.data.prepared.plan import Plan
    from raychains.orchestration import preparing, session
    from raychains.tasks.prepared import check_name

    check_name(options.set)
    require(options.seed >= 0, "seed", options.seed, "be an integer of at least 0")
    folder = Path(options.source).expanduser().absolute()
    if not folder.is_dir():
        raise UserError(f"from must be an existing folder, got {options.source!r}")
    to = Root(options.to if options.to is not None else data_root() / options.set)
    plan = Plan(
        name=options.set,
        source=sources.find(folder),
        shards=options.shards,
        row_group=options.row_group,
        seed=options.seed,
    )
    preparing.look(plan, to)
    joined = session.connect(options.address, object_store_memory=options.object_store_memory)
    try:
        return preparing.prepare(plan, to, skip_damaged=options.skip_damaged, progress=progress), to.location()
    finally:
        joined.close()
