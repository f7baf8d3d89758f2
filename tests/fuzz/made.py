"""One small real run for all tests of the folder, made without Ray, with a checkpoint and progress as a worker leaves
them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from raychains.chain.chain import Chain
from raychains.core.sample import Sample
from raychains.planning import Comparison
from raychains.store import ChainStore, Storage
from tests.report import runs


@cache
def comparison() -> Comparison:
    """One finished chain of digits and one that stopped half way."""
    return runs.single(epochs=4, chains=2, cycles=2, samples_per_cycle=1, task_settings=("hidden=[4]", "train=60"))


def make(folder: Path) -> Path:
    """The run at STORE/runs/small; its first chain is finished, its second has a checkpoint and progress only."""
    plan = comparison()
    store = runs.store_run(folder, plan)
    second = plan.arms[0].chains[0][1]
    for name in ("samples.parquet", "progress.parquet"):
        (folder / "chains" / second.digest / name).unlink()
    chain, kept = Chain(second), ChainStore(Storage(folder), second.digest)
    for event in chain:
        if not isinstance(event, Sample) and event.step >= second.steps // 2:
            break
    for step in (chain.step - 1, chain.step):
        kept.publish_checkpoint(chain.state_dict(), step, 1)
    assert kept.newest_checkpoint() is not None and store.exists()
    return folder / "runs" / "small"
