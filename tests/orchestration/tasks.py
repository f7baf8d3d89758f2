"""Tasks for tests of the orchestration: slow, failing or dying on purpose. Workers import them by path."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.evaluation.evaluation import Array, Evaluation, Reduced
from raychains.evaluation.exact import ModeCoverage
from raychains.tasks.base import Position
from raychains.tasks.digits import Digits
from raychains.tasks.mixture import Mixture25
from tests.processes import SECONDS, until


class Mixture(Mixture25):
    """The mixture; what it is made with is its settings."""

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}


class Stepped(Mixture):
    """Looks at each of a chain's steps before it is made, and takes ``pause`` seconds more for it."""

    pause = 0.0

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        model = super().build_model(seed=seed, lanes=lanes)
        self.steps, self.seed, self.begins_below_0 = 0, seed, bool(next(model.parameters())[0, 0] < 0)
        return model

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        time.sleep(self.pause)
        self.steps += 1
        self.look()
        return super().backward(model, batch, generator)

    def look(self) -> None:
        """Step number ``steps``, from 1, is about to be made."""


class Broken(Stepped):
    """Raises in the chain whose first lane starts on the given side of the origin: a bug in a user's model."""

    def __init__(self, negative: bool = True) -> None:
        super().__init__()
        self.negative = negative

    def look(self) -> None:
        if self.steps == 30 and self.begins_below_0 is self.negative:
            raise ZeroDivisionError("the user's own mistake")


class Cliff(Mixture):
    """A standard normal density that ends where a coordinate passes ``limit``: which chains get there, noise
    decides."""

    def __init__(self, limit: float, pause: float = 0.0) -> None:
        super().__init__()
        self.limit, self.pause = limit, pause

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        return Position(torch.zeros(lanes, 2, dtype=torch.float64))

    def gradient(self, theta: Tensor) -> Tensor:
        time.sleep(self.pause)
        return torch.where(theta.abs() > self.limit, torch.nan, theta)


class Exits(Mixture):
    """Its gradient ends the program, as a script's mistake may."""

    def gradient(self, theta: Tensor) -> Tensor:
        raise SystemExit(3)


class Doomed(Digits):
    """A small network on digits, whose process ends where it is made with a seed that a file of this folder is named
    by."""

    def __init__(self, folder: str) -> None:
        super().__init__(train=90, hidden=[8])
        self.folder = folder

    def settings(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        if Path(self.folder, str(seed)).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().build_model(seed=seed, lanes=lanes)


class Mortal(Mixture):
    """Ends its process after every ``every`` gradients, ``lives`` times; files remember how often it did.

    With ``checkpointed`` not before some checkpoint is in the store beside those files.
    """

    def __init__(self, folder: str, every: int, lives: int, checkpointed: bool, pause: float = 0.0) -> None:
        super().__init__()
        self.folder, self.every, self.lives, self.checkpointed, self.pause = folder, every, lives, checkpointed, pause
        self._made = 0

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self._made += 1
        time.sleep(self.pause)
        died = len(list(Path(self.folder).glob("died-*"))) if self._made == self.every else self.lives
        if died < self.lives:
            deadline = time.monotonic() + SECONDS
            while self.checkpointed and not list(Path(self.folder).glob("store/chains/*/checkpoints/*.safetensors")):
                assert time.monotonic() < deadline, "no checkpoint was written"
                time.sleep(0.005)
            (Path(self.folder) / f"died-{died}").touch()
            os.kill(os.getpid(), 9)
        return super().backward(model, batch, generator)


class Starved(Stepped):
    """Its device has no memory left: always in chains that start on one side of the origin, once in the others."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def look(self) -> None:
        marker = Path(self.folder) / str(self.seed)
        if self.steps == 30 and (self.begins_below_0 or not marker.exists()):
            marker.touch()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


class Waiting(Stepped):
    """Waits in a process's ``at``-th step of a chain until a file exists, so that what is to happen before does."""

    def __init__(self, go: str, at: int) -> None:
        super().__init__()
        self.go, self.at = go, at

    def look(self) -> None:
        if self.steps >= self.at:
            self.wait()

    def wait(self) -> None:
        while not Path(self.go).exists():
            time.sleep(0.02)


class Slowing(Waiting):
    """Takes its time for each step from that one on until the file exists: it can be stopped there."""

    def wait(self) -> None:
        if not Path(self.go).exists():
            time.sleep(0.05)


class Troubled(Waiting):
    """While a file exists that holds an errno, this process's disk answers those who write samples with it. A pause in
    every step."""

    def __init__(self, trouble: str, go: str, at: int, pause: float = 0.0) -> None:
        super().__init__(go, at)
        self.trouble, self.pause = trouble, pause

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        os.fsync = self._fsync  # type: ignore[assignment]
        return super().build_model(seed=seed, lanes=lanes)

    def _fsync(self, descriptor: Any) -> None:
        if threading.current_thread().name != "writer":  # a driver of threads in this process is another machine
            return
        try:
            number = int(Path(self.trouble).read_text())
        except FileNotFoundError:
            return
        raise OSError(number, os.strerror(number))


class Hanging(Stepped):
    """The first process to make a chain's ``at``-th step never returns from it."""

    def __init__(self, folder: str, at: int, pause: float) -> None:
        super().__init__()
        self.folder, self.at, self.pause = folder, at, pause

    def look(self) -> None:
        marker = Path(self.folder) / str(self.seed)
        if self.steps == self.at and not marker.exists():
            marker.touch()
            while True:
                time.sleep(1.0)


class Mute(Stepped):
    """While a file exists, this process's disk does not answer."""

    def __init__(self, trouble: str, pause: float) -> None:
        super().__init__()
        self.trouble, self.pause = trouble, pause

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        os.fsync = self._fsync  # type: ignore[assignment]
        return super().build_model(seed=seed, lanes=lanes)

    def _fsync(self, descriptor: Any) -> None:
        while Path(self.trouble).exists():
            time.sleep(0.05)


class Bulky(Waiting):
    """Blocks too large to travel in messages, which lie in the store of the node that made them."""

    def splits(self) -> Mapping[str, Evaluation]:
        found = dict(super().splits())
        found["target"] = _BulkyCoverage(found["target"], Path(self.go).with_name("predictions"))
        return found


class _BulkyCoverage(Evaluation):
    """Mode coverage whose blocks have 160 kB of zeros after the counts; a line for every prediction: on which node."""

    metrics = ModeCoverage.metrics
    shards = 1
    fingerprint = "bulky"

    def __init__(self, inner: Evaluation, log: Path) -> None:
        self._inner, self._log = inner, log

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        import ray

        with self._log.open("a") as f:
            f.write(f"{ray.get_runtime_context().get_node_id()}\n")
        until(lambda: len(set(self._log.read_text().split())) >= 2, "an evaluator on each of two nodes")
        counts = self._inner.predict(tensors, shard)
        return np.concatenate([counts, np.zeros((len(counts), 20_000 // len(counts)), dtype=counts.dtype)], axis=1)

    def reduce(self, blocks: Sequence[Array], shard: int) -> Reduced:
        return self._inner.reduce([b[:, :25] for b in blocks], shard)

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        return self._inner.summarise(parts)

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        return self._inner.curve(parts)
