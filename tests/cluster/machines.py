"""Ray clusters on this machine, with raylets as nodes: started and ended by scripts that have a session to
themselves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from tests.chaos.nodes import HEALTH
from tests.processes import free_ports

STORE = 80_000_000
"""Bytes of a node's object store."""
HEAD = "f" * 51 + "00000"
"""The id by which Ray's provider of nodes on one machine knows the head."""


@contextlib.contextmanager
def cluster(folder: str, **head: Any) -> Iterator[Cluster]:
    """A head without CPUs; nothing is left of it afterwards."""
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "temp_dir": folder,
            "_system_config": HEALTH, "include_log_monitor": False, **head,
        },
    )  # fmt: skip
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def add(made: Cluster, *, accelerator: str | None = None, **resources: float) -> Any:
    kind = {f"accelerator_type:{accelerator}": 1.0} if accelerator else None
    return made.add_node(object_store_memory=STORE, resources=kind, include_log_monitor=False, **resources)


@contextlib.contextmanager
def autoscaling(folder: str, **most: int) -> Iterator[Cluster]:
    """A head without CPUs whose autoscaler adds nodes of one CPU and one GPU, ``gpu=2`` of them at most, as raylets
    here."""
    address = f"{ray._private.services.get_node_ip_address()}:{free_ports(1)[0]}"
    kinds = {
        kind: {
            "resources": {"CPU": 1, "GPU": 1, "object_store_memory": STORE},
            "node_config": {},
            "max_workers": number,
        }
        for kind, number in most.items()
    }
    config = {
        "cluster_name": "test", "max_workers": sum(most.values()), "idle_timeout_minutes": 5, "upscaling_speed": 1.0,
        "provider": {
            "type": "fake_multinode", "use_node_id_as_ip": True, "disable_node_updaters": True, "gcs_address": address,
            "disable_launch_config_check": True, "head_node_id": HEAD,
        },
        "available_node_types": {"ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0}, **kinds},
        "head_node_type": "ray.head.default", "auth": {"ssh_user": "nobody"},
        **{key: {} for key in ("file_mounts",)},
        **{key: [] for key in ("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands",
                               "setup_commands", "head_setup_commands", "worker_setup_commands",
                               "head_start_ray_commands", "worker_start_ray_commands")},
        "file_mounts_sync_continuously": False,
    }  # fmt: skip
    path = Path(folder) / "autoscaling.json"
    path.write_text(json.dumps(config))
    os.environ |= {
        "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    }  # fmt: skip
    port = int(address.rpartition(":")[2])
    try:
        with cluster(folder, gcs_server_port=port, autoscaling_config=str(path)) as made:
            yield made
    finally:
        for pid in processes_of(folder):  # the autoscaler's raylets outlive it
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_of(folder: str) -> list[int]:
    """This user's processes that name a folder in their command line, but for this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if folder in (entry / "cmdline").read_text(errors="replace") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def left(folder: str) -> int:
    """How many of those do not end by themselves; a busy machine takes a while."""
    deadline = time.monotonic() + 120
    while (found := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return len(found)
