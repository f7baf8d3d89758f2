"""The evaluators of a run, started as they are needed, and a queue of jobs for them that survives their loss."""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from raychains import tasks
from raychains.coordination.failure import DRAIN_POLL, EvaluatorPace, Stall, check_job
from raychains.core.errors import RaychainsError
from raychains.orchestration.chains.messages import EvaluationConfig, EvaluatorConfig
from raychains.orchestration.cluster.payload import Payload, for_actors
from raychains.orchestration.cluster.resource_config import ResourceConfig, Slots
from raychains.orchestration.cluster.workers import ActorOptions, CallFailed, Names, Workers
from raychains.orchestration.run.evaluation_worker import EvaluationWorker
from raychains.planning.comparison import Comparison
from raychains.store import Storage

log = logging.getLogger(__name__)

IN_FLIGHT = 2
"""Jobs handed to one evaluator ahead of its answers."""


@dataclass(eq=False, kw_only=True)
class Job:
    """Something that an evaluator is called for, and how often it was lost."""

    lost: int = 0

    @property
    def kind(self) -> str:
        """Jobs of one kind take about as long: their name, for people."""
        return "a job"


J = TypeVar("J", bound=Job)


@dataclass(eq=False)
class Evaluator:
    """One actor, and its outstanding jobs by the reference of their result."""

    actor: Any
    jobs: dict[Any, Any] = field(default_factory=dict)
    pace: EvaluatorPace = field(default_factory=EvaluatorPace)
    asked: Any = None
    """The reference of an outstanding question whether its process is alive."""
    draining: bool = False
    """Its node is draining: it is given no more jobs."""


class Evaluators:
    """Actors that predict one task's samples on any of its splits.

    A run makes its own and ends them with itself. To start and import once for several runs (other views, other
    splits), make them outside and hand them to each: ``with Evaluators.of(comparison, root, resources) as evaluators``.

    Args:
        slots: those of the chains that run meanwhile, which the shares of GPUs are taken from; none without it.
    """

    def __init__(
        self,
        workers: Workers,
        store: str,
        work: EvaluationConfig,
        limit: int,
        resources: ResourceConfig,
        *,
        slots: Slots | None = None,
        names: Names | None = None,
    ) -> None:
        self.workers, self.limit = workers, limit
        self._store, self._work, self._resources, self._slots = store, work, resources, slots
        self._names = names if names is not None else Names("evaluation")
        self._number = itertools.count()
        self.running: list[Evaluator] = []

    @classmethod
    def of(
        cls,
        comparison: Comparison,
        root: Storage,
        resources: ResourceConfig,
        payload: Payload | None = None,
        *,
        workers: Workers | None = None,
        slots: Slots | None = None,
        names: Names | None = None,
    ) -> Evaluators:
        """Return those of a run.

        Args:
            root: the store.
            resources: how many, unless it leaves that open: then one for every two chains that can run at once.
            payload: of the task; packed here without it, unless the workers are in this process.
            workers: where they run; on Ray, which must be connected, without it.
            slots: those of the chains that run meanwhile; without it none run, and the cluster is asked.
        """
        workers = on_ray(workers)
        slots_free = slots if slots is not None else resources.slots(workers, run_chains=False)
        work, limit = _work(comparison, resources, payload, workers), _limit(comparison, resources, slots_free)
        names = names if names is not None else Names(comparison.run_name)
        return cls(workers, root.uri, work, limit, resources, slots=slots, names=names)

    def start(self) -> None:
        """Add one."""
        number, gpus = next(self._number), self._resources.gpus_per_evaluator
        options = ActorOptions(
            name=self._names.actor("evaluator", number),
            gpus=gpus,
            accelerator_type=self._resources.accelerator_type,
            # With a share of a GPU where it costs the fewest chains, if there is room.
            node=self._slots.node_of_evaluator(len(self.staying)) if self._slots is not None and gpus else None,
        )
        name = f"evaluator-{number} of {self._names.run}"
        config = EvaluatorConfig(
            store=self._store,
            data_root=self._resources.data_root,
            gpus=gpus,
            own_process=not self.workers.in_process,
            name=name,
        )
        actor = self.workers.start(EvaluationWorker, self._names.run, options, config)
        self.workers.call(actor, "serve", self._work)  # before all jobs: calls run in their order
        self.running.append(Evaluator(actor, pace=EvaluatorPace(self._resources.stall_timeout)))

    @property
    def staying(self) -> list[Evaluator]:
        """Return those whose nodes stay, as far as is known."""
        return [evaluator for evaluator in self.running if not evaluator.draining]

    def find_draining(self) -> list[Evaluator]:
        """Note which ones' nodes are draining; return those that stayed until now."""
        actors = {evaluator.actor: evaluator for evaluator in self.staying}
        found = [actors[actor] for actor in self.workers.draining(actors)] if actors else []
        for evaluator in found:
            evaluator.draining = True
        return found

    def forget(self, evaluator: Evaluator) -> None:
        """Take one out that died or was ended."""
        if evaluator in self.running:
            self.running.remove(evaluator)

    @property
    def starved(self) -> bool:
        """All evaluators hold GPUs and wait for a node with room."""
        actors = [evaluator.actor for evaluator in self.staying] if self._resources.gpus_per_evaluator else []
        return bool(actors) and self.workers.unplaced(actors) == len(actors)

    def close(self) -> None:
        """Let them all go."""
        for evaluator in self.running:
            (self.workers.kill if evaluator.draining else self.workers.dismiss)(evaluator.actor)
        self.running = []

    def __enter__(self) -> Evaluators:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work(
    comparison: Comparison, resources: ResourceConfig, payload: Payload | None, workers: Workers
) -> EvaluationConfig:
    main = comparison.task_spec
    if payload is None and not workers.in_process:
        payload = for_actors(tasks.build(main), workers)
    return EvaluationConfig(
        task=main.to_json(),
        split=comparison.split,
        payload=payload,
        bins=resources.bins,
        keep=resources.keep_predictions,
        others={digest: spec.task.to_json() for digest, spec in comparison.chains().items() if spec.task != main},
    )


