"""Connecting to Ray: an address by choice, else this machine, never a cluster that happens to be there."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import ray

from raychains.core.errors import RayLost, UserError, format_error
from raychains.orchestration.cluster import preflight, ray_private, ray_watch
from raychains.orchestration.interrupt import sigterm_kept

log = logging.getLogger(__name__)

REMOVALS = 20
"""Times that Ray's folder is removed, as long as something is in it again."""
ENVIRONMENT = re.compile(r"'uv run'|working_dir|[Pp]ackage size|[Rr]untime.env")
"""In Ray's messages about an environment that workers cannot have: one of ``uv run`` or of a job."""
FIRST_WORKER = 900.0
"""Seconds in which a process must start in an environment of ``uv run``, which each node of a cluster installs for
itself."""
NOTICE = 30.0
"""Seconds after which it is said that nothing started yet."""
NAMESPACE = "raychains"
"""Namespace of the actors' names: ``ray list actors --filter ray_namespace=raychains``."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A connection to Ray, and who made it."""

    ours: bool
    """`close` shuts Ray down; a connection that the caller had made stays, unless Ray is gone."""
    folder: Path | None = None
    """The folder of a Ray that was started here, with its sockets, logs and spilled objects, which only this user can
    reach."""
    watch: ray_watch.Watch = field(default_factory=ray_watch.Watch, repr=False, compare=False)

    def close(self) -> None:
        """Leave Ray; a local one that was started here ends, and its folder is removed."""
        gone = self.watch.look() is not None
        self.watch.close()
        if gone:
            ray_private.start_by_itself(False)
            ray_private.kill_gcs()
        if self.ours or gone:  # a connection to a Ray that is gone would end the process within a minute
            ray.shutdown()
        if self.folder is not None:
            ray_private.kill_left(self.folder)
            _remove(self.folder)


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
        UserError: a ``ray://`` address, nothing at the address, a cluster of another Ray or Python, or a machine on
            which Ray cannot start.
        RayLost: Ray was to be started here and did not start, twice.
    """
    if ray.is_initialized():
        return Session(ours=False)
    where = check_address(address, object_store_memory=object_store_memory, temp_dir=temp_dir)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # evaluators hide the GPUs themselves
    options: dict[str, object] = {"address": where, "namespace": namespace or NAMESPACE}
    options |= {"log_to_driver": False, "logging_level": logging.ERROR}
    folder = None
    if where == "local":
        memory = preflight.object_store_bytes(object_store_memory)
        folder = _private_folder(Path(temp_dir) if temp_dir else preflight.ray_temp_dir(os.environ))
        options |= {"object_store_memory": memory, "include_dashboard": False, "num_cpus": cpus}
        options |= {"_temp_dir": str(folder / "s")}
    options = {k: v for k, v in options.items() if v is not None}
    try:
        with sigterm_kept(), ray_private.on_this_machine() if where == "local" else contextlib.nullcontext():
            try:
                ray.init(**options)
            except Exception:
                if where != "local":
                    raise
                ray.init(**options)  # one of its processes may have died as it started
            finally:
                if where == "local":
                    ray_private.protect_token()
    except BaseException as error:
        if folder is not None:
            ray.shutdown()
            ray_private.kill_left(folder)
            shutil.rmtree(folder, ignore_errors=True)
        raise _refused(error, where) from None
    ray_private.start_by_itself(True)
    made = Session(ours=True, folder=folder)
    try:
        _wait_for_a_worker()
    except BaseException:
        made.close()
        raise
    return made


def _wait_for_a_worker() -> None:
    """Wait until a process has started as ``uv run`` says: Ray repeats one that does not, without a word.

    Raises:
        UserError: none started in `FIRST_WORKER` seconds, or Ray cannot make the environment.
    """
    command = ray.get_runtime_context().runtime_env.get("py_executable")
    if command is None:
        return
    first = ray.remote(num_cpus=0)(_nothing).remote()
    try:
        if not ray.wait([first], timeout=NOTICE)[0]:
            log.warning("no worker has started yet: each node makes the environment of '%s'", command)
            if not ray.wait([first], timeout=FIRST_WORKER)[0]:
                raise UserError(
                    f"workers must be able to start with {command!r}, but none did in {NOTICE + FIRST_WORKER:g} s: "
                    "its output is in raylet.err among Ray's logs of the node"
                )
        ray.get(first)
    except ray.exceptions.RuntimeEnvSetupError as error:
        raise UserError(f"workers must be able to start with {command!r}: {format_error(error, kind=True)}") from None


def _nothing() -> None:
    pass


def _refused(error: BaseException, where: str) -> BaseException:
    """Return what an error of `ray.init` is to users."""
    if isinstance(error, ConnectionError):
        return UserError(f"address must be that of a running Ray cluster, got {where!r}: {str(error).splitlines()[0]}")
    if isinstance(error, RuntimeError) and "ersion mismatch" in str(error):
        found = " ".join(str(error).split())
        return UserError(f"address must be that of a cluster with the same Ray and Python, got {where!r}: {found}")
    if isinstance(error, (RuntimeError, ValueError)) and ENVIRONMENT.search(str(error)):
        return UserError(f"the workers' environment must be one that Ray can make: {' '.join(str(error).split())}")
    if where == "local" and isinstance(error, Exception):
        reason = format_error(error, kind=True)
        return RayLost(
            f"Ray did not start on this machine, twice: {reason}. Nothing in the store is lost: repeat the call"
        )
    return error


def _private_folder(parent: Path) -> Path:
    """Make a folder for Ray below ``parent`` that only this user enters: Ray makes all of its own writable to
    everybody."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="ray", dir=parent))
    except OSError as error:
        raise UserError(
            f"RAY_TMPDIR must be a folder that can be written to, got {str(parent)!r}: {error.strerror}"
        ) from None


def _remove(folder: Path) -> None:
    """Remove a session's folder; processes that still end may write meanwhile."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def address_of(address: str | None) -> str:
    """Return the address that `connect` uses: the one given, else RAY_ADDRESS, else ``local``, this machine."""
    return address or os.environ.get("RAY_ADDRESS") or "local"


def connection(address: str | None = None) -> str:
    """Return what `connect` is about to do, for people; nothing where the process is connected already."""
    if ray.is_initialized():
        return ""
    where = address_of(address)
    return "starting Ray on this machine" if where == "local" else f"connecting to Ray at {where}"


def check_address(
    address: str | None = None,
    *,
    object_store_memory: int | None = None,
    temp_dir: str | None = None,
    warn: bool = True,
) -> str:
    """Return the address that `connect` would use, checked as far as that starts nothing.

    Args:
        address, object_store_memory, temp_dir: as for `connect`.
        warn: log what is wrong with this machine but does not keep Ray from starting.

    Raises:
        UserError: a ``ray://`` address, or a machine on which Ray cannot start.
    """
    where = address_of(address)
    if where.startswith("ray://"):
        raise UserError(
            f"address must not be a Ray Client one, got {where!r}: run on the cluster with 'ray job submit', or give "
            "HOST:PORT"
        )
    if where == "local":
        memory = preflight.object_store_bytes(object_store_memory)
        for warning in preflight.check(object_store_memory=memory, temp_dir=Path(temp_dir) if temp_dir else None):
            if warn:
                log.warning("%s", warning)
    elif not ray_watch.answers(where):
        raise UserError(f"address must be HOST:PORT of a running Ray cluster, got {where!r}: nothing answers there")
    return where
