"""Chains that other drivers of the store run: finished there, free again, or taken over by one of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raychains.errors import RaychainsError
from raychains.orchestration.lease import Lease
from raychains.planning import coordinator as c
from raychains.positions import expected_samples
from raychains.spec import ChainSpec
from raychains.store import ChainStore, Root

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0
"""Seconds between looks at what became of chains that others run."""
LOOK_FOR = 0.5
"""Seconds that one look may take: of thousands of chains, or on slow storage, the others' turn is the next."""
COMPARE_EVERY = 15.0
"""Seconds between looks at whether another driver took over a chain that runs here."""


class Elsewhere:
    """Turns what the store says of other drivers' work into events for the coordinator."""

    def __init__(self, root: Root, lease: Lease, specs: Mapping[str, ChainSpec]) -> None:
        self._root = root.waiting(lambda _: False)  # looked at again: the driver does not wait for storage
        self._lease, self._specs = lease, specs
        self._looked = self._compared = time.monotonic()
        self._seen: dict[str, float] = {}
        """When each chain was last looked at."""

    def take(self, digest: str, record: Mapping[str, Any]) -> int | None:
        """A new incarnation's number; None when the chain is another driver's, or finished by one since the run began."""
        if self._finished(digest):
            return None
        return self._lease.take(digest, record)

    def look(self, coordinator: c.Coordinator) -> list[c.Event]:
        """What happened since the last look; mostly nothing, and without a read of the store where nobody else works."""
        now, events = time.monotonic(), []
        if now - self._looked > LOOK_EVERY:
            events += self._of(coordinator.with_status("elsewhere"), self._became)
            self._looked = time.monotonic()
        if now - self._compared > COMPARE_EVERY:
            chains = coordinator.chains

            def superseded(digest: str) -> c.Event | None:
                found = self._lease.superseded(digest, chains[digest].incarnation)
                return c.Superseded(digest) if found else None

            events += self._of(coordinator.with_status("running"), superseded)
            self._compared = time.monotonic()
        return events

    def _of(self, digests: Sequence[str], look: Callable[[str], c.Event | None]) -> list[c.Event]:
        """What became of as many chains as there is time for, of those first that were not looked at for longest."""
        events, began = [], time.monotonic()
        for digest in sorted(digests, key=lambda d: self._seen.get(d, 0.0)):
            self._seen[digest] = time.monotonic()
            if (event := look(digest)) is not None:
                events.append(event)
            if time.monotonic() - began > LOOK_FOR:
                break
        return events

    def _became(self, digest: str) -> c.Event | None:
        if self._finished(digest):
            return c.DoneElsewhere(digest, expected_samples(self._specs[digest]))
        return None if self._lease.elsewhere(digest) else c.Freed(digest)

    def _finished(self, digest: str) -> bool:
        """Whether the store holds all of a chain's samples; no, as long as the storage does not answer."""
        try:
            return ChainStore(self._root, digest).finished(expected_samples(self._specs[digest]))
        except (OSError, RaychainsError) as error:
            log.warning("chain %s is not looked at now: %s", digest[:12], error)
            return False
