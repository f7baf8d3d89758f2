"""Attempts at one chain without Ray: in this process, or in processes that die."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

from raychains.coordination.coordinator import AttemptEvent, Ended
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains.attempt import Attempt, AttemptConfig
from raychains.orchestration.chains.messages import ChainAssignment
from raychains.store import Storage
from tests.processes import SECONDS

PRELOAD = ["torch", "torch._dynamo", "raychains.chain.chain", "raychains.samplers",
           "raychains.orchestration.chains.attempt", "tests.orchestration.lives",
           "tests.orchestration.tasks"]  # fmt: skip
"""Modules that the first call of `elsewhere` imports for the processes of all."""
ATTEMPT = "attempt"
"""Name of a process that runs one."""


def begin(
    root: Storage, spec: ChainSpec, number: int = 1, restart: int = 0, restart_from: int = 0, **config: Any
) -> Attempt:
    assignment = ChainAssignment(spec=spec.to_json(), attempt=number, restart=restart, restart_from=restart_from)
    made = Attempt(assignment, root, AttemptConfig(**{"checkpoint_every": 1e9, **config}), {})
    made.begin()
    return made


def rest_of(life: Attempt) -> list[AttemptEvent]:
    """All further events of an attempt, as the driver would take them."""
    events: list[AttemptEvent] = []
    while not events or not isinstance(events[-1], Ended):
        events.append(life.take()[0])
    return events


def run(root: Storage, spec: ChainSpec, number: int = 1, **config: Any) -> list[AttemptEvent]:
    return rest_of(begin(root, spec, number, **config))


def live_elsewhere(uri: str, spec: Mapping[str, Any], number: int, config: Mapping[str, Any]) -> int:
    """Run an attempt in a process of its own, which may die of it; its exit code."""
    return _code(begun_elsewhere(uri, spec, number, config))


def begun_elsewhere(uri: str, spec: Mapping[str, Any], number: int, config: Mapping[str, Any]) -> BaseProcess:
    """Begin an attempt in a process of its own."""
    return _begun(_live, uri, dict(spec), number, dict(config), name=ATTEMPT)


def elsewhere(target: Callable[..., None], *args: Any, name: str) -> int:
    """Call a function in a forked process; its exit code."""
    return _code(_begun(target, *args, name=name))


def _begun(target: Callable[..., None], *args: Any, name: str) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=target, args=args, name=name)
    process.start()
    return process


def _code(process: BaseProcess) -> int:
    process.join(SECONDS)
    assert process.exitcode is not None, "the process did not end"
    return process.exitcode


def _live(uri: str, spec: dict[str, Any], number: int, config: dict[str, Any]) -> None:
    events = run(Storage(uri), ChainSpec.from_json(spec), number, **config)
    assert isinstance(events[-1], Ended) and events[-1].outcome == "finished", events[-1]
