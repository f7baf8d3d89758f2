"""The evaluators of a run: actors that are started as they are needed, and may serve several drivers one after another."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        self._arguments = (store, task, split, placement.data_root, luggage, self._gpus)
        self._settings = {"bins": placement.bins, "keep": placement.keep_predictions, "others": others}
        self._slots, self._accelerator = slots, placement.accelerator_type if self._gpus else None
        self._names = names if names is not None else Names("evaluation")
        self._class = ray.remote(self._names.titled(EvaluationWorker))  # once, as in `Workers`
        self._number = itertools.count()
        self.running: list[Evaluator] = []

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
        luggage = luggage if luggage is not None else pack(tasks.build(comparison.task_spec))
        chains = len(comparison.chains())
        at_once = (slots if slots is not None else placement.slots(run_chains=False)).at_once(chains)
        limit = placement.evaluators or (1 if placement.gpus_per_evaluator else max(1, at_once // 2))
        main, specs = comparison.task_spec, comparison.chains()
        others = {digest: spec.task.to_json() for digest, spec in specs.items() if spec.task != main}
        names = names if names is not None else Names(comparison.run_name)
        return cls(
            root.uri, main.to_json(), comparison.split, limit, placement, luggage, others, slots=slots, names=names
        )

    def start(self) -> None:
        """One more."""
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
        actor = self._class.options(**options).remote(*self._arguments, name=name, **self._settings)
        self.running.append(Evaluator(actor))

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
        for evaluator in self.running:
            ray.kill(evaluator.actor)
        self.running = []

    def __enter__(self) -> Evaluators:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
