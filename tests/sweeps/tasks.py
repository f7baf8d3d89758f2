"""Tasks for tests of sweeps. Trials import them by path."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
from torch import Tensor, distributed, nn

from raychains.evaluation.evaluation import Evaluation
from raychains.orchestration.cluster import ray_private
from raychains.tasks.digits import Digits


class Poisoned(AssertionError):
    """A split was read that decides nothing."""


class OnlyVal(Mapping[str, Evaluation]):
    """Splits of which ``val`` can be read; whoever reads another one fails."""

    def __init__(self, inner: Mapping[str, Evaluation]) -> None:
        self._inner = inner

    def __getitem__(self, name: str) -> Evaluation:
        if name == "test":
            raise Poisoned("the test split was read")
        return self._inner[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


class Guarded(Digits):
    """200 digits under a small network; its test split cannot be read, every step takes ``pause`` seconds longer."""

    defaults: Mapping[str, Any] = {"epochs": 12, "batch_size": 45, "lr": 0.05}

    def __init__(self, pause: float = 0.0, val_split: float = 0.0) -> None:
        super().__init__(train=200, hidden=(10,), val_split=val_split)
        self.pause = pause

    def settings(self) -> dict[str, Any]:
        return {"pause": self.pause, **({"val_split": self.val_split} if self.val_split else {})}

    def backward(self, model: nn.Module, batch: Any, generator: Any) -> Tensor | None:
        time.sleep(self.pause)
        return super().backward(model, batch, generator)

    def splits(self) -> Mapping[str, Evaluation]:
        return OnlyVal(super().splits())


class Dying(Guarded):
    """A process that makes its twelfth step of a chain while ``folder`` has a file ``die`` takes that away and dies.
    A file ``died-PID`` says then why.

    So does a trial that is set up while there is a file ``die-early``; with a file ``hang`` its 36th step has no end;
    one that takes over an earlier trial's process dies while there is a file ``die-handed-over``. While the
    folder has a file ``slow``, the second half of a chain takes its time. One that makes its twelfth step while there
    is a file ``leave`` is on a draining node, as far as it can know; of several processes the others are.
    """

    def __init__(self, folder: str, pause: float = 0.0, val_split: float = 0.0) -> None:
        super().__init__(pause, val_split)
        self.folder, self._steps = Path(folder), 0
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            self._die("die-early")

    def settings(self) -> dict[str, Any]:
        if any(frame.function == "reset_config" for frame in inspect.stack(0)):
            self._die("die-handed-over")
        return {"folder": str(self.folder), **super().settings()}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._steps = 0
        return super().build_model(seed=seed, lanes=lanes)

    def backward(self, model: nn.Module, batch: Any, generator: Any) -> Tensor | None:
        self._steps += 1
        if self._steps == 12 and self._mortal():
            self._die("die")
        if self._steps == 12:
            self._leave()
        if self._steps == 36:
            self._die("hang", threading.Event().wait)
        if self._steps > 24 and (self.folder / "slow").exists():
            time.sleep(0.15)
        return super().backward(model, batch, generator)

    def _leave(self) -> None:
        grouped = distributed.is_initialized()
        if (self.folder / "leave").exists() and not (grouped and distributed.get_rank()):
            (self.folder / "leave").rename(self.folder / f"left-{os.getpid()}")
            if grouped:
                ray_private.draining_actors = list
            else:
                ray_private.draining = lambda: [ray.get_runtime_context().get_node_id()]

    def _die(self, file: str, how: Callable[[], Any] = lambda: os.kill(os.getpid(), signal.SIGKILL)) -> None:
        with contextlib.suppress(FileNotFoundError):
            mark = self.folder / f"died-{os.getpid()}"
            (self.folder / file).rename(mark)
            mark.write_text(file)
            how()

    def _mortal(self) -> bool:
        return True


class DyingRank(Dying):
    """Of several processes that run a chain together the first does not die."""

    def _mortal(self) -> bool:
        return distributed.is_initialized() and distributed.get_rank() > 0


class Breaking(Guarded):
    """Raises in the twelfth step, which lies in the second of four epochs: a mistake in a user's model."""

    _steps = 0

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._steps = 0
        return super().build_model(seed=seed, lanes=lanes)

    def backward(self, model: nn.Module, batch: Any, generator: Any) -> Tensor | None:
        self._steps += 1
        if self._steps == 12:
            raise ZeroDivisionError("the user's own mistake")
        return super().backward(model, batch, generator)


class Undivided(Digits):
    """Takes no val_split and cannot be divided from outside."""

    def __init__(self) -> None:
        super().__init__()

    def settings(self) -> dict[str, Any]:
        return {}


class Placed(Guarded):
    """Each process writes the GPUs that it sees to a file of ``folder``; one that sees some waits for another such, in
    which its trial does not run."""

    def __init__(self, folder: str, pause: float = 0.0, val_split: float = 0.0) -> None:
        super().__init__(pause, val_split)
        self.folder = folder

    def settings(self) -> dict[str, Any]:
        return {"folder": self.folder, **super().settings()}

    def backward(self, model: nn.Module, batch: Any, generator: Any) -> Tensor | None:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        (Path(self.folder) / f"gpus-{os.getpid()}").write_text(seen)
        deadline = time.monotonic() + 120
        while seen and time.monotonic() < deadline:
            if sum(bool(file.read_text()) for file in Path(self.folder).glob("gpus-*")) > 1:
                break
            time.sleep(0.05)
        return super().backward(model, batch, generator)


class Tested(Placed):
    """As it, with a test split."""

    splits = Digits.splits
