"""EvaluationWorker: the actor that predicts samples' blocks and reduces views, on what the chains leave of the machine.

With a share of a GPU, which chains then do without, it predicts there.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar

from raychains.core import gpus
from raychains.orchestration.chains.chain_worker import set_up
from raychains.orchestration.chains.messages import EvaluationConfig, EvaluatorConfig, StoredSample, ViewSummary

if TYPE_CHECKING:  # the actor sets its environment up before it imports torch
    from collections.abc import Sequence

    from raychains.core.spec import TaskSpec
    from raychains.evaluation.evaluation import Array, Evaluation
    from raychains.orchestration.cluster.payload import Payload
    from raychains.orchestration.run.point_evaluation import PointEvaluator
    from raychains.planning.points import Point
    from raychains.store.caches import Predictions
    from raychains.tasks import Task

NICENESS = 10
HERE = "here"
"""The node of evaluators that share a process."""
SPLITS = 4
"""Splits whose data are held at a time: corruptions by the dozen are evaluated one after another."""


class EvaluationWorker:
    """The actor. It holds no CPU of Ray's, one thread, niced: a chain never waits for it.

    The store is read for samples that are no longer in the object store, and for kept predictions.
    """

    concurrency_groups: ClassVar = {"control": 1}

    def __init__(self, config: EvaluatorConfig) -> None:
        self._name, self._own_process = config.name, config.own_process
        if config.own_process:
            set_up(config.gpus, config.data_root)
            gc.disable()  # imports leave no garbage; the search for it takes a fifth of their time
        import torch

        from raychains.store import Storage, initial_states

        if config.own_process:
            gc.freeze()
            gc.enable()
        torch.set_num_threads(1)  # of this thread
        self._root = Storage(config.store)
        self._complete = initial_states.Completion(self._root)
        self._spec: Any = None
        """The task's `TaskSpec`; none before `serve`."""
        self._bins = 0
        self._payload: Payload | None = None
        self._tasks: dict[TaskSpec, Task] = {}
        self._point_evaluators: dict[TaskSpec, PointEvaluator] = {}
        self._device = gpus.best() if config.gpus and gpus.is_gpu(gpus.best()) else None
        self._splits: OrderedDict[tuple[str, TaskSpec], Evaluation] = OrderedDict()
        self._kept: dict[tuple[str, TaskSpec], Predictions] = {}
        if config.own_process:
            os.nice(NICENESS)  # after the imports: niced, they outlast a short run

    def __repr__(self) -> str:
        return self._name

    def alive(self) -> None:
        """Answer, in a group of its own: the process is neither stopped nor cut off."""

    def serve(self, work: EvaluationConfig) -> None:
        """Take up a comparison's samples, in order with the other calls; of another task's data none are kept."""
        from raychains import tasks
        from raychains.core.spec import TaskSpec

        before = (self._spec, self._bins, self._payload)
        # First of all: whatever fails below, no sample is taken for one of the task before.
        self._spec, self._bins, self._payload = TaskSpec.from_json(work.task), work.bins, work.payload
        self._keep = work.keep
        self._others = {digest: TaskSpec.from_json(other) for digest, other in work.others.items()}
        if before != (self._spec, self._bins, self._payload):  # another object may have the same spec
            for held in (self._tasks, self._point_evaluators, self._splits, self._kept):
                held.clear()
            if work.payload is not None:
                tasks.forget()
                work.payload.unpack()
        # Metrics' libraries take seconds to import: meanwhile the first samples are drawn.
        threading.Thread(target=self._of(work.split).warm, daemon=True).start()

    def _of(self, split: str, digest: str | None = None) -> Evaluation:
        """Return a split of the task; under the network of a chain, where that has a task of its own."""
        spec = self._spec_of(digest)
        if (split, spec) not in self._splits:
            while len(self._splits) >= SPLITS:
                self._kept.pop(self._splits.popitem(last=False)[0], None)
            evaluation = self._task_of(spec).splits()[split]
            self._splits[split, spec] = evaluation.configure(bins=self._bins, device=self._device)
        self._splits.move_to_end((split, spec))
        return self._splits[split, spec]

    def _spec_of(self, digest: str | None) -> TaskSpec:
        return self._others.get(digest, self._spec) if digest is not None else self._spec

    def _task_of(self, spec: TaskSpec) -> Task:
        from raychains import tasks

        if spec not in self._tasks:
            self._tasks[spec] = tasks.build(spec)
        return self._tasks[spec]

    def _predictions(self, split: str, digest: str) -> Predictions:
        """Return the kept predictions of a chain's samples on a split; only a network's data have to be hashed for
        it."""
        from raychains.store.caches import Predictions

        evaluation, spec = self._of(split, digest), self._spec_of(digest)
        if (split, spec) not in self._kept:
            self._kept[split, spec] = Predictions(self._root, spec, evaluation.fingerprint, evaluation.shards)
        return self._kept[split, spec]

    def predict(self, split: str, sample: StoredSample, data: Any, samples: int | None) -> Any:
        """Return this node's id, then one block per shard of a sample.

        The first result tells that the others are there, or why not, without fetching them.

        Args:
            sample: which one; its prediction is looked for in the store, and kept there as far as the policy says.
            data: its file as uint8; None to read the store.
            samples: how many of its kind there are; None neither looks nor keeps.
        """
        from raychains.core.errors import UserError
        from raychains.store import codec

        kept = self._predictions(split, sample.digest) if samples is not None else None
        blocks = kept.read(sample.sha256, sample.start) if kept is not None else None
        if blocks is None:
            raw = bytes(memoryview(data)) if data is not None else self._read(sample)
            evaluation = self._of(split, sample.digest)
            try:
                sampled, own = codec.decode_sample(raw)
                tensors = self._complete(sampled, sample.start)
                blocks = [evaluation.predict(tensors, shard) for shard in range(evaluation.shards)]
            except (codec.Corrupt, UserError) as error:
                where = self._root.location(f"chains/{sample.digest}/{sample.file}")
                raise type(error)(f"{where}: {error}") from None
            if kept is not None and samples is not None and own["sha256"] == sample.sha256:  # an index may be damaged
                self._perhaps_keep(kept, sample, blocks, samples)
        return node_id() if self._own_process else HERE, *blocks

    def _read(self, sample: StoredSample) -> bytes:
        from raychains.store import ChainStore

        return ChainStore(self._root, sample.digest).read_sample(sample.file)

    def _perhaps_keep(self, kept: Predictions, sample: StoredSample, blocks: Sequence[Array], samples: int) -> None:
        """Keep a prediction where the policy says so: the one place where that is decided."""
        from raychains.store.caches import keeps

        if keeps(self._keep, samples, sum(block.nbytes for block in blocks)):
            kept.write(sample.sha256, blocks, sample.start)

    def fetch(self, *blocks: Any) -> None:
        """Do nothing with blocks, of which Ray then has a copy on this node, too."""

    def reduce(self, split: str, shard: int, weights: Sequence[float] | None, *blocks: Any) -> Any:
        """Return a view on one shard; None weighs all samples the same."""
        evaluation = self._of(split)
        return evaluation.reduce(blocks, shard) if weights is None else evaluation.reduce(blocks, shard, weights)

    def summarise(self, split: str, rows: bool, *parts: Any) -> ViewSummary:
        """Return a view's metrics and curves per repeat, and its rows if they are wanted."""
        from raychains.evaluation.evaluation import gather

        evaluation = self._of(split)
        metrics, curves = evaluation.measure(parts), evaluation.curve(parts)
        return ViewSummary(metrics=metrics, curves=curves, rows=gather(parts) if rows else {})

    def alone(self, split: str, rows: bool, *blocks: Any) -> ViewSummary:
        """Return the view of one sample, whose blocks of all shards fit into memory: one call instead of one a
        shard."""
        return self.summarise(split, rows, *(self.reduce(split, shard, None, b) for shard, b in enumerate(blocks)))

    def measure(self, split: str, point: Point) -> dict[str, float]:
        """Return a point's metrics on a split: see `raychains.orchestration.run.point_queue`."""
        from raychains.orchestration.run.point_evaluation import PointEvaluator

        digest = point.samples[0].digest
        spec = self._spec_of(digest)
        if spec not in self._point_evaluators:
            self._point_evaluators[spec] = PointEvaluator(self._root, self._task_of(spec), self._device)
        return self._point_evaluators[spec].measure(self._of(split, digest), point)


def node_id() -> str:
    """Return the id of the node that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())
