"""ChainWorker: the actor that holds one slot and runs one chain after another, so that start-up is paid once.

Each chain runs in threads of its own (`raychains.orchestration.chains.attempt`); the actor's methods only hand
over what they have ready.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from raychains import __version__
from raychains.core.spec import MOST_ROWS
from raychains.orchestration.chains.messages import AttemptStatus, ChainAssignment, ChainWorkerConfig

if TYPE_CHECKING:  # the actor sets its environment up before it imports torch
    from raychains.chain.proof import Trial
    from raychains.coordination.coordinator import AttemptEvent
    from raychains.orchestration.chains.attempt import Attempt
    from raychains.orchestration.cluster.payload import Payload
    from raychains.tasks import Task

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``: malloc.h."""


class ChainWorker:
    """The actor. `load_user_code`, `start`, `status` and `stop` are its control group, one after another; `next` has a
    group of its own."""

    concurrency_groups: ClassVar = {"control": 1, "samples": 1}

    def __init__(self, config: ChainWorkerConfig) -> None:
        self._name = config.name
        if config.own_process:
            set_up(config.gpus, config.data_root)
            gc.disable()  # imports leave no garbage; the search for it takes a fifth of their time
        from raychains.orchestration.chains import attempt

        if config.own_process:
            gc.freeze()
            gc.enable()
            attempt.torch.set_num_threads(1)
        self._library = attempt
        self._device = None if config.own_process else attempt.torch.device("cpu")
        self._root = attempt.Storage(config.store)
        every, every_cycle = config.checkpoint_every, config.every_cycle
        self._config = attempt.AttemptConfig(checkpoint_every=every, every_cycle=every_cycle)
        self._attempts: dict[str, Attempt] = {}
        """By digest: the last chain's, or in a pack those of its rows."""
        self._packs = attempt.Packs()
        self._payload: Payload | None = None
        self._tasks: dict[str, Task] = {}
        self._socket: socket.socket | None = None

    def __repr__(self) -> str:
        return self._name

    def load_user_code(self, payload: Payload | None = None, trial: Trial | None = None) -> str:
        """Make a driver's task and classes known, in place of an earlier driver's; return the version of raychains
        here.

        Raises:
            UserError: the task cannot be made here, or its ``trial`` ends elsewhere.
        """
        if payload is not None and payload != self._payload:  # every slot asks
            from raychains import tasks

            tasks.forget()
            self._tasks.clear()  # another object may have the same spec
            payload.unpack()
            self._payload = payload
        if trial is not None:
            self._library.import_classes(trial.spec)
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
        attempt = self._library.Attempt(
            assignment, self._root, self._config, self._tasks, group, self._device, packs=self._packs
        )
        packed = self.concurrency_groups["samples"] > 1
        kept = {digest: other for digest, other in self._attempts.items() if packed and not other.taken}
        self._attempts = {**kept, attempt.spec.digest: attempt}
        attempt.begin()

    def next(self, digest: str, number: int) -> tuple[AttemptEvent, Any]:
        """Return the attempt's next event and, with a sample, its file's bytes as a flat uint8 array.

        The caller owns the result, so a sample outlives the actor.
        """
        attempt = self._attempts.get(digest)
        if attempt is None or attempt.number != number:
            return self._library.Ended(digest, number, "stopped", "the worker runs another chain"), None
        return attempt.take()

    def status(self, digest: str) -> AttemptStatus | None:
        """Return where the chain is and what it waits for; None of a chain that does not run here."""
        attempt = self._attempts.get(digest)
        return attempt.status() if attempt is not None else None

    def stop(self, digest: str) -> None:
        """Stop the chain at its next step; a checkpoint is written before `Ended` comes."""
        if (attempt := self._attempts.get(digest)) is not None:
            attempt.stop()

    def halt(self) -> None:
        """Stop whatever chains run, when the worker is let go without the end of its process."""
        for attempt in self._attempts.values():
            attempt.stop()


class PackWorker(ChainWorker):
    """The actor that holds a slot for each row of a pack and runs their chains as one program."""

    concurrency_groups: ClassVar = {"control": 1, "samples": MOST_ROWS}


def set_up(gpus: float, data_root: str | None) -> None:
    """Set up a worker's process before torch is imported."""
    keep_freed_memory()
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them; with a share Ray names them
    if data_root is not None:
        os.environ["RAYCHAINS_DATA"] = data_root


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for this process's next allocations, where malloc is glibc's.

    A step allocates and frees the same large tensors as the one before. Memory that goes back to the kernel in between
    costs a page fault for every 4 KiB of the next step: of a small ResNet's gradient a seventh to a quarter.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 * 2**20)  # the largest that it takes
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def meeting() -> tuple[str, socket.socket]:
    """Return HOST:PORT at which this process, as rank 0, can wait for other ranks, and the socket that keeps the
    port."""
    own = _own_address()
    kept = socket.create_server((own, 0), family=socket.AF_INET6 if ":" in own else socket.AF_INET)
    return f"{own}:{kept.getsockname()[1]}", kept


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())
