"""A Ray cluster on this machine whose nodes are real raylets, to be killed and replaced."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from types import TracebackType
from typing import Any

import ray
from ray.cluster_utils import Cluster

from raychains.orchestration.cluster import ray_private
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.workers import ActorOptions, Names
from tests.processes import until

HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 4,
}
"""A dead raylet refuses connections and is missed in about a second; a slow one has ten."""


class Nodes:
    def __init__(self, folder: str, *, workers: int) -> None:
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0, "object_store_memory": 100_000_000, "include_dashboard": False, "temp_dir": folder,
                "_system_config": HEALTH, "include_log_monitor": False,
            },
        )  # fmt: skip
        for _ in range(workers):
            self.add()
        self._cluster._shutdown_at_exit = False  # its hooks want the main thread; `close` ends later nodes
        self.address: str = self._cluster.address
        ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")

    def add(self) -> None:
        self._cluster.add_node(num_cpus=1, object_store_memory=100_000_000, include_log_monitor=False)

    def replace_dead(self) -> int:
        """Clear away nodes whose raylet is dead and start as many new ones."""
        dead = [n for n in self._cluster.worker_nodes if n.dead_processes()]
        for node in dead:
            self._cluster.remove_node(node, allow_graceful=False)
        for _ in dead:
            self.add()
        return len(dead)

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


class Replacing:
    """Context in which another thread replaces nodes as they die, as a cloud's autoscaler would."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes, self._over, self.replaced = nodes, threading.Event(), 0
        self._thread = threading.Thread(target=self._watch, name="replacing nodes")
        self._error: BaseException | None = None

    def __enter__(self) -> Replacing:
        self._thread.start()
        return self

    def _watch(self) -> None:
        try:
            while not self._over.wait(0.2):
                self.replaced += self._nodes.replace_dead()
            self.replaced += self._nodes.replace_dead()
        except BaseException as error:
            self._error = error
            signal.raise_signal(signal.SIGINT)  # without nodes the driver would wait for ever

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


class Weighed:
    """A remote class whose actors take a byte of memory: one that takes nothing is placed at random, whatever is asked
    for."""

    def __init__(self, remote: Any) -> None:
        self._remote = remote

    def options(self, **given: Any) -> Any:
        return self._remote.options(memory=1, **given)


class Placed(RayWorkers):
    """The first actors without a CPU, evaluators, are on these nodes."""

    def __init__(self, *nodes: str) -> None:
        super().__init__()
        self._nodes = list(nodes)

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        if options.cpus or not self._nodes:
            return super().start(kind, run, options, *args)
        node, kinds = self._nodes.pop(0), self._kinds
        remote = ray.remote(concurrency_groups=kind.concurrency_groups)  # type: ignore[attr-defined]
        self._kinds = {(kind, run): Weighed(remote(Names(run).titled(kind)))}
        try:
            actor = super().start(kind, run, replace(options, node=node), *args)
        finally:
            self._kinds = kinds
        until(lambda: ray_private.lives(actor), "an evaluator")
        assert ray_private.actors("ALIVE")[actor._actor_id.hex()]["Address"]["NodeID"] == node
        return actor
