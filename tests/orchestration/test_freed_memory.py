"""A worker's freed memory stays in its process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

STEPS, MIB = 50, 16
SCRIPT = f"""
import resource, sys
from raychains.orchestration.chain_worker import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
import torch
for size in range({MIB} - 4, {MIB} + 1, 2):  # as glibc's own threshold for what it returns adapts to
    torch.zeros(size, 2**18).add_(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({STEPS}):
    torch.zeros({MIB}, 2**18).add_(1), torch.zeros({MIB}, 2**18).add_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(which: str) -> int:
    plain = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"))}
    command = [sys.executable, "-c", SCRIPT, which]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=plain).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_steps_that_allocate_what_the_last_one_freed_take_no_new_pages() -> None:
    returned = faults("returned")
    assert returned > 10 * STEPS  # else there would be nothing to keep
    assert faults("kept") < returned / 20
