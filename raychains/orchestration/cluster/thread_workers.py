"""`Workers` in this process: actors are objects, each with threads for its groups of methods. Ray is not imported."""

from __future__ import annotations

import concurrent.futures as futures
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from raychains.coordination.capacity import Node
from raychains.orchestration.cluster.workers import ActorOptions, CallFailed


class Actor:
    """An object behind threads; calls of one group run one after another, as many at once as the class says."""

    def __init__(self, kind: type, options: ActorOptions, args: Sequence[Any]) -> None:
        groups = {None: 1, **getattr(kind, "concurrency_groups", {})}
        self.kind, self.options, self.dead = kind, options, False
        self._threads = {name: futures.ThreadPoolExecutor(n) for name, n in groups.items()}
        self._outstanding: set[futures.Future[Any]] = set()
        self.made = self._threads[None].submit(kind, *args)

    def submit(self, method: str, args: Sequence[Any], group: str | None) -> futures.Future[Any]:
        """Call a method in its group's threads; references among ``args`` are replaced by what they refer to."""
        answer: futures.Future[Any] = futures.Future()
        self._outstanding.add(answer)
        try:
            self._threads[group].submit(self._run, answer, method, args)
        except RuntimeError:  # its threads were told to end
            settle(answer, error=CallFailed("the actor was killed", died=True))
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
        except BaseException as error:  # a SystemExit of the user's code, too
            settle(answer, error=CallFailed(f"{type(error).__name__}: {error}", raised=True, cause=error))
        else:
            settle(answer, found)
        self._outstanding.discard(answer)

    def die(self, reason: str = "the actor was killed") -> None:
        """Stop what it does in the background, and fail all calls that it was asked; its threads end with their
        calls."""
        self.dead = True
        halt = getattr(self.made.result(), "halt", None) if not self.made.exception() else None
        if halt is not None:
            halt()
        for threads in self._threads.values():
            threads.shutdown(wait=False)
        for answer in list(self._outstanding):
            settle(answer, error=CallFailed(reason, died=True))


def settle(answer: futures.Future[Any], found: Any = None, error: BaseException | None = None) -> None:
    """Answer a call, unless its actor died before, in another thread perhaps."""
    with contextlib.suppress(futures.InvalidStateError):
        answer.set_exception(error) if error is not None else answer.set_result(found)


class ThreadWorkers:
    """See `raychains.orchestration.cluster.workers.Workers`.

    PyTorch's global generators, from which networks draw their first parameters and dropout, are the process's: with
    one CPU one chain runs at a time, whose samples are those of a chain with a process of its own.

    Args:
        cpus: that chains hold, all of them together.
    """

    in_process = True
    started_here = True

    def __init__(self, cpus: int = 1) -> None:
        self.actors: list[Any] = []
        self._node = Node(float(cpus), 0.0, "here")

    # The cluster

    def nodes(self, accelerator_type: str | None = None) -> list[Node]:
        """See `Cluster`: this process, without its GPUs."""
        return [self._node]

    def free(self, accelerator_type: str | None = None) -> list[Node]:
        """See `Cluster`."""
        return self.nodes()

    def grows(self) -> bool:
        """See `Cluster`."""
        return False

    def unplaced(self, actors: Collection[Any]) -> int:
        """See `Cluster`."""
        return 0

    def draining(self, actors: Collection[Any]) -> Collection[Any]:
        """See `Cluster`."""
        return ()

    # Actors

    def put(self, value: Any) -> Any:
        """See `Workers`."""
        return value

    def reserve(self, bundle: Mapping[str, float], number: int) -> Any:
        """See `Workers`: one process runs no chain of several."""
        raise NotImplementedError

    def release(self, reservation: Any) -> None:
        """See `Workers`."""

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        """See `Workers`."""
        self.actors.append(Actor(kind, options, args))
        return self.actors[-1]

    def kill(self, actor: Any) -> None:
        """See `Workers`."""
        actor.die()

    def dismiss(self, actor: Any) -> None:
        """See `Workers`."""
        self.kill(actor)

    # Calls

    def call(self, actor: Any, method: str, *args: Any, group: str | None = None) -> Any:
        """See `Workers`."""
        return actor.submit(method, args, group)

    def call_parts(self, parts: int, actor: Any, method: str, *args: Any, group: str | None = None) -> list[Any]:
        """See `Workers`."""
        whole = actor.submit(method, args, group)
        found: list[futures.Future[Any]] = [futures.Future() for _ in range(parts)]

        def pass_on(done: futures.Future[Any]) -> None:
            error = done.exception()
            for part, value in zip(found, [None] * parts if error else done.result(), strict=True):
                settle(part, value, error)

        whole.add_done_callback(pass_on)
        return found

    def wait(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        """See `Workers`."""
        return list(futures.wait(calls, timeout, futures.FIRST_COMPLETED).done)

    def result(self, call: Any) -> Any:
        """See `Workers`."""
        return call.result()

    def close(self) -> None:
        """End all actors."""
        for actor in self.actors:
            if not actor.dead:
                self.kill(actor)
