"""Large samples pass through a small object store, and the driver's memory does not grow with their number."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raychains.chain import Chain
from raychains.store import ChainStore, Root, codec
from tests.chaos import heavy, tally

ROOT = Path(__file__).parents[2]
SAMPLE_BYTES = 4 * heavy.PARAMETERS
LIMIT = 1_500_000_000
"""Bytes that the driver may take at its peak, of which torch and Ray take .5 GB."""


def test_45_mb_samples_pass_through_a_200_mb_object_store() -> None:
    run(samples=25)


@pytest.mark.long
def test_a_hundred_45_mb_samples_pass_through_a_200_mb_object_store() -> None:
    run(samples=100)


def run(samples: int) -> None:
    with tempfile.TemporaryDirectory(prefix="raychains-heavy-") as folder:
        if shutil.disk_usage(folder).free < 2 * samples * SAMPLE_BYTES:
            pytest.skip(f"{folder} has no room for {samples} samples of {SAMPLE_BYTES / 1e6:.0f} MB")
        command = [sys.executable, "-m", "tests.chaos.heavy", folder, str(samples)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280 if samples < 50 else 1800)
        assert done.returncode == 0, done.stderr[-4000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert not told["failed"] and told["samples"] == samples
        assert told["peak"] < LIMIT
        tally.LINES.append(
            f"{samples} samples of {SAMPLE_BYTES / 1e6:.0f} MB, object store of {heavy.OBJECT_STORE / 1e6:.0f} MB: "
            f"driver's peak {told['peak'] / 1e6:.0f} MB"
        )
        ((digest, spec),) = heavy.comparison(samples).chains().items()
        store = ChainStore(Root(folder), digest)
        records = store.records()
        assert [r.meta.index for r in records] == list(range(samples))
        assert len({r.sha256 for r in records}) == samples
        last, _ = codec.decode(store.read_sample(records[-1].file))
    chain = Chain(spec, heavy.Heavy())
    for _ in chain:
        pass
    assert (last["theta"] == next(chain.model.parameters())).all()
