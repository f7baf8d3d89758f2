"""The meaning of an exception in a chain: its own mistake, its machine's, the storage's, or a divergence."""

from __future__ import annotations

import re
import traceback
from typing import Literal

import torch

from raychains.chain.divergence import Diverged
from raychains.chain.process_group import RankMissing
from raychains.core.errors import RaychainsError, StorageAway, StorageRefused
from raychains.data.prepared.feed import DecoderGone

Outcome = Literal["failed", "diverged", "lost", "storage_refused"]
"""``failed``: it would come again, and the chain is given up. ``lost``: the process cannot be trusted any more, or
nothing is known of its cause; the chain is tried elsewhere. ``storage_refused``: it has no room, or takes no files."""

_BROKEN = re.compile(
    r"CUDA error|CUDA out of memory|CUBLAS_STATUS|CUDNN_STATUS|CUSPARSE_STATUS|cuDNN error|NCCL error|HIP error"
    r"|CUDA driver|can't allocate memory|unable to mmap"
)
"""Texts of RuntimeErrors after which a process, or what it holds of its device, is of no use."""


def outcome_of(error: BaseException) -> Outcome:
    """Return what becomes of a chain after ``error``, raised in it or while writing it."""
    if isinstance(error, StorageRefused):
        return "storage_refused"
    if isinstance(error, StorageAway | RankMissing | DecoderGone):
        return "lost"
    if isinstance(error, Diverged):
        return "diverged"
    return "lost" if any(_broken(e) for e in _chained(error)) else "failed"


def reason_of(error: BaseException) -> str:
    """Return, for people, the line of an error that raychains raises on purpose, else the whole traceback."""
    if isinstance(error, RaychainsError):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()


def _broken(error: BaseException) -> bool:
    """Return whether the process's device or memory failed, rather than the chain's own arithmetic.

    What a device reports of one kernel, every later call reports again, so nothing more can run in this process; and
    whether memory suffices depends on what else the machine does.
    """
    kinds = tuple(k for n in ("OutOfMemoryError", "AcceleratorError") if (k := getattr(torch, n, None)) is not None)
    if isinstance(error, (MemoryError, *kinds)):
        return True
    return isinstance(error, RuntimeError) and _BROKEN.search(str(error)) is not None


def _chained(error: BaseException) -> list[BaseException]:
    """Return an error and those that it was raised from: users wrap what their model raises."""
    found: list[BaseException] = []
    now: BaseException | None = error
    while now is not None and now not in found:
        found.append(now)
        now = now.__cause__ or (None if now.__suppress_context__ else now.__context__)
    return found
