"""The checks ``run/…`` of `tests.gpu.check`: `raychains run` in processes of its own, with Ray on this machine.

One plan of two chains on digits is run with both sharing the device at the same time, and again so, but killed
half-way, with driver and Ray, and continued. Their samples are compared with those of the same chains alone on the
device, one after the other: in this process, and in the long form with `raychains run`, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from raychains.chain.chain import Chain
from raychains.core.sample import Sample, tensors_sha256
from tests.processes import PATIENT_RAY, RAYCHAINS, kill_session, outside, sessions, until

if TYPE_CHECKING:
    from raychains.store import ChainStore

Measured = Iterator[tuple[str, float, float, float]]
"""What is measured, its value, the expected value and the tolerance."""
NAMES = ("run/halves", "run/killed")
SAMPLER, CYCLES, PER_CYCLE = "csghmc", 4, 3
PLAN = f"""run --task digits --task-settings hidden=[16] --sampler {SAMPLER} --chains 2 --repeats 1 --cycles {CYCLES}
--samples-per-cycle {PER_CYCLE} --thinning 10 --checkpoint-every 0.2 --object-store-memory 100000000 --name r"""
EPOCHS = {True: 500, False: 1500}
"""In the short form and in the long one. A chain takes seconds, much longer than one worker starts after the other."""
WITHIN = 300.0
"""Seconds after which a run hangs."""
ENVIRONMENT = {**PATIENT_RAY, "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_memory_monitor_refresh_ms": "0"}
"""Processes are killed on purpose, and neighbours may need the memory."""


def missing(device: str) -> str | None:
    """Why there can be no runs on ``device``, if so."""
    if absent := [name for name in ("ray", "pyarrow") if find_spec(name) is None]:
        return f"{' and '.join(absent)} cannot be imported"
    if torch.device(device).type not in ("cpu", "cuda"):
        return f"Ray offers no {device}"
    return None


@dataclass
class Runs:
    """The runs on one device; all that the checks of these names need begin with the first check.

    Args:
        called: the device's name, which each worker must record.
        names: of the checks that are made.
    """

    device: str
    called: str
    folder: Path
    short: bool
    names: Collection[str]

    def __post_init__(self) -> None:
        self.gpu = torch.device(self.device).type == "cuda"
        self.pool = ThreadPoolExecutor(1 if self.gpu else 2)  # a run has a GPU for itself

    def checks(self) -> dict[str, Callable[[], Measured]]:
        """The checks, by name."""
        offered = dict(zip(NAMES, (self.halves, self.killed), strict=True))
        return {name: check for name, check in offered.items() if name in self.names}

    def close(self) -> None:
        """Wait for what is under way."""
        self.pool.shutdown(cancel_futures=True)

    def halves(self) -> Measured:
        """Chains that share the device against those that have it for themselves."""
        if self.gpu:
            wait(self.stores.values())  # this process has it for itself, too
        shared = self.stores["halves"].result()
        found = samples(shared)
        yield "samples that differ from those of chains without Ray", differing(found, alone(shared, self.device)), 0, 0
        yield "chains at work at once", at_once(self.folder / "halves.jsonl"), 2, 0
        if "whole" in self.stores:
            whole = samples(self.stores["whole"].result())
            yield "samples that differ from those of chains with a whole device", differing(found, whole), 0, 0
            yield "chains at work at once, each with a whole device", at_once(self.folder / "whole.jsonl"), 1, 0

    def killed(self) -> Measured:
        """Chains that are killed and continued against the same ones uninterrupted."""
        continued, straight = (samples(self.stores[name].result()) for name in ("killed", "halves"))
        yield "samples that differ from those of the uninterrupted run", differing(continued, straight), 0, 0
        begun = [event for event in events(self.folder / "resumed.jsonl") if event["event"] == "chain-began"]
        yield "chains that began anew", sum(event["step"] == 0 for event in begun), 0, 0

    @cached_property
    def stores(self) -> dict[str, Future[Path]]:
        """The stores, by run."""
        begun = {"halves": self.pool.submit(self.run, "halves", "halves")}
        if "run/killed" in self.names:
            begun["killed"] = self.pool.submit(self.interrupted)
        if "run/halves" in self.names and not self.short:
            begun["whole"] = self.pool.submit(self.run, "whole", "whole", whole=True)
        return begun

    def interrupted(self) -> Path:
        """Make the run that is killed, and continue it; return its store."""
        self.run("killed", "killed", kill=True)
        return self.run("killed", "resumed", "--resume")

    def run(self, name: str, log: str, *more: str, whole: bool = False, kill: bool = False) -> Path:
        """Make one run, or kill all of its processes once each chain has half of its samples; return its store."""
        store = self.folder / name
        words = ["--epochs", str(EPOCHS[self.short]), "--store", str(store), "--log", str(self.folder / f"{log}.jsonl")]
        if self.gpu:
            words += ["--gpus-per-chain", "1" if whole else ".5"]
        else:
            words += ["--gpus-per-chain", "0", "--concurrent", "1" if whole else "2"]
        printed = self.folder / f"{log}.txt"
        with ExitStack() as stack:
            ray = stack.enter_context(tempfile.TemporaryDirectory(prefix="rc", dir="/tmp", ignore_cleanup_errors=True))
            how: dict[str, Any] = {"cwd": self.folder, "stdout": stack.enter_context(printed.open("w"))}
            environment = outside() | ENVIRONMENT | self.visible() | {"RAY_TMPDIR": ray}
            start = stack.enter_context(sessions(stderr=subprocess.STDOUT, env=environment, **how))
            process = start(*RAYCHAINS, *PLAN.split(), *words, *more)
            half = CYCLES * PER_CYCLE // 2
            if kill:
                until(lambda: process.poll() is not None or fewest(store) >= half, "half of the samples", WITHIN)
                over = process.poll() is not None
                kill_session(process.pid)
            else:
                until(lambda: process.poll() is not None, "the end of a run", WITHIN, every=0.1)
                over = process.returncode != 0
        if over:
            raise RuntimeError(f"the run {log!r} ended with {process.returncode}: {printed.read_text()[-2000:]}")
        if not kill:
            self.check_device(store)
        return store

    def check_device(self, store: Path) -> None:
        """Raise RuntimeError if a worker had another device."""
        records = [json.loads(file.read_text()) for file in store.glob("chains/*/incarnations/*.json")]
        if others := {record["environment"]["device"] for record in records} - {self.called}:
            raise RuntimeError(f"chains ran on {', '.join(sorted(others))}, not on {self.called}")

    def visible(self) -> dict[str, str]:
        """The variable by which processes find this device alone."""
        if not self.gpu:
            return {"CUDA_VISIBLE_DEVICES": ""}
        number = torch.device(self.device).index or 0
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        return {"CUDA_VISIBLE_DEVICES": str(number) if seen is None else seen.split(",")[number]}


def fewest(store: Path) -> int:
    """Samples of the chain that has fewest."""
    chains = list(store.glob("chains/*"))
    return min(len(list(chain.glob("samples/*.safetensors"))) for chain in chains) if len(chains) == 2 else 0


Hashes = dict[tuple[str, str, int], str]
"""Of every sample's tensors, by chain, variable and number."""


