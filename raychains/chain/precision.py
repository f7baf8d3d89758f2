"""Execution of a chain's network: precision, compilation, exact or fast kernels, memory format. Draws no numbers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from raychains import tasks
from raychains.chain import backward
from raychains.core import gpus
from raychains.core.errors import UserError, format_error, require
from raychains.core.spec import ChainSpec
from raychains.priors import Centred
from raychains.tasks import Task
from raychains.tasks.base import check_decay

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.float32}
"""Dtypes of parameters, samplers' states and losses."""


def check(spec: ChainSpec, *, gpu: bool) -> None:
    """Refuse settings that the kind of device cannot execute.

    Raises:
        UserError: TF32 or CUDA graphs without a GPU.
    """
    why = "without a GPU: its arithmetic and its graphs exist there only"
    require(gpu or spec.precision != "tf32", "precision", spec.precision, f"be fp32, bf16 or fp64 {why}")
    require(gpu or spec.compile != "cuda-graphs", "compile", spec.compile, f"be none or default {why}")


def check_task(spec: ChainSpec, task: Task) -> None:
    """Refuse settings of networks for a density: its gradient is a formula in full precision.

    Raises:
        UserError: half precisions, compilation without a pack or frozen parameters of a density; CUDA graphs of a task
            that cannot be recorded.
    """
    density, name = task.low_dimensional, tasks.name_of(task)
    ok = not density or spec.precision in ("fp32", "fp64")
    require(ok, "precision", spec.precision, f"be fp32 or fp64 for task {name}: it is a density")
    ok = not density or spec.compile == "none" or spec.pack > 0
    require(
        ok, "compile", spec.compile, f"be none for task {name}, a density, without pack: steps of packs are compiled"
    )
    recorded = not density and spec.compile == "cuda-graphs"
    shapes = "its collate_fn makes batches of several shapes" if task.padded else None
    why = (backward.why_not(task) or shapes) if recorded else None
    require(why is None, "compile", spec.compile, f"be none or default for task {name}: {why}")
    ok = not density or not spec.sample_only
    require(ok, "sample_only", spec.sample_only, f"be left out for task {name}: it is a density")


def check_prior(task: Task, spec: ChainSpec) -> None:
    """The prior counts once: the task's, the spec's or the sampler's weight decay; a local chain has one around its
    start besides."""
    if task.prior is not None and spec.lanes > 1:
        raise UserError(f"lanes must be 1 for a task with a prior of its own, got {spec.lanes}")
    if spec.prior is not None and spec.prior.kind != Centred.kind:
        decay = spec.sampler.settings.get("weight_decay", 0.0)
        ok = task.prior is None and not task.own_prior and not task.low_dimensional and not decay
        require(
            ok,
            "prior",
            spec.prior.kind,
            "be left out for a density, a task with a prior of its own and beside weight decay",
        )
    check_decay(task, spec.sampler.settings.get("weight_decay", 0.0))


def not_exact(spec: ChainSpec) -> str:
    """Return one line on a chain that is not exact, for plan and report."""
    own = tasks.is_own(spec.task) and spec.compile == "none"
    kernels = "fast kernels, or state that no checkpoint holds" if own else "fast kernels"
    how = {"none": kernels, "default": "compiled", "cuda-graphs": "compiled, CUDA graphs"}[spec.compile]
    follows = "has other bytes than one that never stopped" if own else "follows the same law, not the same bytes"
    return f"not exact on resume ({how}): a chain that goes on from a checkpoint {follows}"


