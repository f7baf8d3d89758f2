"""What was measured of points, kept: ``STORE/points/<split>/<point>.json``. Anything torn or altered counts as none.

Both names are sha256: of the split's fingerprint, and of the task and what the point's network is made of.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from raychains.errors import StorageAway, UserError
from raychains.spec import TaskSpec, digest_of
from raychains.store.filesystem import Root

FORMAT = 1
DIGITS = 32
"""Of the fingerprint's sha256 in the folder's name."""


class Measured:
    """The measured points of one task on one split.

    Args:
        root: the store.
        task: whose networks they are.
        fingerprint: of the split.
        settings: what else the numbers depend on, such as a calibration error's bins.
    """

    def __init__(self, root: Root, task: TaskSpec, fingerprint: str, settings: dict[str, Any] | None = None) -> None:
        self._root = root
        self._about = {"fingerprint": fingerprint, "settings": settings or {}, "task": digest_of(task.to_json())}
        self._folder = f"points/{hashlib.sha256(fingerprint.encode()).hexdigest()[:DIGITS]}"
        self._there: set[str] | None = None

    def read(self, key: str) -> dict[str, float] | None:
        """What was measured of the point with this key; None where that is not known.

        Raises:
            UserError: the file is of a newer format, and somebody's good one.
        """
        if self._there is None:
            self._there = set(self._root.names(self._folder))  # one listing instead of a question per point
        if self._file(key) not in self._there:
            return None
        try:
            own = json.loads(self._root.read(f"{self._folder}/{self._file(key)}"))
            number, check = own.pop("format"), own.pop("sha256")
            if isinstance(number, int) and number > FORMAT:
                raise UserError(f"points: format must be at most {FORMAT}, got {number}: a newer raychains wrote them")
            if digest_of(own) != check or own["point"] != key or own["about"] != self._about:
                return None
            return {name: float(value) for name, value in own["metrics"].items()}
        except (UserError, StorageAway):
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def write(self, key: str, metrics: dict[str, float]) -> None:
        """Make a measurement durable."""
        # As text: JSON has no infinities, which far points may have.
        own = {"about": self._about, "metrics": {n: repr(float(v)) for n, v in metrics.items()}, "point": key}
        text = json.dumps({"format": FORMAT, "sha256": digest_of(own), **own}, indent=1, sort_keys=True)
        self._root.publish(f"{self._folder}/{self._file(key)}", text.encode())

    def _file(self, key: str) -> str:
        return f"{digest_of([key, self._about])}.json"
