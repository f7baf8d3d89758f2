"""EvaluationWorker: predicts samples' blocks and reduces views, on what the chains leave of the machine.

With a share of a GPU, which chains then do without, it predicts there.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raychains.orchestration.luggage import Luggage

NICENESS = 10


class EvaluationWorker:
    """The actor. It holds no CPU of Ray's, one thread, niced: a chain never waits for it.

    Args:
        store: URI of the run store, for samples that are no longer in the object store.
        task: JSON of the `TaskSpec`.
        split: name of the task's split.
        data_root: as for `ChainWorker`.
        luggage: the same.
        gpus: its share of GPUs; without one it predicts on the CPU whatever the machine has.
    """

    def __init__(
        self,
        store: str,
        task: dict[str, Any],
        split: str,
        data_root: str | None,
        luggage: Luggage | None = None,
        gpus: float = 0.0,
    ) -> None:
        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them; with a share Ray names them
        if data_root is not None:
            os.environ["RAYCHAINS_DATA"] = data_root
        import torch

        from raychains import tasks
        from raychains.spec import TaskSpec
        from raychains.store import Root, starts

        torch.set_num_threads(1)
        if luggage is not None:
            from raychains.orchestration.luggage import unpack

            unpack(luggage)
        self._root = Root(store)
        self._complete = starts.Completion(self._root)
        self._evaluation = tasks.build(TaskSpec.from_json(task)).splits()[split]
        if gpus and torch.cuda.is_available():
            self._evaluation.to(torch.device("cuda"))
        os.nice(NICENESS)  # after the imports: niced, they outlast a short run
        # Metrics' libraries take seconds to import: meanwhile the first samples are drawn.
        threading.Thread(target=self._evaluation.warm, daemon=True).start()

    def predict(self, digest: str, file: str, data: Any, start: str | None = None) -> Any:
        """This node's id, then one block per shard of a sample; ``data`` is its file as uint8, None to read the store.

        ``start`` names what completes a sample that holds only some of the network's parameters.

        The first result tells that the others are there, or why not, without fetching them.
        """
        import ray

        from raychains.store import ChainStore, codec

        raw = bytes(memoryview(data)) if data is not None else ChainStore(self._root, digest).read_sample(file)
        tensors = self._complete(codec.decode(raw)[0], start)
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
