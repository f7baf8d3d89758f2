"""How many processes run a chain together, and the pieces in which they add up a batch's gradient."""

from __future__ import annotations

import math

from raychains.errors import require
from raychains.options import Common, Sampling
from raychains.schedules.base import positive_int
from raychains.tasks import Task


def workers_of(options: Common) -> tuple[int, float | None]:
    """Workers of each chain, and the GPUs that each holds; whole GPUs of a chain above one are workers of one each.

    Raises:
        UserError: both are given and do not fit, or a number out of range.
    """
    gpus, workers = options.gpus_per_chain, options.workers_per_chain
    if workers is not None:
        positive_int("workers_per_chain", workers)
    if gpus is None or gpus <= 1 or gpus != int(gpus):
        # Two ranks on one GPU cannot exchange anything by nccl.
        fits = workers in (None, 1) or gpus in (None, 0, 1)
        require(fits, "gpus_per_chain", gpus, f"be 0 or 1 for each of several workers, or {workers}, their number")
        return workers or 1, gpus
    fits = workers is None or workers == gpus
    require(fits, "workers_per_chain", workers, f"be left out or {gpus:g} beside gpus_per_chain {gpus:g}")
    return int(gpus), 1.0


def check_decoders(options: Common, task: Task, name: str) -> None:
    """Refuse decoders that would have nothing to decode.

    Raises:
        UserError: a task without a prepared set, or a number out of range.
    """
    if options.decoders is not None:
        prepared = f"be left out for task {name}: only prepared sets (raychains prepare) are decoded"
        require(task.streams, "decoders", options.decoders, prepared)
        positive_int("decoders", options.decoders)


def micro_batch_of(options: Sampling, task: Task, name: str, batch_size: int, parts: int) -> int | None:
    """Examples of a micro-batch, None where a batch is taken whole.

    Args:
        options: what the person asks for.
        task: the task.
        name: what it is called.
        batch_size: of the global batch.
        parts: sub-batches that the sampler divides a batch into itself.

    Raises:
        UserError: a density, a sampler that divides batches itself, or a number out of range.
    """
    workers, _ = workers_of(options)
    given = options.micro_batch
    if given is None and workers == 1:
        return None
    field, value = ("workers_per_chain", workers) if given is None else ("micro_batch", given)
    require(not task.low_dimensional, field, value, f"be left out for task {name}: it is a density")
    require(parts == 1, field, value, "be left out for samplers that divide a batch themselves (m_sharpness)")
    if given is not None:
        ok = isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= batch_size
        require(ok, "micro_batch", given, f"be an integer from 1 to the batch size ({batch_size})")
    size = given if given is not None else math.ceil(batch_size / workers)
    pieces = math.ceil(batch_size / size)
    require(workers <= pieces, "workers_per_chain", workers, f"be at most the micro-batches of a batch ({pieces})")
    return size
