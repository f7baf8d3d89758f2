"""EvaluationWorker: predicts samples' blocks and reduces views, on what the chains leave of the machine.

With a share of a GPU, which chains then do without, it predicts there.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from raychains.evaluation.base import Array, Evaluation
    from raychains.orchestration.luggage import Luggage
    from raychains.orchestration.point import Bench
    from raychains.spec import TaskSpec
    from raychains.store.predictions import Predictions
    from raychains.tasks import Task

NICENESS = 10
SPLITS = 4
"""Splits whose data are held at a time: corruptions by the dozen are evaluated one after another."""


class EvaluationWorker:
    """The actor. It holds no CPU of Ray's, one thread, niced: a chain never waits for it.

    Args:
        store: URI of the run store, for samples that are no longer in the object store, and for kept predictions.
        task: JSON of the `TaskSpec`.
        split: name of the task's split that comes first; every call names its own.
        data_root: as for `ChainWorker`.
        luggage: the same.
        gpus: its share of GPUs; without one it predicts on the CPU whatever the machine has.
        bins: of calibration errors.
        keep: which predictions stay in the store: one of `raychains.store.predictions.POLICIES`.
        others: JSON of the tasks of those chains, by digest, that have another network on the same data.
        name: what people read before its log lines.
    """

    def __init__(
        self,
        store: str,
        task: dict[str, Any],
        split: str,
        data_root: str | None,
        luggage: Luggage | None = None,
        gpus: float = 0.0,
        *,
        bins: int = 15,
        keep: str = "none",
        others: Mapping[str, dict[str, Any]] | None = None,
        name: str = "evaluator",
    ) -> None:
        self._name = name
        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them; with a share Ray names them
        if data_root is not None:
            os.environ["RAYCHAINS_DATA"] = data_root
        gc.disable()  # imports leave no garbage; to look for it takes a fifth of their time
        import torch

        from raychains.store import Root, starts

        gc.freeze()
        gc.enable()
        torch.set_num_threads(1)
        self._root, self._bins = Root(store), bins
        self._complete = starts.Completion(self._root)
        self._by_hand = False
        self._tasks: dict[TaskSpec, Task] = {}
        self._benches: dict[TaskSpec, Bench] = {}
        self._device = torch.device("cuda") if gpus and torch.cuda.is_available() else None
        self._splits: OrderedDict[tuple[str, TaskSpec], Evaluation] = OrderedDict()
        self._kept: dict[tuple[str, TaskSpec], Predictions] = {}
        self._take_up(task, luggage, bins, keep, others)
        first = self._of(split)
        os.nice(NICENESS)  # after the imports: niced, they outlast a short run
        # Metrics' libraries take seconds to import: meanwhile the first samples are drawn.
        threading.Thread(target=first.warm, daemon=True).start()

    def __repr__(self) -> str:
        return self._name

    def serve(
        self,
        task: dict[str, Any],
        split: str,
        luggage: Luggage | None = None,
        *,
        bins: int = 15,
        keep: str = "none",
        others: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        """Take up another comparison's samples, in order with the other calls; arguments as when it was made.

        What was held for the one before, and is of no use to this one, is let go first.
        """
        self._take_up(task, luggage, bins, keep, others)
        threading.Thread(target=self._of(split).warm, daemon=True).start()

    def _take_up(
        self,
        task: dict[str, Any],
        luggage: Luggage | None,
        bins: int,
        keep: str,
        others: Mapping[str, dict[str, Any]] | None,
    ) -> None:
        from raychains.spec import TaskSpec

        # First of all: whatever fails below, no sample is taken for one of the task before.
        self._spec = TaskSpec.from_json(task)
        self._others = {digest: TaskSpec.from_json(other) for digest, other in (others or {}).items()}
        by_hand = luggage is not None and bool(luggage[1])
        # Another object may have the same spec, and splits know their bins.
        used = set() if by_hand or self._by_hand or bins != self._bins else {self._spec, *self._others.values()}
        self._tasks = {spec: kept for spec, kept in self._tasks.items() if spec in used}
        self._benches = {spec: kept for spec, kept in self._benches.items() if spec in used}
        self._splits = OrderedDict((at, kept) for at, kept in self._splits.items() if at[1] in used)
        self._kept = {at: kept for at, kept in self._kept.items() if at[1] in used}
        self._bins, self._keep, self._by_hand = bins, keep, by_hand
        if luggage is not None:
            from raychains.orchestration.luggage import unpack

            unpack(luggage)

    def _of(self, split: str, digest: str | None = None) -> Evaluation:
        """A split of the task; under the network of a chain, where that has a task of its own."""
        spec = self._spec_of(digest)
        if (split, spec) not in self._splits:
            while len(self._splits) >= SPLITS:
                self._kept.pop(self._splits.popitem(last=False)[0], None)
            evaluation = self._task_of(spec).splits()[split]
            evaluation.bins = self._bins
            if self._device is not None:
                evaluation.to(self._device)
            self._splits[split, spec] = evaluation
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
        """What is kept of a chain's samples on a split; only a network's data have to be hashed for it."""
        from raychains.store.predictions import Predictions

        evaluation, spec = self._of(split, digest), self._spec_of(digest)
        if (split, spec) not in self._kept:
            self._kept[split, spec] = Predictions(self._root, spec, evaluation.fingerprint, evaluation.shards)
        return self._kept[split, spec]

    def predict(
        self, split: str, digest: str, file: str, data: Any, start: str | None, sha256: str, samples: int | None
    ) -> Any:
        """This node's id, then one block per shard of a sample; ``data`` is its file as uint8, None to read the store.

        ``start`` names what completes a sample that holds only some of the network's parameters; ``sha256`` is the
        sample's, by which its prediction is looked for in the store, and kept there as far as the policy says for
        ``samples`` of its kind: None neither looks nor keeps.

        The first result tells that the others are there, or why not, without fetching them.
        """
        import ray

        node = ray.get_runtime_context().get_node_id()
        kept = self._predictions(split, digest) if samples is not None else None
        blocks = kept.read(sha256, start) if kept is not None else None
        if blocks is not None:
            return node, *blocks

        from raychains.store import ChainStore, codec

        raw = bytes(memoryview(data)) if data is not None else ChainStore(self._root, digest).read_sample(file)
        sampled, own = codec.decode(raw)
        evaluation, tensors = self._of(split, digest), self._complete(sampled, start)
        blocks = [evaluation.predict(tensors, shard) for shard in range(evaluation.shards)]
        if kept is not None and samples is not None and own["sha256"] == sha256:  # a damaged index may say another
            self._perhaps_keep(kept, sha256, start, blocks, samples)
        return node, *blocks

    def _perhaps_keep(
        self, kept: Predictions, sha256: str, start: str | None, blocks: Sequence[Array], samples: int
    ) -> None:
        """The one place where it is decided what is kept."""
        from raychains.store.predictions import keeps

        if keeps(self._keep, samples, sum(block.nbytes for block in blocks)):
            kept.write(sha256, blocks, start)

    def reduce(self, split: str, shard: int, weights: Sequence[float] | None, *blocks: Any) -> Any:
        """A view on one shard; None weighs all samples the same."""
        evaluation = self._of(split)
        return evaluation.reduce(blocks, shard) if weights is None else evaluation.reduce(blocks, shard, weights)

    def summarise(self, split: str, rows: bool, *parts: Any) -> dict[str, Any]:
        """A view's metrics and curves per repeat, and all its rows if they are wanted."""
        from raychains.evaluation.base import gather

        evaluation = self._of(split)
        return {
            "metrics": evaluation.summarise(parts),
            "curves": evaluation.curve(parts),
            "rows": gather(parts) if rows else {},
        }

    def alone(self, split: str, rows: bool, *blocks: Any) -> dict[str, Any]:
        """The view of one sample, whose blocks of all shards fit into memory: one call instead of one for each shard."""
        return self.summarise(split, rows, *(self.reduce(split, shard, None, b) for shard, b in enumerate(blocks)))

    def measure(self, split: str, point: dict[str, Any]) -> dict[str, float]:
        """A point's metrics on a split: see `raychains.orchestration.points`."""
        from raychains.orchestration.point import Bench
        from raychains.planning.points import Point

        made = Point.from_json(point)
        digest = made.samples[0].digest
        spec = self._spec_of(digest)
        if spec not in self._benches:
            self._benches[spec] = Bench(self._root, self._task_of(spec), self._device)
        return self._benches[spec].measure(self._of(split, digest), made)
