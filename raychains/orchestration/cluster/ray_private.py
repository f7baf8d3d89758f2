"""Everything that raychains uses of Ray outside its public interface: the reason, and the public way that is missing.

Every function answers conservatively where Ray has changed: a run goes on without what is unknown.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import ray
from ray._private import ray_constants
from ray._private.node import Node

log = logging.getLogger(__name__)

_WITHOUT_AUTOSCALER = "node_"
"""Begins the type that a monitor without an autoscaler gives each node."""
_UNUSED = ("start_api_server", "start_monitor", "start_log_monitor")
"""Methods by which Ray starts the server of its dashboard, which runs although the dashboard is off; what adds nodes to
a cluster; and what sends workers' output to the driver, which is not asked for."""
_SWITCHED_OFF = ("ENABLE_RAY_CLUSTER", "RAY_ENABLE_UV_RUN_RUNTIME_ENV")
"""Constants by which Ray listens on every interface, and gives workers the environment of ``uv run``."""

NAMESPACE = b"raychains"
"""Namespace of our keys in the cluster's key-value store."""
_RAYS = re.compile(r"ray::|raylet|gcs_server|/agent/main\.py|/dashboard/agent\.py")
"""In the names or command lines of Ray's processes; its agents give themselves titles a while after they began."""
P = ParamSpec("P")
T = TypeVar("T")


