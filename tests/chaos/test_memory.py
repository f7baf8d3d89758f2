"""Large samples pass through a small object store, and a worker that Ray kills for want of memory costs no sample."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from raychains.chain.chain import Chain
from raychains.core.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Storage, codec
from raychains.tasks.mixture import Mixture25
from tests.chaos import greedy, heavy, tally
from tests.processes import json_of

SAMPLE_BYTES = 4 * heavy.PARAMETERS
SAMPLES = 25
LIMIT = 900_000_000
"""Bytes that the driver may take at its peak, of which torch and Ray take .5 GB: so many samples would take 1.1 GB
more."""


@pytest.mark.long
def test_25_samples_of_45_mb_pass_through_a_200_mb_object_store() -> None:
    with tempfile.TemporaryDirectory(prefix="raychains-heavy-") as folder:
        if shutil.disk_usage(folder).free < 2 * SAMPLES * SAMPLE_BYTES:
            pytest.skip(f"{folder} has no room for {SAMPLES} samples of {SAMPLE_BYTES / 1e6:.0f} MB")
        found = json_of("-m", "tests.chaos.heavy", folder, str(SAMPLES))
        assert not found["failed"] and found["samples"] == SAMPLES
        assert found["peak"] < LIMIT
        tally.LINES.append(
            f"{SAMPLES} samples of {SAMPLE_BYTES / 1e6:.0f} MB, object store of {heavy.OBJECT_STORE / 1e6:.0f} MB: "
            f"driver's peak {found['peak'] / 1e6:.0f} MB"
        )
        ((digest, spec),) = heavy.comparison(SAMPLES).chains().items()
        store = ChainStore(Storage(folder), digest)
        records = store.records()
        assert [r.meta.index for r in records] == list(range(SAMPLES))
        assert len({r.sha256 for r in records}) == SAMPLES
        last, _ = codec.decode(store.read_sample(records[-1].file))
    chain = Chain(spec, heavy.Heavy())
    for _ in chain:
        pass
    assert (last["theta"] == next(chain.model.parameters())).all()


# Memory that is taken from a worker


@pytest.mark.long
def test_a_worker_killed_for_want_of_memory_leaves_the_samples_of_an_undisturbed_chain(tmp_path: Path) -> None:
    found = json_of("-m", "tests.chaos.greedy", str(tmp_path))
    assert (tmp_path / "taken").exists() and not (tmp_path / "survived").exists()
    assert any("memory" in reason.lower() for reason in found["reasons"]), found
    assert not found["failed"]
    tally.add([{"target": "worker", "where": "memory"}])

    spec = greedy.spec(str(tmp_path))
    records = ChainStore(Storage(str(tmp_path / "store")), spec.digest).records()
    expected = [e for e in Chain(spec, Mixture25()) if isinstance(e, Sample)]
    assert [r.sha256 for r in records] == [tensors_sha256(s.tensors) for s in expected]
