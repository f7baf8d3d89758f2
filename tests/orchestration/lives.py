"""Incarnations of one chain without Ray: in this process, or in processes that die."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from typing import Any

from raychains.orchestration.incarnation import Incarnation, Orders
from raychains.spec import ChainSpec
from raychains.store import ChainStore, Root

PATIENCE = 60.0
"""Seconds after which a test that waits for something gives up."""
_PRELOAD = ["torch", "torch._dynamo", "raychains.chain", "raychains.samplers", "raychains.orchestration.incarnation",
            "tests.orchestration.lives", "tests.orchestration.tasks"]  # fmt: skip


def incarnate(root: Root, spec: ChainSpec, number: int = 1, **orders: Any) -> Incarnation:
    """Begin an incarnation in this process."""
    store = ChainStore(root, spec.digest)
    made = Incarnation(spec, store, Orders(number=number, about={}, **{"every": 1e9, **orders}), {})
    made.begin()
    return made


def rest_of(life: Incarnation) -> list[dict[str, Any]]:
    """All further events of an incarnation, as the driver would take them."""
    events = []
    while not events or events[-1]["kind"] != "ended":
        events.append(life.take()[0])
    return events


def run(root: Root, spec: ChainSpec, number: int = 1, **orders: Any) -> list[dict[str, Any]]:
    """A whole incarnation's events."""
    return rest_of(incarnate(root, spec, number, **orders))


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


def live_elsewhere(uri: str, spec: Mapping[str, Any], number: int, orders: Mapping[str, Any]) -> int:
    """Run an incarnation in a process of its own, which may die of it; its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    process = context.Process(target=_live, args=(uri, dict(spec), number, dict(orders)))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode is not None, "the process did not end"
    return process.exitcode


def _live(uri: str, spec: dict[str, Any], number: int, orders: dict[str, Any]) -> None:
    events = run(Root(uri), ChainSpec.from_json(spec), number, **orders)
    assert events[-1]["outcome"] == "finished", events[-1]
