"""The pool that keeps actors for one driver after another."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from raychains.orchestration.cluster import ray_private, ray_watch
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.workers import ActorOptions


class WorkerPool(RayWorkers):
    """`Workers` of several drivers that come one after another. Ray must be connected until the pool is closed.

    A driver that is given a pool leaves its idle actors there at its end: ``with WorkerPool() as pool``. Tasks may
    differ from driver to driver; an actor holds the data of the last one only. Nothing of it changes a sample. Where
    the store, the data root, or what a chain, an evaluator or a checkpoint is to cost differs, the actors that it
    concerns are ended and others started. A worker that was interrupted with a chain, that is lost, or that shares its
    chains with others is not used again.

    Workers hold their CPUs and GPUs until the pool is closed, also while the process evaluates or draws: other runs of
    the same cluster wait for them, and an autoscaler keeps their nodes. Evaluators hold no CPUs, but their shares of
    GPUs. All of them end with the process that made them, however it ends.

    Args:
        name: of the actors.
    """

    def __init__(self, name: str = "crew") -> None:
        super().__init__()
        self._name = name
        self._actors: dict[Any, tuple[Any, ...]] = {}
        """The settings of all actors; one with other settings is another."""
        self._idle: list[Any] = []

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        """Return an idle actor with these settings, or start one; idle ones that may hold what it needs are ended
        before."""
        settings = (kind, replace(options, name="", node=None), *(replace(arg, name="") for arg in args))
        for actor in [a for a in self._idle if self._actors[a] == settings]:
            self._idle.remove(actor)
            if ray_watch.ask(partial(ray_private.lives, actor)):
                return actor
        for actor in list(self._idle):
            other, held, *_ = self._actors[actor]
            if other is kind or (options.cpus and held.cpus) or (options.gpus and held.gpus):
                self.kill(actor)
        named = replace(options, name=options.name.replace(f"/{run}/", f"/{self._name}/"))
        actor = super().start(kind, self._name, named, *args)
        self._actors[actor] = settings
        return actor

    def dismiss(self, actor: Any) -> None:
        """Keep an actor for the next driver."""
        self._idle.append(actor)

    def kill(self, actor: Any) -> None:
        """See `Workers`."""
        self._actors.pop(actor, None)
        if actor in self._idle:
            self._idle.remove(actor)
        super().kill(actor)

    def close(self) -> None:
        """End all of its actors; another call does nothing."""
        for actor in list(self._actors):
            self.kill(actor)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
