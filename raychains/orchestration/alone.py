"""A Ray that this process starts for itself: what it leaves out, and where it listens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ray._private import ray_constants
from ray._private.node import Node

_UNUSED = ("start_api_server", "start_monitor", "start_log_monitor")
"""By which Ray starts the server of its dashboard, which runs although the dashboard is off; what adds nodes to a cluster;
and what sends workers' output to the driver, which is not asked for."""


@contextlib.contextmanager
def on_this_machine() -> Iterator[None]:
    """A Ray that starts in the body takes the loopback address, so that none of its processes listens to the network.

    Ray does so by itself on macOS and Windows; on Linux it would listen on every interface. It starts without three
    processes that nobody asks anything here, which take 2 s of a CPU, and 1.5 s to end.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    left_out = {name: getattr(Node, name) for name in _UNUSED if hasattr(Node, name)}
    ray_constants.ENABLE_RAY_CLUSTER = False
    for name in left_out:
        setattr(Node, name, _nothing)
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        for name, method in left_out.items():
            setattr(Node, name, method)


def _nothing(*_: Any, **__: Any) -> None:
    pass
