"""Workers that are objects of this process, each with threads for its method groups: a run's tests without Ray."""

from __future__ import annotations

import concurrent.futures as futures
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest

from raychains.orchestration import evaluation_worker
from raychains.orchestration.workers import ActorOptions, CallFailed
from raychains.planning.capacity import Node
from tests.orchestration.recorded import Recorded


class Actor:
    """An object behind threads; calls of one group run one after another, as many at once as the class says."""

    def __init__(self, kind: type, options: ActorOptions, args: Sequence[Any]) -> None:
        groups = {None: 1, **getattr(kind, "concurrency_groups", {})}
        self.kind, self.options, self.dead = kind, options, False
        self.threads = {name: futures.ThreadPoolExecutor(n) for name, n in groups.items()}
        self.outstanding: set[futures.Future[Any]] = set()
        self.made = self.threads[None].submit(kind, *args)

    def submit(self, method: str, args: Sequence[Any], group: str | None) -> futures.Future[Any]:
        answer: futures.Future[Any] = futures.Future()
        if self.dead:
            settle(answer, error=CallFailed("the actor was killed", died=True))
        else:
            self.outstanding.add(answer)
            self.threads[group].submit(self._run, answer, method, args)
        return answer

    def _run(self, answer: futures.Future[Any], method: str, args: Sequence[Any]) -> None:
        try:
            made = self.made.result()
        except Exception as error:
            self.die(f"creation task: {type(error).__name__}: {error}")
            return
        try:
            given = [arg.result() if isinstance(arg, futures.Future) else arg for arg in args]
            found = getattr(made, method)(*given)
        except CallFailed as error:
            settle(answer, error=error)
        except Exception as error:
            settle(answer, error=CallFailed(f"{type(error).__name__}: {error}", raised=True, cause=error))
        else:
            settle(answer, found)
        self.outstanding.discard(answer)

    def die(self, reason: str = "the actor was killed") -> None:
        """With all calls that it was asked."""
        self.dead = True
        attempt = getattr(self.made.result(), "_attempt", None) if not self.made.exception() else None
        if attempt is not None:
            attempt.stop()
        for answer in list(self.outstanding):
            settle(answer, error=CallFailed(reason, died=True))
        for threads in self.threads.values():
            threads.shutdown(wait=False)


def settle(answer: futures.Future[Any], found: Any = None, error: Exception | None = None) -> None:
    """Answer a call, unless its actor died before."""
    if not answer.done():
        answer.set_exception(error) if error is not None else answer.set_result(found)


class ThreadWorkers(Recorded):
    """`raychains.orchestration.workers.Workers` in this process, on a machine of so many cores."""

    actors: list[Actor]  # type: ignore[assignment]

    def __init__(self, cpus: int = 2) -> None:
        super().__init__(Node(cpus, 0.0, "here"))
        self.started_here, self.unplaced_actors, self.chance = True, 0, random.Random(0)

    def free(self, accelerator_type: str | None = None) -> list[Node]:
        return self.nodes()

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Actor:
        self.actors.append(Actor(kind, options, args))
        return self.actors[-1]

    def spare(self) -> None:
        pass

    def kill(self, actor: Actor) -> None:
        actor.die()

    def dismiss(self, actor: Actor) -> None:
        self.kill(actor)

    def call(self, actor: Actor, method: str, *args: Any, group: str | None = None) -> Any:
        return actor.submit(method, args, group)

    def call_parts(self, parts: int, actor: Actor, method: str, *args: Any, group: str | None = None) -> list[Any]:
        whole = actor.submit(method, args, group)
        found: list[futures.Future[Any]] = [futures.Future() for _ in range(parts)]

        def pass_on(done: futures.Future[Any]) -> None:
            error = done.exception()
            for part, value in zip(found, [None] * parts if error else done.result(), strict=True):
                settle(part, value, error)  # type: ignore[arg-type]

        whole.add_done_callback(pass_on)
        return found

    def wait(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        """Any one of those that are ready: no order may be relied upon."""
        done = futures.wait(calls, timeout, futures.FIRST_COMPLETED).done
        ready = [call for call in calls if call in done]
        return [self.chance.choice(ready)] if ready else []

    def result(self, call: Any) -> Any:
        return call.result()

    def started(self, kind: type) -> int:
        return sum(actor.kind is kind for actor in self.actors)

    def close(self) -> None:
        for actor in self.actors:
            if not actor.dead:
                actor.die()


def keep_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep actors from changing this process for good."""
    monkeypatch.setattr(os, "nice", lambda by: 0)
    monkeypatch.setattr(evaluation_worker, "node_id", lambda: "here")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
