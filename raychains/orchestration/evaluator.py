"""EvaluationWorker: predicts samples' blocks and reduces views, on what the chains leave of the machine."""

from __future__ import annotations

import os
import threading
from typing import Any

NICENESS = 10


class EvaluationWorker:
    """The actor. It holds no CPU of Ray's, one thread, niced: a chain never waits for it.

    Args:
        store: URI of the run store, for samples that are no longer in the object store.
        task: JSON of the `TaskSpec`.
        split: name of the task's split.
        data_root: as for `ChainWorker`.
    """

    def __init__(self, store: str, task: dict[str, Any], split: str, data_root: str | None) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them
        if data_root is not None:
            os.environ["RAYCHAINS_DATA"] = data_root
        import torch

        from raychains import tasks
        from raychains.spec import TaskSpec
        from raychains.store import Root

        torch.set_num_threads(1)
        self._root = Root(store)
        self._evaluation = tasks.build(TaskSpec.from_json(task)).splits()[split]
        os.nice(NICENESS)  # after the imports: niced, they outlast a short run
        # Metrics' libraries take seconds to import: meanwhile the first samples are drawn.
        threading.Thread(target=self._evaluation.warm, daemon=True).start()

    def predict(self, digest: str, file: str, data: Any) -> Any:
        """This node's id, then one block per shard of a sample; ``data`` is its file as uint8, None to read the store.

        The first result tells that the others are there, or why not, without fetching them.
        """
        import ray

        from raychains.store import ChainStore, codec

        raw = bytes(memoryview(data)) if data is not None else ChainStore(self._root, digest).read_sample(file)
        tensors, _ = codec.decode(raw)
        node = ray.get_runtime_context().get_node_id()
        return node, *(self._evaluation.predict(tensors, shard) for shard in range(self._evaluation.shards))

    def reduce(self, shard: int, *blocks: Any) -> Any:
        """A view on one shard."""
        return self._evaluation.reduce(blocks, shard)

    def summarise(self, *parts: Any) -> dict[str, Any]:
        """A view's metrics and curves per repeat, and all its rows."""
        from raychains.evaluation.base import gather

        return {
            "metrics": self._evaluation.summarise(parts),
            "curves": self._evaluation.curve(parts),
            "rows": gather(parts),
        }
