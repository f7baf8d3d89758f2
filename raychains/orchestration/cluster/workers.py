"""Interfaces to actors, to the cluster that they run on, and to time, of which Ray is one implementation.

`raychains.orchestration.cluster.ray_workers` implements them on Ray, `thread_workers` in this process. The driver
itself knows nothing of Ray: tests and benchmarks run the same code on simulated workers and a simulated clock.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from raychains.coordination.capacity import Node


class Clock(Protocol):
    """Time as the driver reads it; the module `time` is one."""

    def monotonic(self) -> float:
        """Return seconds that only rise."""

    def time(self) -> float:
        """Return seconds since the epoch."""

    def thread_time(self) -> float:
        """Return the CPU seconds of this thread."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


CLOCK: Clock = time


@dataclass(frozen=True)
class Names:
    """Names of one driver's actors in Ray's lists, in dashboards and among a machine's processes.

    Digits of its own tell them from other drivers' actors, and from a dead driver's that linger.
    """

    run: str
    digits: str = field(default_factory=lambda: uuid.uuid4().hex)

    def actor(self, role: str, number: int, rank: int = 0) -> str:
        """Return an actor's name in its namespace: ``raychains/digits-1a2b3c4d/chain-worker-0-5e6f70``."""
        of_rank = f".{rank}" if rank else ""
        return f"raychains/{self.run}/{role}-{number}{of_rank}-{self.digits[:6]}"

    def titled(self, kind: type) -> type[Any]:
        """Return the class under a name that holds the run's, from which Ray takes the title of processes."""
        return type(f"{kind.__name__}:{self.run}", (kind,), {"__module__": __name__, "__doc__": kind.__doc__})


@dataclass(frozen=True, kw_only=True)
class ActorOptions:
    """An actor's name, what it holds, and where it is placed."""

    name: str
    cpus: float = 0.0
    gpus: float = 0.0
    accelerator_type: str | None = None
    """Type of its GPUs; None is any."""
    node: str | None = None
    """The node that is preferred; None spreads actors over the nodes."""
    reservation: Any = None
    """A result of `Workers.reserve`: the actor takes the bundle of its ``rank``."""
    rank: int = 0


class CallFailed(Exception):
    """A call of an actor's method that has no result; the text is the whole error, ``reason`` its one line.

    Args:
        raised: whether the method itself raised.
        died: whether the actor is gone: its process, its node, or by an out-of-memory kill.
        with_node: whether it went with its node, or waited there.
        lost_object: whether an object that the call needed, or its result, went with a node.
        storage_away: whether the call could not reach the store.
    """

    def __init__(
        self,
        text: str,
        *,
        reason: str | None = None,
        raised: bool = False,
        died: bool = False,
        with_node: bool = False,
        lost_object: bool = False,
        storage_away: bool = False,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(text)
        self.reason = reason if reason is not None else text
        self.raised, self.died, self.with_node = raised, died, with_node
        self.lost_object, self.storage_away, self.cause = lost_object, storage_away, cause


class Cluster(Protocol):
    """The nodes that actors run on."""

    @property
    def started_here(self) -> bool:
        """True where this process started the cluster: what it has now is all that there will be."""

    def nodes(self, accelerator_type: str | None = None) -> list[Node]:
        """Return the living nodes that are to stay; with an ``accelerator_type`` only the GPUs of that type count."""

    def free(self, accelerator_type: str | None = None) -> list[Node]:
        """Return what nobody holds of them now."""

    def grows(self) -> bool:
        """Return whether an autoscaler adds nodes when actors wait for them."""

    def unplaced(self, actors: Collection[Any]) -> int:
        """Return how many of these actors have no process yet: they wait for a node with room. 0 where that is
        unknown."""

    def draining(self, actors: Collection[Any]) -> Collection[Any]:
        """Return those of these actors whose nodes are draining; none where that is unknown."""


class Workers(Cluster, Protocol):
    """Actors that are started, called, waited for and killed. None is restarted, no call retried."""

    @property
    def in_process(self) -> bool:
        """True where actors are objects of this process: they know the user's tasks and classes, and leave its settings
        alone."""

    def put(self, value: Any) -> Any:
        """Return a reference to an object that actors can fetch."""

    def reserve(self, bundle: Mapping[str, float], number: int) -> Any:
        """Reserve so many equal bundles on nodes close together, all or none of them."""

    def release(self, reservation: Any) -> None:
        """Give a reservation back."""

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        """Start an actor of class ``kind`` for a run; its constructor is given ``args``."""

    def kill(self, actor: Any) -> None:
        """End an actor at once."""

    def dismiss(self, actor: Any) -> None:
        """Let go of an actor that is well and has nothing to do: it ends, unless a pool keeps it for the next
        driver."""

    def call(self, actor: Any, method: str, *args: Any, group: str | None = None) -> Any:
        """Call an actor's method; return a reference to its result, which may be an argument of other calls."""

    def call_parts(self, parts: int, actor: Any, method: str, *args: Any, group: str | None = None) -> list[Any]:
        """Call a method that returns so many results; return a reference to each."""

    def wait(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        """Return the calls that are ready, in any order; wait at most ``timeout`` seconds for the first.

        One may be ready before another that the same actor answered first.
        """

    def result(self, call: Any) -> Any:
        """Return a call's result once it is ready.

        Raises:
            CallFailed: it has none.
        """
