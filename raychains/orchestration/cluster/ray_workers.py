"""`Workers` on Ray: actors without restarts or retries, the nodes of the cluster, and what Ray's errors mean."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ObjectLostError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from raychains.coordination.capacity import ACCELERATOR, Node
from raychains.core.errors import RaychainsError, StorageAway
from raychains.orchestration.cluster import ray_private, ray_watch
from raychains.orchestration.cluster.workers import ActorOptions, CallFailed, Names

PAUSE = 10e-6
"""Seconds of rest per reference that is waited for, each of which Ray checks every time: about .4 µs."""
_WITH_NODE = "its node has died"
"""Ray's words for an actor that went with its node, or waited there."""


class RayWorkers:
    """`raychains.orchestration.cluster.workers.Workers` on Ray, which must be connected; where it is gone, calls raise
    `RayLost`."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[type, str], Any] = {}
        """Remote classes, each made once: Ray keeps and sends around every class that it is given."""

    in_process = False

    # The cluster

    @property
    def started_here(self) -> bool:
        """See `Cluster`."""
        return ray_private.started_here()

    def nodes(self, accelerator_type: str | None = None) -> list[Node]:
        """See `Cluster`."""
        return [_node(n, n["Resources"], accelerator_type) for n in ray_watch.ask(_staying)]

    def free(self, accelerator_type: str | None = None) -> list[Node]:
        """See `Cluster`."""
        available, nodes = ray_watch.ask(lambda: (ray_private.available(), _staying()))
        return [_node(n, available.get(n["NodeID"], {}), accelerator_type) for n in nodes]

    def grows(self) -> bool:
        """See `Cluster`."""
        return not self.started_here and ray_watch.ask(ray_private.autoscales)

    def unplaced(self, actors: Collection[Any]) -> int:
        """See `Cluster`."""
        return ray_watch.ask(lambda: ray_private.unplaced(actors))

    def draining(self, actors: Collection[Any]) -> Collection[Any]:
        """See `Cluster`."""
        return ray_watch.ask(lambda: ray_private.draining_actors(actors))

    # Actors

    def put(self, value: Any) -> Any:
        """See `Workers`."""
        return ray_watch.ask(lambda: ray.put(value), within=math.inf)  # a task object may be large

    def reserve(self, bundle: Mapping[str, float], number: int) -> Any:
        """See `Workers`."""
        return ray_watch.ask(lambda: placement_group([dict(bundle)] * number, strategy="PACK"))

    def release(self, reservation: Any) -> None:
        """See `Workers`."""
        if ray_watch.lost() is None:
            ray_watch.ask(lambda: remove_placement_group(reservation))

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        """See `Workers`; a class may have ``concurrency_groups``, Ray's."""
        if (kind, run) not in self._kinds:
            groups = getattr(kind, "concurrency_groups", None)
            remote = ray.remote(concurrency_groups=groups) if groups else ray.remote
            self._kinds[kind, run] = remote(Names(run).titled(kind))
        strategy: Any = "SPREAD"
        if options.reservation is not None:
            strategy = PlacementGroupSchedulingStrategy(options.reservation, options.rank)
        elif options.node is not None:
            strategy = NodeAffinitySchedulingStrategy(options.node, soft=True)
        held = {"num_cpus": options.cpus, "num_gpus": options.gpus, "scheduling_strategy": strategy}
        if options.gpus and options.accelerator_type is not None:
            held["accelerator_type"] = options.accelerator_type
        never = {"max_restarts": 0, "max_task_retries": 0}
        made = self._kinds[kind, run].options(name=options.name, **held, **never)
        return ray_watch.ask(lambda: made.remote(*args))

    def kill(self, actor: Any) -> None:
        """See `Workers`."""
        if ray_watch.lost() is None:  # else it went with Ray
            ray.kill(actor)

    def dismiss(self, actor: Any) -> None:
        """See `Workers`."""
        self.kill(actor)

    # Calls

    def call(self, actor: Any, method: str, *args: Any, group: str | None = None) -> Any:
        """See `Workers`; ``group`` is a concurrency group of the actor's class."""
        ray_watch.check()
        remote = getattr(actor, method)
        return (remote.options(concurrency_group=group) if group is not None else remote).remote(*args)

    def call_parts(self, parts: int, actor: Any, method: str, *args: Any, group: str | None = None) -> list[Any]:
        """See `Workers`."""
        ray_watch.check()
        more = {"concurrency_group": group} if group is not None else {}
        found = getattr(actor, method).options(num_returns=parts, **more).remote(*args)
        return [found] if parts == 1 else list(found)

    def wait(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        """See `Workers`."""
        time.sleep(PAUSE * len(calls))
        ray_watch.check()
        try:
            ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
            if not ready:
                ready, _ = ray.wait(calls, num_returns=1, timeout=timeout, fetch_local=False)
        except OSError:  # a raylet that dies meanwhile
            ray_watch.check()
            raise
        return list(ready)

    def result(self, call: Any) -> Any:
        """See `Workers`."""
        ray_watch.check()  # Ray ends a process that reads an object where no raylet is
        try:
            return ray.get(call)
        except RayError as error:  # a death, a node's, Ray's out-of-memory kill, or an error of the method's own
            ray_watch.check()
            raise failure(error) from error


def failure(error: RayError) -> CallFailed:
    """Return what an error of Ray says about its cause."""
    causes = _causes(error)
    # Ray's own wrapper of an error is an instance of its class, too.
    own = [c for c in causes if isinstance(c, RaychainsError) and not isinstance(c, RayError)]
    return CallFailed(
        str(error),
        reason=_line(error),
        raised=isinstance(error, RayTaskError),
        died=not isinstance(error, RayTaskError | ObjectLostError),
        with_node=_WITH_NODE in str(error),
        lost_object=any(isinstance(cause, ObjectLostError) for cause in causes),
        storage_away=any(isinstance(cause, StorageAway) for cause in causes),
        cause=own[0] if own else getattr(error, "cause", None),
    )


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what Ray says it was raised for: an argument's error is passed on by every call that needs it."""
    found: list[BaseException] = []
    now: object = error
    while isinstance(now, BaseException) and now not in found:
        found.append(now)
        now = getattr(now, "cause", None) or now.__cause__
    return found


def _line(error: RayError) -> str:
    """A loss in one line; of an error in the worker's own code what was raised."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, RayTaskError) or "creation task" in lines[0]:
        return lines[-1].strip()
    # Of an actor's death the cause follows the actor's particulars, which are indented.
    causes = [line for line in lines[1:] if not line[0].isspace()] if lines[0] == ActorDiedError.BASE_ERROR_MSG else []
    return (causes or lines)[0].strip()


def _staying() -> list[dict[str, Any]]:
    """Return Ray's records of the living nodes that are not draining."""
    gone = ray_private.draining()
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in gone]


def _node(node: Mapping[str, Any], counted: Mapping[str, float], accelerator_type: str | None) -> Node:
    kinds = [name.removeprefix(ACCELERATOR) for name in node["Resources"] if name.startswith(ACCELERATOR)]
    gpus = counted.get("GPU", 0.0) if accelerator_type is None or accelerator_type in kinds else 0.0
    return Node(counted.get("CPU", 0.0), gpus, node["NodeID"], kinds[0] if kinds else None)
