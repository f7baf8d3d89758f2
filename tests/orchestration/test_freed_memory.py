"""A worker's freed memory stays in its process."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

STEPS, MIB = 15, 16
SCRIPT = f"""
import json, resource
from raychains.orchestration.chains.chain_worker import keep_freed_memory
import torch

def faults():
    for step in range(3 + {STEPS}):
        if step == 3:  # the first ones take memory
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.zeros({MIB}, 2**18).add_(1), torch.zeros({MIB}, 2**18).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

returned = faults()
keep_freed_memory()
print(json.dumps([returned, faults()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_steps_that_allocate_what_the_last_one_freed_take_no_new_pages() -> None:
    """Page faults of all steps, where malloc returns all large tensors but for what the process itself asks for."""
    plain = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"))}
    given = {**plain, "MALLOC_MMAP_THRESHOLD_": str(2**17)}  # fixed: else it adapts, by chance or not
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=given)
    returned, kept = json.loads(done.stdout)
    assert returned > 10 * STEPS  # else there would be nothing to keep
    assert kept < returned / 10
