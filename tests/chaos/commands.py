"""The commands that real faults disturb: tiny, but as users type them."""

from __future__ import annotations

import re
from dataclasses import dataclass

QUICK = ("--stall-timeout", "2", "--max-failures", "5")
LOG = ("--log", "{folder}/log.jsonl")
SMALL_RAY = ("--object-store-memory", "100000000")


@dataclass(frozen=True)
class Command:
    """A command, what may be done to it, and how it is called again.

    Args:
        words: with ``{folder}`` for a folder of its own and ``{store}`` for a store.
        victims: kinds of processes that it has.
        again: words that are added when it is called again.
        worker: title of the processes that do its work.
        after: the command whose folder it begins with.
        s3: whether its store is a bucket.
        replaces: whether a worker that is stopped is replaced.
        weight: how often it is drawn.
    """

    words: tuple[str, ...]
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
    *[
        "run",
        "--task",
        "mixture25",
        "--sampler",
        "sghmc",
        "--schedule",
        "cyclical",
        "--chains",
        "2",
        "--repeats",
        "2",
        "--steps",
        "30000",
        "--cycles",
        "3",
    ],
    *["--checkpoint-every", "0.3", "--name", "r", "--store", "{store}"],
)
DIGITS = ("--task", "digits", "--store", "{store}")

COMMANDS = {
    "run": Command((*RUN, *LOG, *QUICK, *SMALL_RAY), CHAINS, weight=3),
    "run on S3": Command((*RUN, *LOG, *QUICK, *SMALL_RAY), (*CHAINS, "S3 server", "S3 server"), s3=True, weight=3),
    "compare": Command(
        (
            "compare",
            *DIGITS,
            *["--sampler", "sgld", "--chains", "2", "--repeats", "1", "--epochs", "10", "--cycles", "2", "--name", "c"],
            "--checkpoint-every",
            "0.3",
            *LOG,
            *QUICK,
            *SMALL_RAY,
        ),
        CHAINS,
    ),
    "sweep": Command(
        (
            "sweep",
            *DIGITS,
            *["--sampler", "sghmc", "--epochs", "20", "--val-split", "200", "--grid", "lr=.05,.1,.2", "--name", "s"],
            "--checkpoint-every",
            "0.3",
            *LOG,
            *QUICK,
            *SMALL_RAY,
        ),
        (*RAY, "worker"),
        worker=rb"ray::digits",
    ),
    "evaluate --measures": Command(
        (
            "evaluate",
            "{store}/runs/c",
            *["--views", "cycles", "--measures", "diversity", "diagnostics"],
            *LOG,
            "--stall-timeout",
            "2",
            *SMALL_RAY,
        ),
        (*RAY, "evaluator"),
        again=(),
        after="compare",
    ),
    "reproduce --scale smoke": Command(
        (
            "reproduce",
            "table4",
            "--scale",
            "smoke",
            "--store",
            "{store}",
            "--checkpoint-every",
            "0.3",
            *LOG,
            *QUICK,
            *SMALL_RAY,
        ),
        CHAINS,
        again=(),
    ),
    "export": Command(
        ("export", "{store}/runs/c", "--to", "{folder}/exported.safetensors"),
        ("driver",),
        again=(),
        after="compare",
        weight=1,
    ),
    "prepare": Command(
        (
            "prepare",
            "small",
            "--from",
            "{pictures}",
            "--to",
            "{folder}/prepared",
            "--shards",
            "8",
            "--row-group",
            "7",
            *SMALL_RAY,
        ),
        (*RAY, "worker"),
        again=(),
        worker=rb"ray::Map",
        replaces=False,
    ),
}
