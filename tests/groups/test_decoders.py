"""Decoder processes beside a chain: the same samples through the death of one in mid-epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raychains.api import plans
from raychains.core.config import Run
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.store import ChainStore, Storage
from tests.data.prepared.made import folder_of_classes, prepared
from tests.groups.test_groups import Killing, process_of
from tests.jobs.keeper import descendants
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    prepared(folder_of_classes(folder / "raw"), folder / "small")
    return folder


def beside_the_chain() -> int:
    """The decoder process that the chain's worker started."""
    below = descendants(process_of("/chain-worker-0-"))
    (pid,) = (n for n in below if b"raychains.data.prepared.worker" in Path(f"/proc/{n}/cmdline").read_bytes())
    return pid


def settings(data: Path) -> dict[str, Any]:
    return {
        "task": "imagefolder-lenet", "task_settings": ("set=small", "size=32", "window=3"), "sampler": "csghmc",
        "epochs": 200, "cycles": 2, "chains": 1, "samples_per_cycle": 1, "batch_size": 8, "lr": 0.01,
        "data_root": str(data), "evaluators": 1,
    }  # fmt: skip


@pytest.mark.long
def test_a_run_with_a_decoder_that_is_killed_has_the_samples_of_a_chain_alone(
    data: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYCHAINS_DATA", str(data))
    options = Run(**settings(data), store=store)
    listener = Killing(30, beside_the_chain)
    plan = plans.run(options).comparison
    placed = replace(ResourceConfig.of(options), evaluate=False)
    outcome = run_chains(plan, Storage(store), placed, listener, lease=Lease(Storage(store)))
    assert listener.killed and not outcome.failed and outcome.samples == 2
    assert stored_hashes(store, plan) == undisturbed_hashes(plan)
    (digest,) = plan.chains()
    assert ChainStore(Storage(store), digest).last_attempt() == 2, "a chain whose decoder died begins again"
