"""Connecting to Ray: an address by choice, else this machine, never a cluster that happens to be there."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import ray

from raychains.core.errors import UserError
from raychains.orchestration import preflight, ray_private
from raychains.orchestration.interrupt import sigterm_kept

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
"""Seconds that a cluster has to answer."""
NAMESPACE = "raychains"
"""Namespace of the actors' names: ``ray list actors --filter ray_namespace=raychains``."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A connection to Ray, and who made it."""

    ours: bool
    """`close` shuts Ray down; a connection that the caller had made stays."""

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
    where = check_address(address, object_store_memory=object_store_memory, temp_dir=temp_dir)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # evaluators hide the GPUs themselves
    options: dict[str, object] = {"address": where, "namespace": namespace or NAMESPACE}
    options |= {"log_to_driver": False, "logging_level": logging.ERROR}
    if where == "local":
        memory = preflight.object_store_bytes(object_store_memory)
        options |= {"object_store_memory": memory, "include_dashboard": False, "_temp_dir": temp_dir, "num_cpus": cpus}
    try:
        with sigterm_kept(), ray_private.on_this_machine() if where == "local" else contextlib.nullcontext():
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


def connection(address: str | None = None) -> str:
    """Return what `connect` is about to do, for people; nothing where the process is connected already."""
    if ray.is_initialized():
        return ""
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    return "starting Ray on this machine" if where == "local" else f"connecting to Ray at {where}"


def check_address(
    address: str | None = None, *, object_store_memory: int | None = None, temp_dir: str | None = None
) -> str:
    """Return the address that `connect` would use, checked as far as that starts nothing.

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
    """Return whether something listens at HOST:PORT; Ray itself waits a minute and more before it says so."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return False
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError, ValueError):  # ValueError: a host or port that is none, such as '²'
        return False
    return True
