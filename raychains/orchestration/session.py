"""Connecting to Ray: an address by choice, else this machine, never a cluster that happens to be there."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ray

from raychains.errors import UserError, require, unknown_name
from raychains.orchestration import alone, cluster, preflight
from raychains.orchestration.interrupt import sigterm_kept
from raychains.planning.room import Fit, Node, fit
from raychains.planning.room import describe as describe_nodes

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
"""Seconds that a cluster has to answer."""
NAMESPACE = "raychains"
"""Where actors have their names: ``ray list actors --filter ray_namespace=raychains``."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A connection to Ray, and whether it was made here."""

    ours: bool
    """Whether `close` shuts Ray down: a connection that the caller had made stays."""

    def close(self) -> None:
        """Leave Ray; a local one that was started here ends."""
        if self.ours:
            ray.shutdown()


def connect(
    address: str | None = None,
    *,
    object_store_memory: int | None = None,
    temp_dir: str | None = None,
    cpus: int | None = None,
    namespace: str | None = None,
) -> Session:
    """Use the connection that the process has, else ``address``, else RAY_ADDRESS, else start Ray on this machine.

    A bare `ray.init()` would join any cluster it finds on the machine, so the address is always explicit. Actors have
    names in ``namespace``, default `NAMESPACE`; where the caller connected, in that connection's.

    Raises:
        UserError: a ``ray://`` address, nothing at the address, a cluster of another Ray or Python, or a machine on which
            Ray cannot start.
    """
    if ray.is_initialized():
        return Session(ours=False)
    where = look(address, object_store_memory=object_store_memory, temp_dir=temp_dir)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # evaluators hide the GPUs themselves
    options: dict[str, object] = {"address": where, "namespace": namespace or NAMESPACE}
    options |= {"log_to_driver": False, "logging_level": logging.ERROR}
    if where == "local":
        memory = preflight.object_store_bytes(object_store_memory)
        options |= {"object_store_memory": memory, "include_dashboard": False, "_temp_dir": temp_dir, "num_cpus": cpus}
    try:
        with sigterm_kept(), alone.on_this_machine() if where == "local" else contextlib.nullcontext():
            ray.init(**{k: v for k, v in options.items() if v is not None})
    except ConnectionError as error:
        raise UserError(
            f"address must be that of a running Ray cluster, got {where!r}: {str(error).splitlines()[0]}"
        ) from None
    except RuntimeError as error:
        if "ersion mismatch" not in str(error):
            raise
        raise UserError(
            f"address must be that of a cluster with this Ray and Python, got {where!r}: {' '.join(str(error).split())}"
        ) from None
    return Session(ours=True)


def look(address: str | None = None, *, object_store_memory: int | None = None, temp_dir: str | None = None) -> str:
    """The address that `connect` would use, after a look at whether it can; starts nothing.

    Raises:
        UserError: a ``ray://`` address, or a machine on which Ray cannot start.
    """
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    if where.startswith("ray://"):
        raise UserError(
            f"address must not be a Ray Client one, got {where!r}: run on the cluster with 'ray job submit', or give HOST:PORT"
        )
    if where == "local":
        memory = preflight.object_store_bytes(object_store_memory)
        for warning in preflight.check(object_store_memory=memory, temp_dir=Path(temp_dir) if temp_dir else None):
            log.warning("%s", warning)
    elif not _answers(where):
        raise UserError(f"address must be HOST:PORT of a running Ray cluster, got {where!r}: nothing answers there")
    return where


