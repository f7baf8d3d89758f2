"""The ranks of a trial's chain beside rank 0, which is the trial's own process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import ray
import torch

from raychains.chain.process_group import Ranks
from raychains.orchestration.chains.chain_worker import ChainWorker, meeting
from raychains.orchestration.chains.messages import ChainAssignment, ChainWorkerConfig
from raychains.orchestration.cluster.payload import Payload
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.workers import ActorOptions, CallFailed, Names


class TrialRanks:
    """Actors in all bundles of the trial's placement group but the first; they end with the trial, which owns them.

    Args:
        size: the ranks of the chain, with the trial itself.
        cpus: of each.
        config: of each; its name is the trial's.
        payload: what they need to build the task.
    """

    def __init__(self, size: int, cpus: float, config: ChainWorkerConfig, payload: Payload) -> None:
        self.size, self._workers = size, RayWorkers()
        names, reservation = Names(config.name), ray.util.get_current_placement_group()
        self._actors: list[Any] = []
        for rank in range(1, size):
            name = names.actor("chain-worker", 0, rank)
            options = ActorOptions(name=name, cpus=cpus, gpus=config.gpus, reservation=reservation, rank=rank)
            own = replace(config, name=f"rank {rank} of {config.name}")
            self._actors.append(self._workers.start(ChainWorker, names.run, options, own))
        for up in [self._workers.call(actor, "load_user_code", payload, group="control") for actor in self._actors]:
            self._workers.result(up)

    def leaving(self) -> bool:
        """Return whether the node of one of them is draining."""
        return bool(self._workers.draining(self._actors))

    def follow(self, assignment: ChainAssignment) -> Callable[[torch.device], Ranks]:
        """Let the ranks run an attempt along with rank 0; return what makes rank 0's group, once, on its device."""
        address, listener = meeting()
        joined: Future[Ranks] = Future()
        for rank, actor in enumerate(self._actors, 1):
            call = self._workers.call(actor, "follow", assignment, address, rank, group="samples")
            threading.Thread(target=self._watch, args=(rank, call, joined), daemon=True).start()

        def join(device: torch.device) -> Ranks:
            own = address.rpartition(":")[0]
            joined.set_result(Ranks(0, self.size, address, device, listener=listener, own=own))
            return joined.result()

        return join

    def _watch(self, rank: int, call: Any, joined: Future[Ranks]) -> None:
        """Tell rank 0 of a rank whose process is gone; of its own errors a rank tells itself."""
        try:
            self._workers.result(call)
        except CallFailed as error:
            if not error.raised:
                joined.result().abort(error.reason, lost=True, rank=rank)
