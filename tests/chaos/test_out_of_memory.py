"""A chain whose worker Ray kills for want of memory goes on from its last checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from raychains.chain import Chain
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Root
from raychains.tasks.mixture import Mixture25
from tests.chaos import greedy, tally

ROOT = Path(__file__).parents[2]


def test_a_worker_killed_for_want_of_memory_leaves_the_samples_of_an_undisturbed_chain(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos.greedy", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (tmp_path / "taken").exists() and not (tmp_path / "survived").exists()
    assert any("memory" in reason.lower() for reason in told["reasons"]), told
    assert not told["failed"]
    tally.add([{"target": "worker", "where": "memory"}])

    spec = greedy.spec(str(tmp_path))
    records = ChainStore(Root(str(tmp_path / "store")), spec.digest).records()
    expected = [e for e in Chain(spec, Mixture25()) if isinstance(e, Sample)]
    assert [r.sha256 for r in records] == [tensors_sha256(s.tensors) for s in expected]