def _answers(address: str) -> bool:
    """Whether something listens at HOST:PORT; Ray itself waits a minute and more before it says so."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return False
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError, ValueError):  # ValueError: a host or port that is none, such as '²'
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What one chain holds, and how many such slots the cluster has."""

    cpus: float
    gpus: float
    count: int
    """How many the cluster had at first."""
    others_gpus: float = 0.0
    """GPUs that evaluators hold, all of them together."""
    others: int = 1
    """How many evaluators hold them."""
    accelerator_type: str | None = None
    """Of the GPUs that chains and evaluators hold; None is any."""
    concurrent: int | None = None
    """The most chains that may run at once."""
    ranks: int = 1
    """Workers of one chain, each of which holds so much."""
    decoders: int = 0
    """Actors of one CPU that decode for the chains; they come before chains, but for the last."""
    grows: bool = False
    """Whether chains are to wait for slots that no node has yet: an autoscaler adds nodes for them."""

    def room(self) -> int:
        """How many chains the cluster can hold now, whoever else holds part of it; none for a while where nodes went."""
        return self._most(self._fit().chains // self.ranks)

    def bundle(self) -> dict[str, float]:
        """What one worker holds, as Ray's placement groups take it."""
        held: dict[str, float] = {"CPU": self.cpus}
        if self.gpus:
            held["GPU"] = self.gpus
            if self.accelerator_type is not None:
                held[f"{cluster.ACCELERATOR}{self.accelerator_type}"] = 0.001
        return held

    def wanted(self, chains: int) -> int:
        """How many slots to ask the cluster for when so many chains run or could."""
        return self._most(chains) if self.grows else min(chains, self.room())

    def at_once(self, chains: int) -> int:
        """How many of so many chains run at once, as far as that is known: a cluster that grows is thought to do it."""
        return self._most(chains) if self.grows else min(chains, self.count)

    def node_of_evaluator(self, number: int) -> str | None:
        """The node on which an evaluator's GPU costs the fewest chains; None where none has room for it."""
        nodes = cluster.nodes(self.accelerator_type)
        placed = self._fit(nodes).evaluators
        return nodes[placed[number]].id if number < len(placed) else None

    def nodes_of_decoders(self) -> list[str | None]:
        """The node of each decoder, where their CPUs cost the fewest chains; None is any that comes.

        Fewer than wanted where a chain has no room beside more.
        """
        nodes = cluster.nodes(self.accelerator_type)
        placed: list[str | None] = [nodes[i].id for i in self._fit(nodes).decoders]
        return placed + [None] * (self.decoders - len(placed)) if self.grows else placed

    def describe(self) -> str:
        """For people."""
        held = f"{self.cpus:g} CPU"
        if self.gpus:
            share = f"1/{round(1 / self.gpus)} GPU" if self.gpus < 1 else f"{self.gpus:g} GPU"
            kind = f" ({self.accelerator_type})" if self.accelerator_type else ""
            held = f"{share}{kind}, {held}"
        return held if self.ranks == 1 else f"{self.ranks} workers of {held}"

    def _fit(self, nodes: Sequence[Node] | None = None) -> Fit:
        nodes = cluster.nodes(self.accelerator_type) if nodes is None else nodes
        return fit(
            nodes, self.cpus, self.gpus, self.others, self.others_gpus / self.others,
            decoders=self.decoders, least=self.ranks,
        )  # fmt: skip

    def _most(self, chains: int) -> int:
        return chains if self.concurrent is None else min(chains, self.concurrent)


def check_share(gpus: float | None, field: str = "gpus_per_chain") -> None:
    """Refuse what Ray cannot give one chain or evaluator: neither 1/k of a GPU nor whole GPUs."""
    if gpus is None:
        return
    inverse = 1 / gpus if 0 < gpus < 1 else gpus
    whole = math.isfinite(gpus) and gpus >= 0 and abs(inverse - round(inverse)) < 1e-6
    require(whole, field, gpus, "be 1/k or a whole number")


def slots(
    cpus_per_chain: int,
    gpus_per_chain: float | None,
    evaluators_gpus: float = 0.0,
    *,
    evaluators: int = 1,
    accelerator_type: str | None = None,
    concurrent: int | None = None,
    ranks: int = 1,
    decoders: int = 0,
) -> Slots:
    """The cluster's slots now; GPUs are used when Ray has them, unless ``gpus_per_chain`` says otherwise.

    ``evaluators`` hold ``evaluators_gpus`` of the GPUs, all of them together. A cluster that adds nodes on demand may have
    none yet; one that was joined counts as such where ``concurrent`` says how many chains may run. ``decoders`` take a CPU
    each, but never the last chain's.

    Raises:
        UserError: a fraction of a GPU that is not 1/k, or a slot or a type of GPU that no part of the cluster can hold.
    """
    nodes = cluster.nodes()
    default = 1.0 if accelerator_type is not None or any(node.gpus for node in nodes) else 0.0
    share = gpus_per_chain if gpus_per_chain is not None else default
    grows = not cluster.ours() and (concurrent is not None or cluster.grows())
    if not grows:
        _check_type(accelerator_type, nodes)
        _check_room(cpus_per_chain, share, evaluators, evaluators_gpus, cluster.nodes(accelerator_type), ranks)
        fitting = fit(cluster.nodes(accelerator_type), cpus_per_chain, share, evaluators, evaluators_gpus / evaluators)
        if fitting.chains < ranks:
            raise UserError(
                f"workers_per_chain must be at most what the cluster holds ({fitting.chains}), got {ranks}: it has "
                f"{describe_nodes(nodes)}"
            )
        _check_decoders(decoders, cpus_per_chain, share, evaluators, evaluators_gpus, accelerator_type, ranks)
    made = Slots(
        cpus=cpus_per_chain,
        gpus=share,
        count=0,
        others_gpus=evaluators_gpus,
        others=evaluators,
        accelerator_type=accelerator_type,
        concurrent=concurrent,
        ranks=ranks,
        decoders=decoders,
        grows=grows,
    )
    return dataclasses.replace(made, count=made.room())


def _check_type(accelerator_type: str | None, nodes: Sequence[Node]) -> None:
    types = sorted({node.accelerator for node in nodes if node.accelerator is not None and node.gpus})
    if accelerator_type is None or accelerator_type in types:
        return
    if types:
        raise unknown_name("accelerator_type", accelerator_type, types)
    raise UserError(
        f"accelerator_type must be left out, got {accelerator_type!r}: the cluster has no GPU whose type is known to Ray"
    )


def _check_decoders(
    decoders: int, cpus: float, share: float, evaluators: int, held: float, accelerator_type: str | None, ranks: int
) -> None:
    """Refuse decoders that leave no chain room."""
    nodes = cluster.nodes(accelerator_type)
    most = len(fit(nodes, cpus, share, evaluators, held / evaluators, decoders=decoders, least=ranks).decoders)
    if most < decoders:
        allowed = f"be at most {most} here" if most else "be left out here"
        raise UserError(
            f"decoders must {allowed}, got {decoders}: each takes a CPU, a chain takes {cpus * ranks:g}, and the cluster has "
            f"{describe_nodes(cluster.nodes())}"
        )


def _check_room(cpus: float, share: float, evaluators: int, held: float, nodes: Sequence[Node], ranks: int = 1) -> None:
    """Refuse a slot that no node of the cluster holds."""
    most_cpus, most_gpus = max((n.cpus for n in nodes), default=0.0), max((n.gpus for n in nodes), default=0.0)
    gpus = sum(n.gpus for n in nodes)
    if share > gpus:
        raise UserError(f"gpus_per_chain must be at most the cluster's GPUs ({gpus:g}), got {share * ranks:g}")
    if share > most_gpus:
        raise UserError(f"gpus_per_chain must be at most the GPUs of one node ({most_gpus:g}), got {share:g}")
    if cpus > most_cpus:
        raise UserError(f"cpus_per_chain must be at most the CPUs of one node ({most_cpus:g}), got {cpus:g}")
    if share and not fit(nodes, cpus, share).chains:
        raise UserError(
            f"cpus_per_chain must be at most the CPUs of a node with {share:g} GPU, got {cpus:g}: the cluster has "
            f"{describe_nodes(nodes)}"
        )
    together = fit(nodes, cpus, share, evaluators, held / evaluators)
    if held and (not together.chains or len(together.evaluators) < evaluators):
        kept = f", of which a chain takes {share:g}" if share else ""
        raise UserError(
            f"evaluators × gpus_per_evaluator must fit into the cluster's GPUs ({gpus:g}{kept}), got {held:g}"
        )
