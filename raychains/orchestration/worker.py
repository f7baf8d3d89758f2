"""ChainWorker: holds one slot and runs one chain after another, so that imports and CUDA start-up are paid once.

Each chain runs in threads of its own (`Incarnation`); the actor's methods only hand over what they have ready.
"""

from __future__ import annotations

import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raychains.orchestration.incarnation import Incarnation
    from raychains.orchestration.luggage import Luggage


class ChainWorker:
    """The actor. `start`, `status`, `stop` are its control group; `next` has a group of its own.

    Args:
        store: URI of the run store.
        checkpoint_every: seconds between checkpoints.
        every_cycle: whether every cycle's end must be in the store, for chains that may be restarted from there.
        data_root: where data sets lie, set for the tasks that this worker builds; None leaves the environment's.
        gpus: the slot's share of GPUs; without one the chain runs on the CPU whatever the machine has.
        luggage: what building the person's task needs.
        name: what people read before its log lines.
    """

    def __init__(
        self,
        store: str,
        checkpoint_every: float,
        every_cycle: bool,
        data_root: str | None,
        gpus: float,
        luggage: Luggage | None = None,
        *,
        name: str = "chain-worker",
    ) -> None:
        self._name = name
        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them
        if data_root is not None:
            os.environ["RAYCHAINS_DATA"] = data_root
        import torch
        import torch._dynamo  # by the first optimizer else: seconds, which are start-up and no chain's

        import raychains.chain  # noqa: F401  # the same
        from raychains.store import Root

        torch.set_num_threads(1)
        if luggage is not None:
            from raychains.orchestration.luggage import unpack

            unpack(luggage)
        self._root, self._every, self._every_cycle = Root(store), checkpoint_every, every_cycle
        self._run: Incarnation | None = None
        self._tasks: dict[str, Any] = {}

    def __repr__(self) -> str:
        return self._name

    def ready(self) -> str:
        """The version of raychains here, once the worker is up."""
        from raychains import __version__

        return __version__

    def meeting(self) -> str:
        """HOST:PORT at which this worker, as rank 0, can wait for the other ranks of a chain."""
        import ray

        with socket.socket() as s:
            s.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{s.getsockname()[1]}"

    def follow(self, spec: dict[str, Any], attempt: int, address: str, rank: int, size: int) -> None:
        """Run a chain as its ``rank``-th of ``size``, with rank 0 at ``address``, until rank 0 ends it."""
        import torch

        from raychains.orchestration import follower
        from raychains.ranks import Ranks
        from raychains.spec import ChainSpec

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        group = Ranks(rank, size, address, device)
        follower.follow(ChainSpec.from_json(spec), self._root, self._tasks, attempt, group, device)

    def start(
        self,
        spec: dict[str, Any],
        incarnation: int,
        about: dict[str, Any],
        attempt: int = 0,
        address: str | None = None,
        size: int = 1,
    ) -> None:
        """Run a chain from its newest checkpoint, or from its beginning, in the background.

        An ``attempt`` above that checkpoint's sends it back to its cycle's start, on fresh noise. With an ``address`` it is
        rank 0 of ``size`` that meet there.
        """
        from raychains.orchestration.incarnation import Incarnation, Orders
        from raychains.ranks import Ranks
        from raychains.spec import ChainSpec
        from raychains.store import ChainStore

        chain_spec = ChainSpec.from_json(spec)
        orders = Orders(
            number=incarnation, about=about, every=self._every, every_cycle=self._every_cycle, attempt=attempt
        )
        meet = partial(Ranks, 0, size, address) if address is not None else None
        self._run = Incarnation(chain_spec, ChainStore(self._root, chain_spec.digest), orders, self._tasks, meet)
        self._run.begin()

    def next(self, digest: str, incarnation: int) -> tuple[dict[str, Any], Any]:
        """The chain's next event and, with a sample, its file's bytes as a flat uint8 array.

        Events are ``began`` {step, drawn, attempt, torn}, ``sample`` {position, record} and ``ended`` {outcome, reason,
        seconds}. The caller owns the result, so a sample outlives the actor.
        """
        run = self._run
        if run is None or (run.spec.digest, run.orders.number) != (digest, incarnation):
            other = "the worker runs another chain"
            return {"kind": "ended", "outcome": "stopped", "reason": other, "seconds": 0.0}, None
        return run.take()

    def status(self) -> dict[str, Any] | None:
        """Where the chain is: step, loss, chain seconds; and what it waits for, None when for nothing."""
        return self._run.status() if self._run is not None else None

    def stop(self, digest: str) -> None:
        """Stop the chain at its next step; a checkpoint is written before ``ended`` comes."""
        if self._run is not None and self._run.spec.digest == digest:
            self._run.stop()
