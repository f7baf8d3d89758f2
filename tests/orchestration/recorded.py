"""Workers that do nothing: what they are asked is noted, and they answer as a test wants."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raychains.coordination.capacity import Node
from raychains.orchestration.cluster.workers import ActorOptions


@dataclass(eq=False)
class Started:
    """An actor: what it was started with and what it was called."""

    kind: type
    options: ActorOptions
    args: tuple[Any, ...]
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def called(self, method: str) -> list[tuple[Any, ...]]:
        return [args for name, args in self.calls if name == method]


class Recorded:
    in_process = False

    def __init__(self, *nodes: Node) -> None:
        self.found, self.growing, self.started_here = list(nodes), False, False
        self.actors: list[Started] = []
        self.killed: list[Started] = []
        self.unplaced_actors: int | None = None
        """None: all that are asked for."""
        self.left: list[Started] = []
        """Actors on draining nodes."""
        self.answer: Any = None
        """What every call answers; an exception is raised."""

    def nodes(self, accelerator_type: str | None = None) -> list[Node]:
        return [n if accelerator_type in (None, n.accelerator) else replace(n, gpus=0.0) for n in self.found]

    def free(self, accelerator_type: str | None = None) -> list[Node]:
        return []

    def grows(self) -> bool:
        return self.growing

    def unplaced(self, actors: Collection[Any]) -> int:
        return len(actors) if self.unplaced_actors is None else self.unplaced_actors

    def draining(self, actors: Collection[Any]) -> list[Any]:
        return [actor for actor in actors if actor in self.left]

    def put(self, value: Any) -> Any:
        return value

    def reserve(self, bundle: Any, number: int) -> Any:
        return object()

    def release(self, reservation: Any) -> None:
        pass

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        self.actors.append(Started(kind, options, args))
        return self.actors[-1]

    def kill(self, actor: Started) -> None:
        self.killed.append(actor)

    def dismiss(self, actor: Started) -> None:
        self.kill(actor)

    def call(self, actor: Started, method: str, *args: Any, group: str | None = None) -> Any:
        actor.calls.append((method, args))
        return object()

    def call_parts(self, parts: int, actor: Started, method: str, *args: Any, group: str | None = None) -> list[Any]:
        actor.calls.append((method, args))
        return [object() for _ in range(parts)]

    def wait(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        return list(calls)

    def result(self, call: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