def _or_else(otherwise: Any, unknown: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that returns ``otherwise`` where Ray has changed; ``unknown`` says what is not known then."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def answer(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                log.debug("%s: %s", unknown, error)
                return otherwise

        return answer

    return decorate


@contextlib.contextmanager
def on_this_machine() -> Iterator[None]:
    """A body in which `ray.init` starts a Ray that listens on the loopback address only and leaves unused processes
    out.

    Ray takes the loopback address by itself on macOS and Windows; on Linux it listens on every interface, and no
    argument of `ray.init` says otherwise. Nor does one leave out the three processes of `_UNUSED`, which take 2 s of a
    CPU, and 1.5 s to end. To measure what the patch of `Node` saves: ``python -c "import time,
    raychains.orchestration.cluster.session as s; t = time.time(); c = s.connect('local', cpus=2);
    print(time.time() - t); c.close(); print(time.time() - t)"``
    on a quiet machine, five times with ``_UNUSED`` as it is and five times with
    ``_UNUSED = ()``.

    Below ``uv run`` Ray would make the driver's environment again for each worker, in an uploaded copy of the current
    folder. Workers of this machine run the driver's interpreter in its folder. Ray reads the variable that says so as
    it is imported.
    """
    switches = {name: getattr(ray_constants, name) for name in _SWITCHED_OFF if hasattr(ray_constants, name)}
    left_out = {name: getattr(Node, name) for name in _UNUSED if hasattr(Node, name)}
    for name in switches:
        setattr(ray_constants, name, False)
    for name in left_out:
        setattr(Node, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, value in switches.items():
            setattr(ray_constants, name, value)
        for name, method in left_out.items():
            setattr(Node, name, method)


@_or_else(None, "the token's file stays as readable as it is")
def protect_token() -> None:
    """Let only its user read the token that Ray writes where it is started without one: Ray lets everybody."""
    path = Path.home() / ".ray" / "auth_token"
    found = path.lstat()
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o077:
        path.chmod(0o600)


def started_here() -> bool:
    """Return whether this process started Ray; `ray.init` returns it once, and nothing answers later."""
    node = ray._private.worker._global_node
    return node is not None and bool(node.head)


def dead_process() -> str | None:
    """Return which of Ray's processes that this process started is dead; None where all live, or another one started
    them."""
    for name in (ray_constants.PROCESS_TYPE_GCS_SERVER, ray_constants.PROCESS_TYPE_RAYLET):
        if any(process.poll() is not None for process in _started(name)):
            return str(name)
    return None


def start_by_itself(allowed: bool) -> None:
    """Say whether Ray's functions start a Ray where there is none, as threads would that wait for one that is gone."""
    with contextlib.suppress(ImportError):
        from ray._private import auto_init_hook

        auto_init_hook.enable_auto_connect = allowed and os.environ.get("RAY_ENABLE_AUTO_CONNECT") != "0"


def kill_gcs() -> None:
    """Kill the GCS that this process started: `ray.shutdown` waits for one that is stopped, but not for a dead one."""
    for process in _started(ray_constants.PROCESS_TYPE_GCS_SERVER):
        process.kill()


def kill_left(folder: Path) -> None:
    """Kill Ray's processes that have a file of its folder open: a raylet's agents outlive it, for long where its GCS
    died before."""
    import psutil  # Ray brings it along

    folder = folder.resolve()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            rays = process.pid != os.getpid() and _RAYS.search(f"{process.name()} {' '.join(process.cmdline())}")
            if rays and any(Path(file.path).is_relative_to(folder) for file in process.open_files()):
                process.kill()


def _started(kind: str) -> list[Any]:
    """Return the processes of a kind that Ray started in this process."""
    node = ray._private.worker._global_node
    return [] if node is None or not node.head else [started.process for started in node.all_processes.get(kind, ())]


def gcs_address() -> str:
    """Return HOST:PORT of the connected cluster's GCS."""
    return str(ray.get_runtime_context().gcs_address)


def available() -> Mapping[str, Mapping[str, float]]:
    """Return each node's free resources by its id; `ray.available_resources` gives sums over the cluster only."""
    found: Mapping[str, Mapping[str, float]] = ray._private.state.available_resources_per_node()
    return found


@_or_else(False, "not known whether the cluster has an autoscaler")
def autoscales() -> bool:
    """Return whether an autoscaler adds nodes; Ray says so nowhere, but the autoscaler leaves traces."""
    return bool(_launched())


def _launched() -> Collection[str]:
    """Kinds of nodes that an autoscaler knows to launch; without one every node is of a kind of its own, or of none."""
    from ray.experimental.internal_kv import _internal_kv_get

    status = _internal_kv_get("__autoscaling_status")
    if status:
        report = json.loads(status).get("autoscaler_report") or {}
        return {kind for kind in report.get("active_nodes") or () if not kind.startswith(_WITHOUT_AUTOSCALER)}
    from ray.autoscaler.v2.sdk import get_cluster_resource_state
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    client = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    if not is_autoscaler_v2(fetch_from_server=True, gcs_client=client):
        return ()
    return {state.ray_node_type_name for state in get_cluster_resource_state(client).node_states} - {""}


def actors(state: str | None = None) -> dict[str, dict[str, Any]]:
    """Return this job's actors by id, those in one state only; `ray.util.state` needs the dashboard's server."""
    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    found: dict[str, dict[str, Any]] = ray._private.state.actors(job_id=job, actor_state_name=state)
    return found


@_or_else(None, "not known where Serve listens")
def serve_address() -> tuple[str, int] | None:
    """Return the host and the port of the Serve that runs on this Ray."""
    from ray.serve.context import _get_global_client

    config = _get_global_client().http_config
    return config.host, config.port


@_or_else(0, "not known which actors wait for a node")
def unplaced(handles: Collection[Any]) -> int:
    """Return how many of these actors wait for a node with room; a handle tells neither its id nor its state."""
    raylets = {node["NodeID"]: node["NodeManagerPort"] for node in ray.nodes()}
    # Those in the queue of a raylet have its address, or none; others, whose process starts, have their own.
    pending = {
        actor: found["Address"]["Port"] in (0, raylets.get(found["Address"]["NodeID"]))
        for actor, found in actors("PENDING_CREATION").items()
    }
    return sum(pending.get(handle._actor_id.hex(), False) for handle in handles)


@_or_else((), "not known which nodes are draining")
def draining() -> Collection[str]:
    """Return the ids of draining nodes: a cloud's notice reaches Ray as SIGTERM to ``ray start --block``."""
    found: Collection[str] = ray._private.state.state.get_draining_nodes()
    return found


@_or_else([], "not known where actors are")
def draining_actors(handles: Collection[Any]) -> list[Any]:
    """Return those of these actors that are on draining nodes."""
    nodes = draining()
    if not nodes:
        return []
    on = {actor: found["Address"]["NodeID"] for actor, found in actors("ALIVE").items()}
    return [handle for handle in handles if on.get(handle._actor_id.hex()) in nodes]


@_or_else(False, "not known whether an actor is alive")
def lives(handle: Any) -> bool:
    """Return whether an actor is alive; `ray.get_actor` finds dead ones, too, and False is said where Ray does not
    say."""
    return handle._actor_id.hex() in actors("ALIVE")


@_or_else(True, "not known whether trials start")
def any_actor_alive() -> bool:
    """Return whether any process of this job is up or starting; True where Ray does not say."""
    return any(actor["State"] != "DEAD" for actor in actors().values())


# Trials of Ray Tune


@_or_else(None, "not published for other processes")
def publish(key: str, value: bytes) -> None:
    """Let `published` return ``value``; nothing happens where Ray has changed."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key.encode(), value, overwrite=True, namespace=NAMESPACE)


@_or_else(None, "not known what other processes published")
def published(key: str) -> bytes | None:
    """Return what any process of the cluster published last; None where it is nothing, or Ray has changed."""
    from ray.experimental.internal_kv import _internal_kv_get

    found: bytes | None = _internal_kv_get(key.encode(), namespace=NAMESPACE)
    return found


@_or_else(None, "not removed")
def forget(key: str) -> None:
    """Remove what was published."""
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(key.encode(), namespace=NAMESPACE)


@contextlib.contextmanager
def trials_survive_handovers() -> Iterator[None]:
    """A body in which Tune starts a trial again whose process died while it was handed over from an earlier trial.

    Tune hears of such a death twice, of the process and of the call. The first time it starts the trial again; the
    second time, since no process has it, it gives it up, whatever ``max_failures`` says. Nor does it print a traceback
    of any process that is
    gone: the sweep says so in a line.
    """
    from ray.exceptions import RayActorError
    from ray.tune.execution.tune_controller import TuneController

    failed = TuneController._trial_task_failure

    def once(self: Any, trial: Any, exception: Exception) -> None:
        if not isinstance(exception, RayActorError):
            failed(self, trial, exception)
        elif trial.status == trial.PENDING and trial not in self._trial_to_actor:
            self._resetting_trials.discard(trial)
        else:
            self._process_trial_failure(trial, exception=exception)

    TuneController._trial_task_failure = once
    try:
        yield
    finally:
        TuneController._trial_task_failure = failed
