"""The commands that real faults disturb: tiny, but as users type them."""

from __future__ import annotations

import re
from dataclasses import dataclass

COMMON = "--log {folder}/log.jsonl --object-store-memory 100000000 --stall-timeout 2"
SAMPLING = f"--checkpoint-every .3 --max-failures 5 {COMMON}"


@dataclass(frozen=True)
class Command:
    """A command, what may be done to it, and how it is called again.

    Args:
        words: apart by spaces, with ``{folder}`` for a folder of its own and ``{store}`` for a store.
        victims: kinds of processes that it has.
        again: words that are added when it is called again.
        worker: title of the processes that do its work.
        after: the command whose folder it begins with.
        s3: whether its store is a bucket.
        replaces: whether a worker that is stopped is replaced.
        weight: how often it is drawn.
    """

    words: str
    victims: tuple[str, ...]
    again: tuple[str, ...] = ("--resume",)
    worker: bytes = rb"ray::.*ChainWorker"
    after: str | None = None
    s3: bool = False
    replaces: bool = True
    weight: int = 2

    def titled(self, victim: str) -> re.Pattern[bytes]:
        """Beginning of the command lines of a kind of victim."""
        return re.compile({**TITLES, "worker": self.worker}[victim])


TITLES = {
    "driver": rb"\S*python",
    "evaluator": rb"ray::.*EvaluationWorker",
    "raylet": rb"\S*/raylet\0",
    "GCS": rb"\S*/gcs_server\0",
    "S3 server": rb"\S*python\S*\0-m\0tests.storage.proxy\0",
}
RAY = ("driver", "raylet", "GCS")
CHAINS = (*RAY, "worker", "evaluator")
RUN = (
    "run --task mixture25 --sampler sghmc --schedule cyclical --chains 2 --repeats 2 --steps 30000 --cycles 3 --name r"
)
DIGITS = "--task digits --store {store}"

COMMANDS = {
    "run": Command(f"{RUN} --store {{store}} {SAMPLING}", CHAINS, weight=3),
    "run on S3": Command(f"{RUN} --store {{store}} {SAMPLING}", (*CHAINS, "S3 server", "S3 server"), s3=True, weight=3),
    "compare": Command(
        f"compare {DIGITS} --sampler sgld --chains 2 --repeats 1 --epochs 10 --cycles 2 --name c {SAMPLING}", CHAINS
    ),
    "sweep": Command(
        f"sweep {DIGITS} --sampler sghmc --epochs 20 --val-split 200 --grid lr=.05,.1,.2 --name s {SAMPLING}",
        (*RAY, "worker"),
        worker=rb"ray::digits",
    ),
    "evaluate --measures": Command(
        f"evaluate {{store}}/runs/c --views cycles --measures diversity diagnostics {COMMON}",
        (*RAY, "evaluator"),
        again=(),
        after="compare",
    ),
    "reproduce --scale smoke": Command(
        f"reproduce table4 --scale smoke --store {{store}} {SAMPLING}", CHAINS, again=()
    ),
    "export": Command(
        "export {store}/runs/c --to {folder}/exported.safetensors", ("driver",), again=(), after="compare", weight=1
    ),
    "prepare": Command(
        "prepare small --from {pictures} --to {folder}/prepared --shards 8 --row-group 7 "
        "--object-store-memory 100000000",
        (*RAY, "worker"),
        again=(),
        worker=rb"ray::Map",
        replaces=False,
    ),
}