def stored(store: Path) -> dict[str, ChainStore]:
    """The chains of a store, by digest."""
    from raychains.store import ChainStore, Storage  # the other checks need no pyarrow

    return {path.name: ChainStore(Storage(store), path.name) for path in store.glob("chains/*")}


def samples(store: Path) -> Hashes:
    """The samples in a store."""
    return {
        (digest, record.meta.variable, record.meta.index): tensors_sha256(chain.sample(record.file)[0])
        for digest, chain in stored(store).items()
        for record in chain.records()
    }


def alone(store: Path, device: str) -> Hashes:
    """The samples of a store's chains as they are drawn in this process, one chain after the other."""
    return {
        (digest, event.meta.variable, event.meta.index): tensors_sha256(event.tensors)
        for digest, chain in stored(store).items()
        for event in Chain(chain.spec(), device=device)
        if isinstance(event, Sample)
    }


def differing(ours: Hashes, reference: Hashes) -> int:
    """How many samples are not the same in both."""
    if len(reference) != 2 * CYCLES * PER_CYCLE:
        raise RuntimeError(f"{len(reference)} samples to compare with, not {2 * CYCLES * PER_CYCLE}")
    return sum(ours.get(key) != reference.get(key) for key in ours.keys() | reference.keys())


def events(log: Path) -> list[dict[str, Any]]:
    """The events of a run."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def at_once(log: Path) -> int:
    """The largest number of chains that were at work at the same time."""
    working = most = 0
    for event in events(log):
        working += {"chain-began": 1, "chain-finished": -1}.get(event["event"], 0)
        most = max(most, working)
    return most
