"""Numbers for a chain's incarnations, such that no two workers ever write under the same one.

File names carry the number, so that what one worker writes never replaces what another wrote. A local or network
filesystem creates a name for one caller only, and numbers count 1, 2, 3. An object store has no such operation here: two
drivers may take the same ordinal at once, therefore the number is ordinal · SPAN plus a random part below SPAN. Of two
incarnations that run at once the higher counts wherever it has samples, and the lower's driver leaves the chain to it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from raychains.store.chains import ChainStore
from raychains.store.codec import Corrupt
from raychains.store.filesystem import Root

SPAN = 1_000_000
"""Numbers that share an ordinal where names cannot be created exclusively."""


def next_number(last: int, exclusive: bool) -> int:
    """A number above ``last``."""
    return last + 1 if exclusive else (last // SPAN + 1) * SPAN + secrets.randbelow(SPAN)


def reserve(root: Root, digest: str, above: int, record: Mapping[str, Any]) -> int | None:
    """Make the number that follows ``above`` one's own by writing ``record``; None when another driver was faster."""
    number = next_number(above, root.exclusive)
    data = (json.dumps(dict(record), indent=1, sort_keys=True) + "\n").encode()
    return number if root.create(f"chains/{digest}/incarnations/{number}.json", data) else None


def newest(root: Root, digest: str) -> tuple[int, str | None]:
    """The highest incarnation (0: none) and the id of the driver that it belongs to; None when the record says none."""
    store = ChainStore(root, digest)
    last = store.last_incarnation()
    if not last:
        return 0, None
    try:
        driver = store.incarnation(last).get("driver_id")
    except (FileNotFoundError, Corrupt, ValueError, AttributeError):  # torn, or not ours
        return last, None
    return last, driver if isinstance(driver, str) else None
