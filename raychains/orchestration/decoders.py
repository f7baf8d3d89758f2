"""Decoders of a run: actors of one CPU each that cut the pictures of all its chains, on whatever node has CPUs for them.

A decoder holds nothing that is not in the set. Ray itself starts one again, there or on another node, whose process or
node is gone; meanwhile chains have its pieces cut by the others, or beside them.
"""

from __future__ import annotations

import itertools
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raychains.orchestration.decoding import DecodingWorker
from raychains.orchestration.names import Names
from raychains.orchestration.session import Slots


class Decoders:
    """Starts the actors on CPUs that cost the fewest chains, and ends them. Ray must be connected.

    Args:
        slots: those of the chains, and how many decoders are wanted beside them.
        names: what the actors are called.
    """

    def __init__(self, slots: Slots, names: Names) -> None:
        self._slots, self._names = slots, names
        self._class = ray.remote(names.titled(DecodingWorker)) if slots.decoders else None  # once, as in `Workers`
        self._number = itertools.count()
        self.actors: list[Any] = []
        """Those that there are now; the same list for good."""

    def keep(self) -> None:
        """Start or end some, until there are as many as the cluster has room for beside a chain."""
        if not self._slots.decoders:
            return
        nodes = self._slots.nodes_of_decoders()
        while len(self.actors) > len(nodes):
            ray.kill(self.actors.pop())
        for node in nodes[len(self.actors) :]:
            self.actors.append(self._started(node))

    def _started(self, node: str | None) -> Any:
        number = next(self._number)
        assert self._class is not None
        kind = self._class.options(
            num_cpus=1,
            num_gpus=0,
            max_restarts=-1,  # pictures are functions of what is asked for: an actor that begins anew gives the same
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True) if node is not None else "SPREAD",
            name=self._names.actor("decoder", number),
        )
        return kind.remote(f"decoder-{number} of {self._names.run}")

    def close(self) -> None:
        """End them all."""
        while self.actors:
            ray.kill(self.actors.pop())
