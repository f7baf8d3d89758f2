"""All that is asked of a GPU's driver, and how chains and predictions wait for it. Tests replace these where there is
no GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def is_gpu(device: torch.device) -> bool:
    """Return whether a device is a GPU: the host runs ahead of it, and it has memory, kernels and generators of its
    own."""
    return device.type == "cuda"


def best() -> torch.device:
    """Return the GPU that this process may use, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def name(device: torch.device) -> str:
    """Return a GPU's name."""
    return torch.cuda.get_device_name(device)


def use(device: torch.device) -> None:
    """Make a GPU this thread's current one."""
    torch.cuda.set_device(device)


def rng_state(device: torch.device) -> Tensor:
    """Return the state of a GPU's global generator."""
    return torch.cuda.get_rng_state(device)


def set_rng_state(device: torch.device, state: Tensor) -> None:
    """Set a GPU's global generator to what `rng_state` returned."""
    torch.cuda.set_rng_state(state, device)


def kept_rng(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context that sets torch's global generators, of the CPU and of ``device``, back at its end."""
    return torch.random.fork_rng([device] if is_gpu(device) else [])


def free_memory(device: torch.device) -> int:
    """Return the bytes of a GPU that nothing uses; those that torch holds in reserve are among them."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def release_memory() -> None:
    """Give memory that torch holds in reserve back to the GPU."""
    torch.cuda.empty_cache()


def pinned(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor of the CPU from which a GPU copies while the host goes on."""
    return tensor.pin_memory()


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the CPU on ``device``; the host does not wait for a GPU that copies it."""
    return pinned(tensor).to(device, non_blocking=True) if is_gpu(device) else tensor.to(device)


def dropped(kept: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """Return ``kept`` as `torch.nn.Dropout` of probability ``p`` leaves it on a GPU, with the numbers of
    ``generator``."""
    found: Tensor = torch._fused_dropout(kept, 1 - p, generator=generator)[0]  # by the kernel of torch.dropout
    return found


def on_host(tensor: Tensor) -> Tensor:
    """Return a contiguous copy on the CPU; one of a GPU's tensor is whole only after `wait`."""
    gpu = is_gpu(tensor.device)
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=gpu).copy_(tensor.detach(), non_blocking=gpu)


def wait(device: torch.device) -> None:
    """Wait until a GPU has done what this thread has given it so far."""
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(device))
    done.synchronize()


def array(tensor: Tensor) -> np.ndarray:
    """Return a tensor's numbers, for which the host waits."""
    found: np.ndarray = tensor.detach().cpu().numpy()
    return found


def value(scalar: Tensor) -> Any:
    """Return a tensor's only number, for which the host waits."""
    return scalar.item()


class Graphs:
    """CUDA graphs in one pool of memory: no two of them run at once.

    Args:
        generator: a generator of the device that recorded functions draw from, beside the global one.
    """

    def __init__(self, device: torch.device, generator: torch.Generator) -> None:
        self._device, self._generator = device, generator
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def beside(self, function: Callable[[], Any]) -> Any:
        """Call a function on the stream on which it is recorded later, as torch asks for; return its value."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            found = function()
        current.wait_stream(self._stream)
        return found

    def record(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """Record a function's work on the GPU without doing it; return its value and a function that does the work.

        The value's tensors, and whatever else the function leaves behind, keep their places: each call writes them
        anew.
        """
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        # Other threads of the process may ask the driver for anything meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            found = function()
        return found, graph.replay
