"""The evaluators of a run: actors that are started as they are needed, and may serve several drivers one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import ray

from raychains import tasks
from raychains.orchestration import session
from raychains.orchestration.evaluator import EvaluationWorker
from raychains.orchestration.luggage import Luggage, pack
from raychains.orchestration.placement import Placement
from raychains.planning.comparison import Comparison
from raychains.store import Root


@dataclass
class Evaluator:
    """One actor, and what it was asked: jobs by the reference of their result."""

    actor: Any
    jobs: dict[Any, Any] = field(default_factory=dict)


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
    ) -> None:
        self.limit, self._gpus = limit, placement.gpus_per_evaluator
        self._arguments = (store, task, split, placement.data_root, luggage, self._gpus)
        self._settings = {"bins": placement.bins, "keep": placement.keep_predictions, "others": others}
        self.running: list[Evaluator] = []

    @classmethod
    def of(
        cls,
        comparison: Comparison,
        root: Root,
        placement: Placement,
        luggage: Luggage | None = None,
        *,
        slots: int | None = None,
    ) -> Evaluators:
        """Those of a run.

        Args:
            comparison: its task and first split.
            root: the store.
            placement: how many, unless it leaves that open: then one for every two chains that can run at once.
            luggage: packed here without it.
            slots: how many chains can run at once; asked of the cluster without it.
        """
        gpus = placement.gpus_per_evaluator
        luggage = luggage if luggage is not None else pack(tasks.build(comparison.task_spec))
        if slots is None:
            held = gpus * (placement.evaluators or 1)
            slots = session.slots(placement.cpus_per_chain, 0.0, held).count
        limit = placement.evaluators or (1 if gpus else max(1, min(slots, len(comparison.chains())) // 2))
        main, specs = comparison.task_spec, comparison.chains()
        others = {digest: spec.task.to_json() for digest, spec in specs.items() if spec.task != main}
        return cls(root.uri, main.to_json(), comparison.split, limit, placement, luggage, others)

    def start(self) -> None:
        """One more."""
        options: dict[str, Any] = {
            "num_cpus": 0,
            "num_gpus": self._gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        actor = ray.remote(**options)(EvaluationWorker).remote(*self._arguments, **self._settings)
        self.running.append(Evaluator(actor))

    def close(self) -> None:
        """End them all."""
        for evaluator in self.running:
            ray.kill(evaluator.actor)
        self.running = []

    def __enter__(self) -> Evaluators:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
