"""Names by which people find a run's actors in Ray's lists, in dashboards and among a machine's processes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Names:
    """Those of one driver's actors: digits of its own tell them from other drivers', and from a dead one's that linger."""

    run: str
    digits: str = field(default_factory=lambda: uuid.uuid4().hex)

    def actor(self, role: str, number: int, rank: int = 0) -> str:
        """What an actor is called in its namespace: ``raychains/digits-1a2b3c4d/chain-worker-0-5e6f70``."""
        of_rank = f".{rank}" if rank else ""
        return f"raychains/{self.run}/{role}-{number}{of_rank}-{self.digits[:6]}"

    def titled(self, kind: type) -> Any:
        """The class under a name that holds the run's, from which Ray takes the title of processes."""
        return type(f"{kind.__name__}:{self.run}", (kind,), {"__module__": __name__, "__doc__": kind.__doc__})
