"""ChainWorker: holds one slot and runs one chain after another, so that imports and CUDA start-up are paid once.

Each chain runs in threads of its own (`Incarnation`); the actor's methods only hand over what they have ready.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raychains.data.prepared.carrier import Carry
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
        gc.disable()  # imports leave no garbage; to look for it takes a fifth of their time
        import torch

        import raychains.chain
        import raychains.orchestration.incarnation  # noqa: F401  # by the first chain else, in its seconds
        from raychains.store import Root

        gc.freeze()
        gc.enable()
        torch.set_num_threads(1)
        if luggage is not None:
            from raychains.orchestration.luggage import unpack

            unpack(luggage)
        self._root, self._every, self._every_cycle = Root(store), checkpoint_every, every_cycle
        self._run: Incarnation | None = None
        self._tasks: dict[str, Any] = {}
        self._by_hand = luggage is not None and bool(luggage[1])
        self._listener: socket.socket | None = None

    def __repr__(self) -> str:
        return self._name

    def ready(self, luggage: Luggage | None = None) -> str:
        """The version of raychains here, once the worker is up; with ``luggage`` it works for another driver from now on."""
        from raychains import __version__

        if luggage is not None:
            from raychains.orchestration.luggage import unpack

            unpack(luggage)
            if self._by_hand or luggage[1]:
                self._tasks.clear()  # another object may have the same spec
            self._by_hand = bool(luggage[1])
        return __version__

    def meeting(self) -> str:
        """HOST:PORT at which this worker, as rank 0, can wait for the other ranks of a chain."""
        import ray

        own = ray.util.get_node_ip_address()
        family = socket.AF_INET6 if ":" in own else socket.AF_INET
        self._listener = socket.create_server((own, 0), family=family)  # kept, so that nobody else takes the port
        return f"{own}:{self._listener.getsockname()[1]}"

    def follow(
        self, spec: dict[str, Any], attempt: int, address: str, rank: int, size: int, decoders: Sequence[Any] = ()
    ) -> None:
        """Run a chain as its ``rank``-th of ``size``, with rank 0 at ``address``, until rank 0 ends it."""
        import ray
        import torch

        from raychains.orchestration import follower
        from raychains.ranks import Ranks
        from raychains.spec import ChainSpec

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        group = Ranks(rank, size, address, device, own=ray.util.get_node_ip_address())
        follower.follow(ChainSpec.from_json(spec), self._root, self._tasks, attempt, group, device, _carry(decoders))

    def start(
        self,
        spec: dict[str, Any],
        incarnation: int,
        about: dict[str, Any],
        attempt: int = 0,
        address: str | None = None,
        size: int = 1,
        decoders: Sequence[Any] = (),
    ) -> None:
        """Run a chain from its newest checkpoint, or from its beginning, in the background.

        An ``attempt`` above that checkpoint's sends it back to its cycle's start, on fresh noise. With an ``address`` it is
        rank 0 of ``size`` that meet there. ``decoders`` are actors that cut its pictures.
        """
        from raychains.orchestration.incarnation import Incarnation, Orders
        from raychains.ranks import Ranks
        from raychains.spec import ChainSpec
        from raychains.store import ChainStore

        chain_spec = ChainSpec.from_json(spec)
        orders = Orders(
            number=incarnation,
            about=about,
            every=self._every,
            every_cycle=self._every_cycle,
            attempt=attempt,
            carry=_carry(decoders),
        )
        meet = None
        if address is not None:
            own = address.rpartition(":")[0]
            meet = partial(Ranks, 0, size, address, listener=self._listener, own=own)
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


def _carry(decoders: Sequence[Any]) -> Carry | None:
    """What carries batches from these actors; None without any."""
    if not decoders:
        return None
    from raychains.orchestration.decoding import carry

    return partial(carry, decoders)
