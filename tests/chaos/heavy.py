"""A chain of large samples through a small object store; prints what its driver came to and how much memory it took.

`python -m tests.chaos.heavy STORE SAMPLES` runs one chain of SAMPLES samples of 45 MB on a local Ray with a 200 MB
store.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raychains.evaluation.evaluation import Array, Evaluation, Metric, Reduced, gather
from raychains.orchestration.lease import Lease
from raychains.planning import Comparison
from raychains.schedules import Cyclical
from raychains.tasks import Task
from tests.orchestration.worlds import arm_of, chain_spec
from tests.processes import peak_memory

PARAMETERS = 11_250_000
"""45 MB in single precision."""
OBJECT_STORE = 200_000_000


class Heavy(Task):
    """One large tensor that moves by the same amount every step."""

    num_data = 1
    fingerprint = "closed form"

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        model = nn.Module()
        model.theta = nn.Parameter(torch.zeros(PARAMETERS))
        return model

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return (None,)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        theta = next(model.parameters())
        theta.grad = torch.full_like(theta, -1.0)
        return None

    def to(self, device: torch.device) -> None:
        pass

    def splits(self) -> Mapping[str, Evaluation]:
        return {"target": Mean()}


class Mean(Evaluation):
    """The mean of everything."""

    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name="mean", label="Mean", better="higher"),)
    fingerprint = "mean"
    shards = 1

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        return np.asarray(tensors["theta"][:: PARAMETERS // 100]).mean(keepdims=True)

    def reduce(self, blocks: Sequence[Array], shard: int) -> Reduced:
        means = np.cumsum(np.stack(blocks), axis=0) / np.arange(1, len(blocks) + 1)[:, None]
        return Reduced(rows={"mean": means[-1]}, curves={"mean": means})

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        return [{"mean": float(gather(parts)["mean"][0])}]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        return [{"mean": parts[0].curves["mean"][:, 0].tolist()}]


def comparison(samples: int) -> Comparison:
    schedule = Cyclical(lr=0.1, steps=samples, cycles=1, exploration=0.0, temperature=0.0)
    arms = (arm_of("heavy", chain_spec(Heavy(), "sgd", schedule, {})),)
    return Comparison(task="heavy", unit="steps", split="target", arms=arms)


def main(store: str, samples: int) -> None:
    """Run it, and print one line of JSON."""
    from raychains.orchestration.cluster.resource_config import ResourceConfig
    from raychains.orchestration.cluster.session import connect
    from raychains.orchestration.run.launch import run_chains
    from raychains.planning.events import NullCallback
    from raychains.store import Storage

    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        session = connect("local", object_store_memory=OBJECT_STORE, temp_dir=folder, cpus=1)
        root = Storage(Path(store))
        outcome = run_chains(comparison(samples), root, ResourceConfig(), NullCallback(), lease=Lease(root))
        session.close()
    view = outcome.views[0, 0]
    print(json.dumps({"failed": outcome.failed, "samples": view.samples, **view.metrics[0], "peak": peak_memory()}))


if __name__ == "__main__":
    from tests.chaos import heavy  # workers import it by this name

    heavy.main(sys.argv[1], int(sys.argv[2]))