def _limit(comparison: Comparison, resources: ResourceConfig, slots: Slots) -> int:
    at_once = slots.at_once(len(comparison.chains()))
    return resources.evaluators or (1 if resources.gpus_per_evaluator else max(1, at_once // 2))


def on_ray(workers: Workers | None) -> Workers:
    """Return the workers, or where there are none, new ones on Ray, which must be connected."""
    if workers is not None:
        return workers
    from raychains.orchestration.cluster.ray_workers import RayWorkers

    return RayWorkers()


class JobQueue(ABC, Generic[J]):
    """Hands jobs to evaluators with room, and again those that were lost with an evaluator, an object or the storage.

    Args:
        evaluators: who does them; more are started, up to their limit, as long as jobs wait.
        name: of a job, in messages.
    """

    def __init__(self, evaluators: Evaluators, name: str) -> None:
        self.evaluators, self.workers, self._job_name = evaluators, evaluators.workers, name
        self._jobs: deque[J] = deque()
        self._asked: dict[Any, Evaluator] = {}
        """Evaluators by the references of what they were asked."""
        self._room: tuple[dict[int, Evaluator], ...] = tuple({} for _ in range(IN_FLIGHT))
        """Evaluators that have room, by how many jobs they have."""
        self._slowest: dict[str, float] = {}
        """See `EvaluatorPace`."""
        self._since_nodes = 0.0
        for evaluator in evaluators.running:
            self._seat(evaluator)

    @abstractmethod
    def call(self, actor: Any, job: J) -> Any:
        """Call an actor for a job; return the reference of the result."""

    @abstractmethod
    def done(self, job: J, answer: Any) -> Any:
        """Deal with a job's result; what this returns is what `take` returns."""

    def stale(self, job: J) -> bool:
        """Return whether nobody waits for a job any more."""
        return False

    def again(self, job: J, error: CallFailed | None) -> None:
        """Do a job again that was lost by ``error``, or with an evaluator that died of another job."""
        self._jobs.appendleft(job)

    def save(self) -> None:
        """Copy what jobs made on draining nodes."""

    def references(self) -> list[Any]:
        """Return the references to wait for."""
        return list(self._asked)

    def owns(self, ref: Any) -> bool:
        """Return whether a reference is one of `references` (an evaluator's death takes its others along)."""
        return ref in self._asked

    def submit(self, *, eager: bool = False) -> None:
        """Give waiting jobs to evaluators that have room, starting one more; with ``eager`` the first before any
        job."""
        staying = self.evaluators.staying
        if (eager and not staying) or (self._jobs and len(staying) < self.evaluators.limit):
            self.evaluators.start()
            self._seat(self.evaluators.running[-1])
        while self._jobs and (evaluator := next((e for row in self._room for e in row.values()), None)) is not None:
            job = self._jobs.popleft()
            if not self.stale(job):
                evaluator.pace.steps.silent = evaluator.pace.steps.silent if evaluator.jobs else 0.0
                ref = self.call(evaluator.actor, job)
                evaluator.jobs[ref], self._asked[ref] = job, evaluator
                self._seat(evaluator)

    def take(self, ref: Any) -> Any:
        """Deal with a reference that is ready.

        Raises:
            RaychainsError: a job failed, or lost too many evaluators.
        """
        evaluator = self._asked.pop(ref)
        job = evaluator.jobs.pop(ref)
        self._seat(evaluator)
        try:
            answer = self.workers.result(ref)
        except CallFailed as error:
            if error.died:
                self._lost(evaluator)
            if not self.stale(job):
                self._check(job, error)
                self.again(job, error)
            return None
        evaluator.pace.did(self._slowest, job.kind, job.lost)
        return None if self.stale(job) else self.done(job, answer)

    def watch(self, seconds: float) -> Stall | None:
        """Note that so much time passed. Replace evaluators that stall for too long; return the longest stall of the
        others.

        Raises:
            RaychainsError: a job lost too many evaluators.
        """
        self._leave_draining_nodes(seconds)
        stalls = []
        busy = [evaluator for evaluator in self.evaluators.running if evaluator.jobs]
        self._ask_whether_alive(busy, seconds)
        for evaluator in busy:
            job = next(iter(evaluator.jobs.values()))
            stall = evaluator.pace.stall(self._slowest, job.kind, job.lost)
            if stall is None:
                continue
            if self.workers.unplaced([evaluator.actor]):
                evaluator.pace.steps.silent = evaluator.pace.answers.silent = (
                    0.0  # for a node, which is announced by itself
                )
            elif stall.given_up:
                self.workers.kill(evaluator.actor)
                self._check(job, CallFailed(stall.loss, died=True))
                self._lost(evaluator)
            else:
                stalls.append(stall)
        return max(stalls, key=lambda stall: stall.seconds, default=None)

    def _leave_draining_nodes(self, seconds: float) -> None:
        """Give no more jobs to evaluators on draining nodes, and end those that have done theirs."""
        self._since_nodes += seconds
        if self._since_nodes < DRAIN_POLL:
            return
        self._since_nodes = 0.0
        draining = self.evaluators.find_draining()
        done = [evaluator for evaluator in self.evaluators.running if evaluator.draining and not evaluator.jobs]
        for evaluator in draining:
            log.warning("an evaluator's node is draining: it is given no more work, another one is started")
            self._seat(evaluator)
        if draining or done:
            self.save()
        for evaluator in done:
            self.evaluators.forget(evaluator)
            self.workers.kill(evaluator.actor)

    def _ask_whether_alive(self, busy: Sequence[Evaluator], seconds: float) -> None:
        """Note that so much time passed; take the evaluators' answers, and ask again."""
        asked = {e.asked: e for e in busy if e.asked is not None}
        ready = {*self.workers.wait([*asked], 0.0)} if asked else set()
        for evaluator in busy:
            evaluator.pace.passed(seconds, asked=evaluator.asked is not None)
            if evaluator.asked in ready:
                evaluator.pace.answers.heard()
            if evaluator.asked is None or evaluator.asked in ready:
                evaluator.asked = self.workers.call(evaluator.actor, "alive", group="control")

    def close(self) -> None:
        """Let go of the evaluators and of the calls that are outstanding."""
        for evaluator in self.evaluators.running:
            evaluator.jobs.clear()
        self._asked.clear()

    def _seat(self, evaluator: Evaluator) -> None:
        """Note how many jobs an evaluator has, if it is given more."""
        for row in self._room:
            row.pop(id(evaluator), None)
        if len(evaluator.jobs) < IN_FLIGHT and not evaluator.draining:
            self._room[len(evaluator.jobs)][id(evaluator)] = evaluator

    def _check(self, job: J, error: CallFailed) -> None:
        """Raise what no second try mends; an error that raychains raises on purpose as it is."""
        if error.storage_away:
            return
        if error.raised and isinstance(error.cause, RaychainsError):
            raise error.cause from None
        if not (error.died or error.lost_object):
            raise RaychainsError(f"{self._job_name} failed: {error}") from error
        job.lost += 1
        check_job(self._job_name, job.lost, error)

    def _lost(self, evaluator: Evaluator) -> None:
        log.warning("an evaluator was lost; its work is done again")
        self.evaluators.forget(evaluator)
        for row in self._room:
            row.pop(id(evaluator), None)
        for ref, job in evaluator.jobs.items():
            del self._asked[ref]
            self.again(job, None)
