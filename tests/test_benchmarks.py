"""The benchmark of chains runs as its README says and prints what it promises; its figures are nobody's here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: MNIST is needed")
def test_the_chain_benchmark_measures_epochs_steps_profile_and_floor() -> None:
    command = [sys.executable, "benchmarks/chain.py", "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("\n\n")
    assert parts[0].startswith("machine: ") and len(parts) == 3
    for part, network in zip(parts[1:], ("MLP 784-400-400-10, MNIST", "LeNet, MNIST"), strict=True):
        assert part.startswith(f"{network}, batch 128, 300 images an epoch, 1 thread")
        assert len(re.findall(r"\d\.\d\d × \(by minima", part)) == 3, "epochs, and steps with and without noise"
        assert re.search(r"floor of a step: \d+ MFLOP .* is \d+\.\d+ × that", part)
        shares = re.findall(r"^    .{60} +(\d+\.\d)%$", part, re.MULTILINE)
        assert len(shares) >= 5 and sorted(map(float, shares), reverse=True) == [float(s) for s in shares]
        assert part.count("the sampler's noise") == 1