class Execution:
    """Runs the network of one chain as its spec says.

    Under bf16 the forward pass alone is autocast: parameters, sampler's states, what the network returns, the loss and
    everything after it stay in single precision. Names and tensors of `state_dict` are never touched.

    Raises:
        UserError: the device or the task cannot execute it, or compilation without a compiler.
    """

    def __init__(self, spec: ChainSpec, task: Task, device: torch.device) -> None:
        check(spec, gpu=gpus.is_gpu(device))
        check_task(spec, task)
        if spec.compile != "none":
            _check_compiler(spec.compile, device)
        self._spec, self._device, self._format = spec, device, task.memory_format
        if gpus.is_gpu(device) and spec.exact:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used

    def place(self, model: nn.Module) -> nn.Module:
        """Return ``model`` on the chain's device, in its dtype and memory format."""
        model = cast(model.to(self._device), self._spec.precision)
        return model.to(memory_format=torch.channels_last) if self._format is torch.channels_last else model

    def equip(self, model: nn.Module) -> None:
        """Make calls of a placed model run as the spec says."""
        channels_last = self._format is torch.channels_last
        bf16 = self._spec.precision == "bf16"
        compiled = self._spec.compile != "none" and not self._spec.pack  # which compiles its own steps
        if not (channels_last or bf16 or compiled):
            return
        run: Callable[..., Any] = model.forward
        if compiled:
            run = torch.compile(run, dynamic=False)
        device = self._device.type

        def forward(*args: Any, **kwargs: Any) -> Any:
            if channels_last:
                args = tuple(_channels_last(a) for a in args)
            if not bf16:
                return run(*args, **kwargs)
            with torch.autocast(device, torch.bfloat16):
                out = run(*args, **kwargs)
            return _single(out)

        model.forward = forward

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Set torch's process-wide switches as the spec says, and restore them at the end.

        Raises:
            UserError: torch.compile refuses the network.
        """
        with _switches(self._spec) if gpus.is_gpu(self._device) else nullcontext():
            if self._spec.compile == "none":
                yield
                return
            from torch._dynamo.exc import TorchDynamoException

            try:
                yield
            except TorchDynamoException as error:
                why = format_error(error)
                raise UserError(f"compile must be none for this task, got {self._spec.compile}: {why}") from error


def cast(model: nn.Module, precision: str) -> nn.Module:
    """Return ``model`` with what has a dtype of its `built` parameters in that of a precision.

    Other buffers stay as they are: complex ones, and statistics or times in double precision.
    """
    own = built(model)
    return model._apply(lambda t: t.to(DTYPES[precision]) if t.dtype in own else t)


def built(model: nn.Module) -> set[torch.dtype]:
    """Return the dtypes of a model's parameters."""
    return {p.dtype for p in model.parameters() if p.is_floating_point()}


def like(parameter: Tensor, value: Tensor) -> Tensor:
    """Return ``value``, if it has the parameter's shape, with the parameter's own strides.

    Files hold contiguous tensors; a state that lies otherwise than its parameter takes other kernels, with other bits.
    """
    if value.shape != parameter.shape or value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _channels_last(value: Any) -> Any:
    image = isinstance(value, Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if image else value


def _single(value: Any) -> Any:
    """A network's output with half-precision tensors in single precision."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
    if isinstance(value, dict):
        return type(value)((k, _single(v)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_single, value))
    return type(value)(map(_single, value)) if isinstance(value, list | tuple) else value


def _check_compiler(kind: str, device: torch.device) -> None:
    """torch.compile makes C++ on a CPU, and on a GPU kernels whose launchers are C."""
    names = ("CC", ("gcc", "cc", "clang")) if gpus.is_gpu(device) else ("CXX", ("g++", "c++", "clang++"))
    compilers = (os.environ[names[0]],) if names[0] in os.environ else names[1]
    if not any(shutil.which(c) for c in compilers):
        raise UserError(
            f"compile must be none on this machine, got {kind}: torch.compile needs a compiler "
            f"({' or '.join(compilers)}), and there is none on PATH"
        )


@contextmanager
def _switches(spec: ChainSpec) -> Iterator[None]:
    """Kernels of a GPU: reproducible or fast, and whether products of fp32 may round their factors to TF32."""
    deterministic = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    filling: Any = torch.utils.deterministic
    fill = filling.fill_uninitialized_memory
    before = _tf32()
    try:
        torch.use_deterministic_algorithms(spec.exact)
        filling.fill_uninitialized_memory = False  # a pass over every new tensor, against bugs only
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = spec.exact, not spec.exact
        _set_tf32((spec.precision == "tf32",) * 2)
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
        filling.fill_uninitialized_memory = fill
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn, benchmark
        _set_tf32(before)


def _tf32() -> tuple[bool, bool]:
    """Return whether matrix products and convolutions of fp32 use TF32; torch refuses to say after a mixture of its two
    ways."""
    try:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    except RuntimeError:
        matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
        return matmul.fp32_precision == "tf32", conv.fp32_precision == "tf32"


def _set_tf32(allowed: tuple[bool, bool]) -> None:
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed
