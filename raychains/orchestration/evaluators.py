"""The evaluators of a run: actors that are started as they are needed, and may serve several drivers one after another."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raychains import tasks
from raychains.orchestration import cluster, session
from raychains.orchestration.evaluator import EvaluationWorker
from raychains.orchestration.luggage import Luggage, pack
from raychains.orchestration.names import Names
from raychains.orchestration.placement import Placement
from raychains.planning.comparison import Comparison
from raychains.store import Root


@dataclass
class Evaluator:
    """One actor, and what it was asked: jobs by the reference of their result."""

    actor: Any
    jobs: dict[Any, Any] = field(default_factory=dict)
    work: _Work | None = None
    """What it was told to work on."""


@dataclass(frozen=True)
class _Work:
    """A comparison as evaluators are told of it."""

    task: dict[str, Any]
    split: str
    luggage: Luggage | None
    settings: dict[str, Any]

    def same(self, other: _Work) -> bool:
        """Whether evaluators need not be told of the other one: every call names its split."""
        by_hand = any(luggage is not None and luggage[1] for luggage in (self.luggage, other.luggage))
        return not by_hand and replace(self, split=other.split) == other


class Evaluators:
    """Actors that predict one task's samples on any of its splits. Ray must be connected.

    A driver makes its own and ends them with itself. To start and import once for several drivers (other views, other
    splits), make them outside and hand them to each: ``with Evaluators.of(comparison, root, placement) as evaluators``.

    Args:
        store: URI of the run store.
        task: JSON of the `TaskSpec`.
        split: the split that is evaluated first.
        limit: how many may be started.
        placement: data root, share of GPUs, bins and which predictions are kept.
        luggage: what they need to build the task.
        others: by the digests of chains on another task (another network on the same data), that task's JSON.
        slots: those of the chains that run meanwhile, which the shares of GPUs are taken from; none without it.
        names: what the actors are called.
    """

    def __init__(
        self,
        store: str,
        task: dict[str, Any],
        split: str,
        limit: int,
        placement: Placement,
        luggage: Luggage | None,
        others: Mapping[str, dict[str, Any]] | None = None,
        *,
        slots: session.Slots | None = None,
        names: Names | None = None,
    ) -> None:
        self.limit, self._gpus = limit, placement.gpus_per_evaluator
        self._store, self._data_root = store, placement.data_root
        self._work = _work(task, split, placement, luggage, others)
        self._slots, self._accelerator = slots, placement.accelerator_type if self._gpus else None
        self._names = names if names is not None else Names("evaluation")
        self._class = ray.remote(self._names.titled(EvaluationWorker))  # once, as in `Workers`
        self._number = itertools.count()
        self.running: list[Evaluator] = []
        self._resting: list[Evaluator] = []
        """Those of comparisons before, until they are needed."""

    @classmethod
    def of(
        cls,
        comparison: Comparison,
        root: Root,
        placement: Placement,
        luggage: Luggage | None = None,
        *,
        slots: session.Slots | None = None,
        names: Names | None = None,
    ) -> Evaluators:
        """Those of a run.

        Args:
            comparison: its task and first split.
            root: the store.
            placement: how many, unless it leaves that open: then one for every two chains that can run at once.
            luggage: packed here without it.
            slots: those of the chains that run meanwhile; without it none run, and the cluster is asked.
            names: what the actors are called; made from the run's without it.
        """
        task, split, luggage, others = _told(comparison, luggage)
        limit = _limit(comparison, placement, slots)
        names = names if names is not None else Names(comparison.run_name)
        return cls(root.uri, task, split, limit, placement, luggage, others, slots=slots, names=names)

    def serve(
        self,
        comparison: Comparison,
        placement: Placement,
        luggage: Luggage | None = None,
        *,
        slots: session.Slots | None = None,
    ) -> None:
        """Turn to another comparison of the same store, data root and share of GPUs; arguments as for `of`.

        The actors rest, and take it up as `start` needs them: what they hold of the one before is let go then.
        """
        task, split, luggage, others = _told(comparison, luggage)
        work = _work(task, split, placement, luggage, others)
        if not work.same(self._work):
            self._work = work
        self.limit, self._slots = _limit(comparison, placement, slots), slots
        self._resting += self.running
        self.running = []

    def start(self) -> None:
        """One more: one that rests, if there is one."""
        if self._resting:
            self.running.append(self._wake(self._resting.pop(0)))
            return
        number = next(self._number)
        options: dict[str, Any] = {
            "num_cpus": 0,
            "num_gpus": self._gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": self._where(),
            "name": self._names.actor("evaluator", number),
        }
        if self._accelerator is not None:
            options["accelerator_type"] = self._accelerator
        name = f"evaluator-{number} of {self._names.run}"
        actor = self._class.options(**options).remote(
            self._store, self._work.task, self._work.split, self._data_root, self._work.luggage, self._gpus,
            name=name, **self._work.settings,
        )  # fmt: skip
        self.running.append(Evaluator(actor, work=self._work))

    def _wake(self, evaluator: Evaluator) -> Evaluator:
        """Have an evaluator take up what the others work on; one that died meanwhile is found out with its first job."""
        evaluator.jobs.clear()
        if evaluator.work is not self._work:
            evaluator.work = self._work
            evaluator.actor.serve.remote(
                self._work.task, self._work.split, self._work.luggage, **self._work.settings
            )  # before all jobs: an actor's calls run in their order
        return evaluator

    def _where(self) -> Any:
        """Spread over the nodes; with a share of a GPU where it costs the fewest chains, if there is room."""
        node = self._slots.node_of_evaluator(len(self.running)) if self._slots is not None and self._gpus else None
        return NodeAffinitySchedulingStrategy(node, soft=True) if node is not None else "SPREAD"

    @property
    def starved(self) -> bool:
        """Whether there are some that hold GPUs, and all of them wait for a node with room."""
        actors = [evaluator.actor for evaluator in self.running] if self._gpus else []
        return bool(actors) and cluster.unplaced(actors) == len(actors)

    def close(self) -> None:
        """End them all."""
        for evaluator in (*self.running, *self._resting):
            ray.kill(evaluator.actor)
        self.running, self._resting = [], []

    def __enter__(self) -> Evaluators:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _told(
    comparison: Comparison, luggage: Luggage | None
) -> tuple[dict[str, Any], str, Luggage, dict[str, dict[str, Any]]]:
    """JSON of the task, split, luggage, and the tasks of the chains that have another one."""
    main = comparison.task_spec
    luggage = luggage if luggage is not None else pack(tasks.build(main))
    others = {digest: spec.task.to_json() for digest, spec in comparison.chains().items() if spec.task != main}
    return main.to_json(), comparison.split, luggage, others


def _limit(comparison: Comparison, placement: Placement, slots: session.Slots | None) -> int:
    at_once = (slots if slots is not None else placement.slots(run_chains=False)).at_once(len(comparison.chains()))
    return placement.evaluators or (1 if placement.gpus_per_evaluator else max(1, at_once // 2))


def _work(
    task: dict[str, Any],
    split: str,
    placement: Placement,
    luggage: Luggage | None,
    others: Mapping[str, dict[str, Any]] | None,
) -> _Work:
    settings = {"bins": placement.bins, "keep": placement.keep_predictions, "others": dict(others or {})}
    return _Work(task, split, luggage, settings)
