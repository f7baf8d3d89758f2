"""Workers that are objects of this process, each with threads for its method groups: a run's tests without Ray."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from raychains.coordination.capacity import Node
from raychains.orchestration.cluster import thread_workers
from raychains.orchestration.run import evaluation_worker
from tests.orchestration.recorded import Recorded


class ThreadWorkers(thread_workers.ThreadWorkers, Recorded):
    """`raychains.orchestration.cluster.workers.Workers` in this process, on a machine of so many cores, as if it were
    another one."""

    in_process = False

    def __init__(self, cpus: int = 2) -> None:
        Recorded.__init__(self, Node(cpus, 0.0, "here"))
        self.started_here, self.unplaced_actors, self.chance = True, 0, random.Random(0)

    nodes = Recorded.nodes
    reserve = Recorded.reserve

    def unplaced(self, actors: Collection[Any]) -> int:
        return Recorded.unplaced(self, actors)

    def draining(self, actors: Collection[Any]) -> list[Any]:
        return Recorded.draining(self, actors)

    def wait(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        """Any one of those that are ready: no order may be relied upon."""
        done = super().wait(calls, timeout)
        ready = [call for call in calls if call in done]
        return [self.chance.choice(ready)] if ready else []

    def started(self, kind: type) -> int:
        return sum(actor.kind is kind for actor in self.actors)


def keep_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep actors from changing this process for good."""
    monkeypatch.setattr(os, "nice", lambda by: 0)
    monkeypatch.setattr(os, "fsync", os.fsync)  # some tasks put theirs in its place
    monkeypatch.setattr(evaluation_worker, "node_id", lambda: "here")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
