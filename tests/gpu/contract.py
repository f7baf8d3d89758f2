"""The device contract: what a step on a GPU may do, checked where there is none.

Fake ``cuda`` tensors (`fake_cuda`) carry updates and copies, ``meta`` tensors whole steps with their backward pass:
neither has values. `Contract` sees every operator that torch dispatches on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.tensor  # before torch.Generator is replaced: its annotations name it
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from raychains.core import gpus
from raychains.samplers.noise import Noise

NEEDS_A_DRIVER = {
    "raychains/core/gpus.py": "torch.cuda.",
    "raychains/samplers/noise.py": "torch.Generator(device)",
    "raychains/chain/precision.py": "torch.backends.cuda.",
    "raychains/chain/process_group.py": '"nccl" if gpus.is_gpu',
}
"""Files with what only a real driver can run: no test here counts these lines as covered, and no other file has any."""

COPIES = {"_to_copy", "copy_"}
NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
"""Operators that a GPU has no part in, beside views."""


def launches(func: Any) -> bool:
    """Return whether an operator is at least one kernel on a GPU: no view, no allocation, not without tensors."""
    arguments, returns = func._schema.arguments, func._schema.returns
    if func.overloadpacket.__name__ in NO_KERNEL or not any("Tensor" in str(x.type) for x in (*arguments, *returns)):
        return False
    return writes(func) or any(r.alias_info is None for r in returns) or not returns


def writes(func: Any) -> bool:
    """Return whether an operator writes into one of its arguments."""
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


class Broken(AssertionError):
    """The contract is broken: the message names the operator and what it did."""


class Contract(TorchDispatchMode):
    """Refuse what makes a GPU wait for the host or the host for a GPU, and count operators and allocations.

    Refused are values read by the host, copies from the device to the CPU, and CPU tensors beside device tensors in any
    other operator, also within a foreach list. A CPU tensor without dimensions is a number to torch, but it is refused
    too.

    Args:
        ahead: refuse copies to the device, too, for which the host waits: it may not run ahead then.
    """

    def __init__(self, *, ahead: bool = False) -> None:
        super().__init__()
        self._ahead = ahead
        self.operators: Counter[str] = Counter()
        """Calls by operator, without views and allocations: each is at least one kernel on a GPU."""
        self.allocated = 0
        """Numbers in all tensors that operators returned new."""

    @property
    def launches(self) -> int:
        """The number of operators so far."""
        return self.operators.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        on_device = [t for t in given if t.device.type != "cpu"]
        if name == "_local_scalar_dense" and on_device:
            raise Broken(f"{name}: the host reads a value and waits for the device")
        if name in COPIES:
            target = args[0].device if name == "copy_" else torch.device(kwargs.get("device") or args[0].device)
            if target.type == "cpu" and on_device:
                raise Broken(f"{name}: a copy from the device to the CPU")
            if not on_device and target.type != "cpu" and self._ahead and not kwargs.get("non_blocking"):
                raise Broken(f"{name}: a copy to the device that the host waits for")
        elif on_device and len(on_device) < len(given):
            raise Broken(f"{name}: {len(given) - len(on_device)} of {len(given)} tensors are on the CPU")
        found = func(*args, **kwargs)
        if launches(func):
            self.operators[name] += 1
        if any(r.alias_info is None for r in func._schema.returns) and not writes(func):
            self.allocated += sum(
                t.numel() for t in tree_leaves(found) if isinstance(t, Tensor) and t.device.type != "cpu"
            )
        return found


@contextmanager
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let tensors be made on ``cuda`` without values or a driver."""
    # A generator of fake tensors is never asked for a number: None is torch's own.
    monkeypatch.setattr(Noise, "generator", lambda noise, device: None)
    with FakeTensorMode():
        yield


class WithoutDriver(torch.Generator):
    """A generator that says it is on ``device``, with the state of one on the CPU: tensors without values take nothing
    from it."""

    def __new__(cls, device: Any = "cpu") -> WithoutDriver:
        made = super().__new__(cls, "cpu")
        made._where = torch.device(device)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        """Take what `__new__` made."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._where


class Replayed:
    """`gpus.Graphs` without a driver: what was recorded is made again, operator by operator, so that it is seen."""

    def __init__(self, device: torch.device, generator: torch.Generator) -> None:
        """Take nothing of them."""

    def beside(self, function: Callable[[], Any]) -> Any:
        return function()

    def record(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        def replay() -> None:
            function()

        return function(), replay


def on_meta(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let chains run on ``meta``, which users cannot choose, as if it was a GPU; return how often the host waits, by
    function."""
    waits: Counter[str] = Counter()

    def is_gpu(device: torch.device) -> bool:
        return device.type == "meta"

    def waiting(name: str, found: Callable[[Tensor], Any]) -> None:
        usual = getattr(gpus, name)

        def made(tensor: Tensor) -> Any:
            if not is_gpu(tensor.device):
                return usual(tensor)
            waits[name] += 1
            return found(tensor)

        monkeypatch.setattr(gpus, name, made)

    waiting("value", lambda t: t.dtype == torch.bool or (0j if t.is_complex() else 0.0))  # everything is finite
    monkeypatch.setattr(gpus, "pinned", lambda tensor: tensor.clone())
    waiting("array", lambda t: np.zeros(t.shape, dtype=str(t.dtype).removeprefix("torch.")))
    monkeypatch.setattr(gpus, "is_gpu", is_gpu)
    monkeypatch.setattr(gpus, "wait", lambda device: waits.update(["wait"]))
    on_host = gpus.on_host
    monkeypatch.setattr(
        gpus, "on_host", lambda t: torch.zeros(t.shape, dtype=t.dtype) if is_gpu(t.device) else on_host(t)
    )
    monkeypatch.setattr(gpus, "name", lambda device: "a GPU without a driver")
    monkeypatch.setattr(gpus, "rng_state", lambda device: torch.zeros(16, dtype=torch.uint8))
    monkeypatch.setattr(gpus, "set_rng_state", lambda device, state: None)
    monkeypatch.setattr(gpus, "kept_rng", lambda device: nullcontext())
    monkeypatch.setattr(gpus, "Graphs", Replayed)
    monkeypatch.setattr(gpus, "dropped", lambda kept, p, generator: kept.clone())
    monkeypatch.setattr("raychains.chain.chain.device_of", torch.device)
    monkeypatch.setattr("raychains.tasks.passed_tasks._GIVEN", {})  # tasks that other tests gave stay where they are
    monkeypatch.setattr(torch, "Generator", WithoutDriver)
    return waits


def as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors of the CPU take the paths of a GPU's: noise and dropout by generators, nothing drawn ahead, switches
    set."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False))
    monkeypatch.setattr(gpus, "is_gpu", lambda device: True)
    monkeypatch.setattr(gpus, "name", lambda device: "a CPU as a GPU")
    monkeypatch.setattr("raychains.chain.backward.recorded", lambda spec, task: False)
    monkeypatch.setattr(gpus, "pinned", torch.clone)
    monkeypatch.setattr(gpus, "on_host", lambda t: t.detach().clone(memory_format=torch.contiguous_format))
    monkeypatch.setattr(gpus, "wait", lambda device: None)
    # Dropout draws from the CPU's generator here, which is set last.
    monkeypatch.setattr(gpus, "rng_state", lambda device: torch.get_rng_state())
    monkeypatch.setattr(gpus, "set_rng_state", lambda device, state: torch.set_rng_state(state))
    monkeypatch.setattr(
        gpus, "dropped", lambda kept, p, generator: kept.clone().bernoulli_(1 - p, generator=generator).div_(1 - p)
    )
