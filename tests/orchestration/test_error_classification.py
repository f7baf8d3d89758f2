"""What ends a chain, what its worker, what the run."""

from __future__ import annotations

import pytest
import torch

from raychains.chain.divergence import Diverged
from raychains.core.errors import StorageAway, StorageRefused, UserError
from raychains.data.prepared.feed import DecoderGone, DecodingFailed
from raychains.orchestration.chains.error_classification import outcome_of, reason_of

CASES = [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "lost"),
    (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), "lost"),
    (RuntimeError("CUDA error: device-side assert triggered"), "lost"),
    (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(…)`"), "lost"),
    (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), "lost"),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried"), "lost"),
    (MemoryError(), "lost"),
    (StorageAway("not reachable"), "lost"),
    (StorageRefused("no room"), "storage_refused"),
    (DecoderGone("decoder 1: its process ended with status -9"), "lost"),
    (DecodingFailed("decoder 1: failed 7: a picture is damaged"), "failed"),
    (Diverged("the loss is nan", 7), "diverged"),
    (RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)"), "failed"),
    (ValueError("the user's own mistake"), "failed"),
    (OSError(5, "a file of the user's"), "failed"),
    (UserError("lr must be more"), "failed"),
]


@pytest.mark.parametrize(
    ("error", "outcome"), CASES, ids=[f"{type(e).__name__}-{o}-{n}" for n, (e, o) in enumerate(CASES)]
)
def test_errors_mean_what_they_are(error: Exception, outcome: str) -> None:
    assert outcome_of(error) == outcome


def test_a_broken_device_is_found_behind_a_users_own_error() -> None:
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except torch.OutOfMemoryError as inner:
            raise ValueError("my model failed") from inner
    except ValueError as error:
        assert outcome_of(error) == "lost"
        assert "CUDA out of memory" in reason_of(error) and reason_of(error).endswith("ValueError: my model failed")


def test_the_reason_is_the_traceback_or_the_one_line_that_was_meant_for_people() -> None:
    try:
        raise ZeroDivisionError("the user's own mistake")
    except ZeroDivisionError as error:
        assert "Traceback" in reason_of(error) and __file__ in reason_of(error)
    assert reason_of(StorageRefused("no room; free space")) == "no room; free space"
