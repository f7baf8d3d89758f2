"""A program: chains run by a `ChainWorker` without Ray, at the same moment as another such program runs them.

Arguments: the store, a file with JSON [[spec, attempt], …], a folder for the rendezvous, this program's name.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from raychains.coordination.coordinator import Ended, Sampled
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains.chain_worker import ChainWorker
from raychains.orchestration.chains.messages import ChainAssignment, ChainWorkerConfig
from tests.processes import until


def run(store: str, orders: str, rendezvous: str, name: str) -> list[tuple[str, list[str], str]]:
    """Return how each chain ended, and the sha256 of each sample handed out."""
    worker = ChainWorker(ChainWorkerConfig(store=store, checkpoint_every=0.05))
    told = []
    for n, (spec, attempt) in enumerate(json.loads(Path(orders).read_text())):
        meet(Path(rendezvous), name, n)
        worker.start(ChainAssignment(spec=spec, attempt=attempt, about={"driver_id": name}))
        hashes, event = [], None
        while not isinstance(event, Ended):
            event, _ = worker.next(ChainSpec.from_json(spec).digest, attempt)
            if isinstance(event, Sampled):
                hashes.append(event.record.sha256)
        told.append((event.outcome, hashes, event.reason))
    return told


def meet(folder: Path, name: str, n: int) -> None:
    (folder / f"{n}-{name}").touch()
    until(lambda: len(list(folder.glob(f"{n}-*"))) == 2, "the other program", every=0.001)


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])), flush=True)
    os._exit(0)  # the interpreter's own end would meet torch in the worker's threads
