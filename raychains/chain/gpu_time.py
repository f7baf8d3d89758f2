"""The time of a step on a GPU, estimated where there is none: from the operators of the step and the device's data sheet.

The step is made on this CPU, with two small batches; every operator's work is linear in the number of examples. On the GPU a
kernel takes as long as the slowest of its products, its reads and writes, and its start; the host launches one operator after
the other, and is not waited for. Where gradients are recorded (`raychains.chain.backward`) it launches them by one call.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raychains import samplers
from raychains.chain.backward import recorded
from raychains.chain.chain import Chain
from raychains.chain.operators import Operator, Operators
from raychains.core.errors import UserError
from raychains.core.sample import tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.core.threads import threads
from raychains.samplers.noise import Noise, together
from raychains.schedules import Constant
from raychains.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A device, by its data sheet."""

    flops: Mapping[str, float]
    """Floating-point operations a second of dense products, by precision."""
    bandwidth: float
    """Bytes a second of its memory."""


_HOPPER = {"fp64": 67e12, "fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12}
GPUS = {
    "A100": Gpu(flops={"fp64": 19.5e12, "fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12}, bandwidth=2.039e12),
    "H100": Gpu(flops=_HOPPER, bandwidth=3.35e12),
    "H200": Gpu(flops=_HOPPER, bandwidth=4.8e12),
}
"""SXM versions; the A100 with 80 GB."""
OF_PRODUCTS, OF_BANDWIDTH = 0.5, 0.4
"""Shares of the data sheet's numbers that kernels reach; with `KERNEL` fitted to steps of ResNet-18 on an H200, at batch 128 in fp32,
TF32 and bf16 and at 256 in bf16, whose times they give within 5 %; exact steps in fp32 take 45 % more."""
KERNEL, LAUNCH, STEP = 8e-6, 30e-6, 250e-6
"""Seconds that a kernel takes at least, that the host needs for an operator, and for a step whose gradient is recorded; the last two
as measured on a virtual machine with an H200."""
ASSUMED = (
    f"estimated, as steps of ResNet-18 were measured on an H200: kernels reach {OF_PRODUCTS:.0%} of the data sheet's FLOP/s and "
    f"{OF_BANDWIDTH:.0%} of its bandwidth and take at least {KERNEL * 1e6:.0f} µs; the host needs {LAUNCH * 1e6:.0f} µs for an operator, or "
    f"{STEP * 1e6:.0f} µs for a recorded step; exact chains in fp32 take longer; benchmarks/chain.py --device cuda measures yours"
)
STEPS = 3
"""Only the last is counted; the earlier ones create the sampler's states."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step on one device: of its share of the batch, or in a pack of the batches of all rows."""

    examples: int
    """Examples of one chain on this device."""
    gradients: int
    """Gradient evaluations."""
    operators: int
    flops: float
    bytes: float
    seconds: float
    bound: str
    """The largest share of the time: ``products``, ``memory``, or ``launches``, which stands for kernels' least time too."""

    @property
    def rate(self) -> float:
        """Gradient evaluations a second."""
        return self.gradients / self.seconds


def estimate(spec: ChainSpec, task: Task, gpu: str, *, workers: int = 1) -> Step:
    """Return what a step of a chain takes on a device of `GPUS`; with ``workers``, without what they send each other.

    Raises:
        UserError: a density, or a task whose operators depend on how many examples there are.
    """
    if task.low_dimensional:
        raise UserError(f"gpu must be left out for task {spec.task.kind}, got {gpu}: it is a density")
    examples = spec.micro_batch or math.ceil(spec.batch_size / workers)
    called, rows = _at(spec, task, examples), max(1, spec.pack)
    device = GPUS[gpu]
    times = [tuple(rows * t for t in _seconds(operator, spec.precision, device)) for operator in called]
    work = {
        "products": sum(products for products, memory in times if products > memory),
        "memory": sum(memory for products, memory in times if memory >= products),
    }
    kernels = sum(max(*t, KERNEL) for t in times)
    host = STEP if recorded(spec, task) else LAUNCH * (len(called) + rows - 1)  # a pack's rows draw one after the other
    launching = host > kernels or kernels > 2 * sum(work.values())
    return Step(
        examples=examples,
        gradients=rows * examples * samplers.gradients_per_step(spec.sampler),
        operators=len(called) + rows - 1,
        flops=rows * sum(o.flops for o in called),
        bytes=rows * sum(o.bytes for o in called),
        seconds=max(host, kernels),
        bound="launches" if launching else max(work, key=lambda name: work[name]),
    )


def _seconds(operator: Operator, precision: str, gpu: Gpu) -> tuple[float, float]:
    """Return the seconds of an operator's products and those of its bytes."""
    by_dtype = {torch.float64: "fp64", torch.float32: "tf32" if precision == "tf32" else "fp32"}
    flops = gpu.flops[by_dtype.get(operator.dtype, "bf16")]
    return operator.flops / (OF_PRODUCTS * flops), operator.bytes / (OF_BANDWIDTH * gpu.bandwidth)


def _at(spec: ChainSpec, task: Task, examples: int) -> list[Operator]:
    """Return the operators of a step of so many examples, from those of two small batches.

    Raises:
        UserError: the two have other operators.
    """
    parts = samplers.build(spec.sampler, [torch.zeros(1)], lr=0.0, temperature=0.0, seed=0, lanes=1).parts
    few, more = 2 * parts, 4 * parts
    first, second = (_operators(spec, task, n) for n in (few, more))
    if [o.name for o in first] != [o.name for o in second]:
        raise UserError(
            f"gpu must be left out for task {spec.task.kind}: its operators depend on how many examples there are; give "
            "images_per_second"
        )

    def at(a: float, b: float) -> float:
        return a + (b - a) * (examples - few) / (more - few)

    return [
        dataclasses.replace(a, flops=at(a.flops, b.flops), bytes=at(a.bytes, b.bytes))
        for a, b in zip(first, second, strict=True)
    ]


def _small(spec: ChainSpec, task: Task, examples: int) -> Chain:
    """Return the chain with a batch of so many examples, as this CPU can run it, from a random start."""
    # A chain of some parameters has a start, where the others stay.
    start = task.build_model(seed=0, lanes=1).state_dict() if spec.sample_only else None
    learned = task.num_data - (spec.early_stop.held_out(task.num_data) if spec.early_stop is not None else 0)
    small = dataclasses.replace(
        spec,
        batch_size=examples,
        steps_per_epoch=math.ceil(learned / examples),
        precision="fp32" if spec.precision == "tf32" else spec.precision,
        compile="none",
        pack=0,
        micro_batch=None,
        start=tensors_sha256(start) if start is not None else None,
        start_chain=None,
    )
    return Chain(small, task, start=start)


def _operators(spec: ChainSpec, task: Task, examples: int) -> Sequence[Operator]:
    """Return the operators of a step, made on this CPU."""
    chain, last = _small(spec, task, examples), min(STEPS, spec.steps)
    chain.sampler._noise = _NoiseOfGpu(0)
    if chain._last_layer is None:  # else most steps optimise; of all others the costlier steps count, those with noise
        now, temperature = chain.schedule.at(1), chain.schedule.temperature
        chain.schedule = Constant(lr=now.lr, steps=chain.schedule.steps, temperature=temperature, samples=1)
    with threads():
        chain.advance(lambda: chain.step >= last - 1)
        with Operators() as operators:
            chain.advance(lambda: chain.step >= last)
    return operators.called


class _NoiseOfGpu(Noise):
    """Noise drawn as a GPU's is: on a CPU it is drawn without torch's operators."""

    def like(self, p: Tensor) -> Tensor:
        return self.all_like([p])[0]

    def all_like(self, tensors: list[Tensor]) -> list[Tensor]:
        return together(tensors, self.generator(tensors[0].device))

    def add(self, tensors: list[Tensor], std: float) -> None:
        torch._foreach_add_(tensors, self.all_like(tensors), alpha=std)
