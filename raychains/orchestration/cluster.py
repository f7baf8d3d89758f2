"""What the cluster that Ray is connected to has: nodes, what is free on them, and whether it adds some on demand."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from typing import Any

import ray

from raychains.planning.room import Node

log = logging.getLogger(__name__)

ACCELERATOR = "accelerator_type:"
"""Begins the resource by which a node says what its GPUs are."""
_MADE_UP = "node_"
"""Begins the type that a monitor without an autoscaler gives each node."""


def nodes(accelerator_type: str | None = None) -> list[Node]:
    """The living nodes; with an ``accelerator_type`` only the GPUs of that type count."""
    return [_node(n["NodeID"], n["Resources"], n["Resources"], accelerator_type) for n in ray.nodes() if n["Alive"]]


def free(accelerator_type: str | None = None) -> list[Node]:
    """What nobody holds of them now."""
    available = ray._private.state.available_resources_per_node()
    return [
        _node(n["NodeID"], available.get(n["NodeID"], {}), n["Resources"], accelerator_type)
        for n in ray.nodes()
        if n["Alive"]
    ]


def _node(name: str, counted: dict[str, float], has: dict[str, float], wanted: str | None) -> Node:
    types = [r.removeprefix(ACCELERATOR) for r in has if r.startswith(ACCELERATOR)]
    gpus = counted.get("GPU", 0.0) if wanted is None or wanted in types else 0.0
    return Node(counted.get("CPU", 0.0), gpus, name, types[0] if types else None)


def accelerator_types() -> list[str]:
    """The types of GPU that living nodes have."""
    return sorted({n.accelerator for n in nodes() if n.accelerator is not None and n.gpus})


def ours() -> bool:
    """Whether this process started Ray: what it has then is all that there will be."""
    node = ray._private.worker._global_node
    return node is not None and bool(node.head)


def grows() -> bool:
    """Whether an autoscaler adds nodes when actors wait for them; Ray says so nowhere, but its traces do."""
    if ours():
        return False
    try:
        return bool(_launched())
    except Exception as error:  # private to Ray: --concurrent says the same
        log.debug("not known whether the cluster has an autoscaler: %s", error)
        return False


def _launched() -> Collection[str]:
    """Kinds of nodes that an autoscaler knows to launch; without one every node is of a kind of its own, or of none."""
    from ray.experimental.internal_kv import _internal_kv_get

    status = _internal_kv_get("__autoscaling_status")
    if status:
        report = json.loads(status).get("autoscaler_report") or {}
        return {kind for kind in report.get("active_nodes") or () if not kind.startswith(_MADE_UP)}
    from ray.autoscaler.v2.sdk import get_cluster_resource_state
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    client = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    if not is_autoscaler_v2(fetch_from_server=True, gcs_client=client):
        return ()
    return {state.ray_node_type_name for state in get_cluster_resource_state(client).node_states} - {""}


def unplaced(actors: Collection[Any]) -> int:
    """How many of these have no process yet: they wait for a node with room. 0 where Ray does not say."""
    try:
        job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
        known = ray._private.state.actors(job_id=job, actor_state_name="PENDING_CREATION")
        raylets = {n["NodeID"]: n["NodeManagerPort"] for n in ray.nodes()}
        pending = [found["Address"] for a in actors if (found := known.get(a._actor_id.hex()))]
        # Until it has a process, its address is none, or that of the raylet in whose queue it is.
        return sum(1 for address in pending if address["Port"] in (0, raylets.get(address["NodeID"])))
    except Exception as error:
        log.debug("not known which actors wait for a node: %s", error)
        return 0
