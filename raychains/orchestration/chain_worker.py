"""ChainWorker: the actor that holds one slot and runs one chain after another, so that start-up is paid once.

Each chain runs in threads of its own (`raychains.orchestration.attempt`); the actor's methods only hand over what they have
ready.
"""

from __future__ import annotations

import gc
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from raychains import __version__
from raychains.orchestration.messages import AttemptStatus, ChainAssignment, ChainWorkerConfig, TaskPayload

if TYPE_CHECKING:  # the actor sets its environment up before it imports torch
    from raychains.chain.proof import Trial
    from raychains.orchestration.attempt import Attempt
    from raychains.planning.coordinator import AttemptEvent
    from raychains.tasks import Task


class ChainWorker:
    """The actor. `start`, `status`, `stop` are its control group; `next` has a group of its own."""

    concurrency_groups: ClassVar = {"control": 2, "samples": 1}

    def __init__(self, config: ChainWorkerConfig) -> None:
        self._name = config.name
        if config.own_process:
            set_up(config.gpus, config.data_root)
            gc.disable()  # imports leave no garbage; the search for it takes a fifth of their time
        from raychains.orchestration import attempt

        if config.own_process:
            gc.freeze()
            gc.enable()
            attempt.torch.set_num_threads(1)
        self._library = attempt
        self._device = None if config.own_process else attempt.torch.device("cpu")
        self._root = attempt.Storage(config.store)
        every, every_cycle = config.checkpoint_every, config.every_cycle
        self._config = attempt.AttemptConfig(checkpoint_every=every, every_cycle=every_cycle)
        self._attempt: Attempt | None = None
        self._tasks: dict[str, Task] = {}
        self._by_object = False
        self._socket: socket.socket | None = None

    def __repr__(self) -> str:
        return self._name

    def ready(self, payload: TaskPayload | None = None, trial: Trial | None = None) -> str:
        """Work for another driver, on the task of ``payload``; return the version of raychains here.

        Raises:
            UserError: the task cannot be made here, or its ``trial`` ends elsewhere.
        """
        if payload is not None:
            self._library.unpack(payload)
            if self._by_object or payload.task:
                self._tasks.clear()  # another object may have the same spec
            self._by_object = bool(payload.task)
        if trial is not None:
            self._library.repeat(trial)
        return __version__

    def meeting(self) -> str:
        """Return HOST:PORT at which this worker, as rank 0, can wait for the other ranks of a chain."""
        address, self._socket = meeting()
        return address

    def follow(self, assignment: ChainAssignment, address: str, rank: int) -> None:
        """Run a chain as its ``rank``-th rank, with rank 0 at ``address``, until rank 0 ends it."""
        library, device = self._library, self._library.device()
        group = library.Ranks(rank, assignment.ranks, address, device, own=_own_address())
        library.run_rank(assignment, self._root, self._tasks, group, device)

    def start(self, assignment: ChainAssignment, address: str | None = None) -> None:
        """Run a chain in the background; with an ``address`` as rank 0 of those that meet there."""
        group = None
        if address is not None:
            own = address.rpartition(":")[0]
            group = partial(self._library.Ranks, 0, assignment.ranks, address, listener=self._socket, own=own)
        self._attempt = self._library.Attempt(assignment, self._root, self._config, self._tasks, group, self._device)
        self._attempt.begin()

    def next(self, digest: str, number: int) -> tuple[AttemptEvent, Any]:
        """Return the attempt's next event and, with a sample, its file's bytes as a flat uint8 array.

        The caller owns the result, so a sample outlives the actor.
        """
        attempt = self._attempt
        if attempt is None or (attempt.spec.digest, attempt.number) != (digest, number):
            return self._library.Ended(digest, number, "stopped", "the worker runs another chain"), None
        return attempt.take()

    def status(self) -> AttemptStatus | None:
        """Return where the chain is and what it waits for; None before the first chain."""
        return self._attempt.status() if self._attempt is not None else None

    def stop(self, digest: str) -> None:
        """Stop the chain at its next step; a checkpoint is written before `Ended` comes."""
        if self._attempt is not None and self._attempt.spec.digest == digest:
            self._attempt.stop()

    def halt(self) -> None:
        """Stop whatever chain runs, when the worker is let go without the end of its process."""
        if self._attempt is not None:
            self._attempt.stop()


def set_up(gpus: float, data_root: str | None) -> None:
    """Set a worker's environment before torch is imported."""
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them; with a share Ray names them
    if data_root is not None:
        os.environ["RAYCHAINS_DATA"] = data_root


def meeting() -> tuple[str, socket.socket]:
    """Return HOST:PORT at which this process, as rank 0, can wait for other ranks, and the socket that keeps the port."""
    own = _own_address()
    kept = socket.create_server((own, 0), family=socket.AF_INET6 if ":" in own else socket.AF_INET)
    return f"{own}:{kept.getsockname()[1]}", kept


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())
