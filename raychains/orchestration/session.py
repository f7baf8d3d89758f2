"""Connecting to Ray: an address by choice, else this machine, never a cluster that happens to be there."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ray
from ray._private import ray_constants

from raychains.errors import UserError, require
from raychains.orchestration import preflight

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
"""Seconds that a cluster has to answer."""


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
) -> Session:
    """Use the connection that the process has, else ``address``, else RAY_ADDRESS, else start Ray on this machine.

    A bare `ray.init()` would join any cluster it finds on the machine, so the address is always explicit.

    Raises:
        UserError: a ``ray://`` address, nothing at the address, or a machine on which Ray cannot start.
    """
    if ray.is_initialized():
        return Session(ours=False)
    where = look(address, object_store_memory=object_store_memory, temp_dir=temp_dir)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # evaluators hide the GPUs themselves
    options: dict[str, object] = {"address": where, "log_to_driver": False, "logging_level": logging.ERROR}
    if where == "local":
        memory = preflight.object_store_bytes(object_store_memory)
        options |= {"object_store_memory": memory, "include_dashboard": False, "_temp_dir": temp_dir, "num_cpus": cpus}
    try:
        with _on_this_machine_only() if where == "local" else contextlib.nullcontext():
            ray.init(**{k: v for k, v in options.items() if v is not None})
    except ConnectionError as error:
        raise UserError(
            f"address must be that of a running Ray cluster, got {where!r}: {str(error).splitlines()[0]}"
        ) from None
    return Session(ours=True)


@contextlib.contextmanager
def _on_this_machine_only() -> Iterator[None]:
    """A Ray that starts in the body takes the loopback address, so that none of its processes listens to the network.

    Ray does so by itself on macOS and Windows; on Linux it would listen on every interface.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


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
    others_gpus: float = 0.0
    """GPUs that evaluators hold."""

    def room(self) -> int:
        """How many chains the cluster can hold now."""
        return room(self.cpus, self.gpus, self.others_gpus)

    def describe(self) -> str:
        """For people."""
        if self.gpus:
            share = f"1/{round(1 / self.gpus)} GPU" if self.gpus < 1 else f"{self.gpus:g} GPU"
            return f"{share}, {self.cpus:g} CPU"
        return f"{self.cpus:g} CPU"


def check_share(gpus: float | None, field: str = "gpus_per_chain") -> None:
    """Refuse what Ray cannot give one chain or evaluator: neither 1/k of a GPU nor whole GPUs."""
    if gpus is None:
        return
    inverse = 1 / gpus if 0 < gpus < 1 else gpus
    whole = math.isfinite(gpus) and gpus >= 0 and abs(inverse - round(inverse)) < 1e-6
    require(whole, field, gpus, "be 1/k or a whole number")


def slots(cpus_per_chain: int, gpus_per_chain: float | None, evaluators_gpus: float = 0.0) -> Slots:
    """The cluster's slots now; GPUs are used when Ray has them, unless ``gpus_per_chain`` says otherwise.

    Evaluators hold ``evaluators_gpus`` of the GPUs, all of them together.

    Raises:
        UserError: a fraction of a GPU that is not 1/k, or a slot that no part of the cluster can hold.
    """
    have = ray.cluster_resources()
    cpus, gpus = have.get("CPU", 0.0), have.get("GPU", 0.0)
    share = gpus_per_chain if gpus_per_chain is not None else (1.0 if gpus else 0.0)
    if share > gpus:
        raise UserError(f"gpus_per_chain must be at most the cluster's GPUs ({gpus:g}), got {share:g}")
    if cpus_per_chain > cpus:
        raise UserError(f"cpus_per_chain must be at most the cluster's CPUs ({cpus:g}), got {cpus_per_chain}")
    if evaluators_gpus and evaluators_gpus + share > gpus:
        kept = f", of which a chain takes {share:g}" if share else ""
        raise UserError(
            f"evaluators × gpus_per_evaluator must fit into the cluster's GPUs ({gpus:g}{kept}), got {evaluators_gpus:g}"
        )
    count = room(cpus_per_chain, share, evaluators_gpus)
    return Slots(cpus=cpus_per_chain, gpus=share, count=count, others_gpus=evaluators_gpus)


def room(cpus: float, gpus: float, others_gpus: float = 0.0) -> int:
    """How many chains the cluster's nodes can hold now; none for a while where nodes went."""
    have = ray.cluster_resources()
    count = int(have.get("CPU", 0.0) // cpus)
    free = max(0.0, have.get("GPU", 0.0) - others_gpus)
    return min(count, int(free / gpus + 1e-9)) if gpus else count
