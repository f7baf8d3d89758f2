"""A run of packed chains as real processes: kill -9 in its middle, resume, and the bytes of chains that nothing
disturbed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import raychains as rc
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.chain.pack import Pack
from raychains.chain.random_streams import stream_seed
from raychains.cli import main
from raychains.core.errors import ChainsFailed
from raychains.core.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Storage
from tests.chain.test_pack import Stepping, together
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.pool import unpaged
from tests.processes import RAYCHAINS, kill_session, sessions, until

CHAINS = 20
MEMORY = ("--object-store-memory", "100000000")
"""Of the Ray that a command starts."""
COMMAND = [
    *("run", "--task", "digits", "--task-settings", "train=90", "hidden=[8]", "--sampler", "sghmc"),
    *("--chains", str(CHAINS), "--repeats", "1", "--epochs", "160", "--cycles", "4", "--batch-size", "20"),
    *("--schedule", "cyclical", "--pack", str(CHAINS), "--checkpoint-every", "0.2", "--evaluators", "1"),
    *("--name", "r", "--resume"),
]


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_twenty_packed_chains_killed_and_resumed_have_their_bytes_as_has_one_of_them_alone(tmp_path: Path) -> None:
    found, command = tmp_path / "store" / "chains", [*COMMAND, "--store", str(tmp_path / "store")]
    with sessions() as start:
        first = start(*RAYCHAINS, *command, *MEMORY)

        def on_their_way() -> bool:
            assert first.poll() is None, first.communicate()
            return len({path.parts[-3] for path in found.glob("*/checkpoints/*")}) == CHAINS

        until(on_their_way, "a checkpoint of every chain", every=0.01)
        kill_session(first.pid)
        first.wait()
        assert len(list(found.glob("*/samples/*"))) < 12 * CHAINS, "it was through before it was killed"
    with unpaged():
        assert main(command) == 0
    store = Storage(str(tmp_path / "store"))
    plan = rc.load(f"{tmp_path}/store/runs/r").comparison
    specs = plan.chains()
    assert len(specs) == CHAINS and {spec.pack for spec in specs.values()} == {CHAINS}
    assert max(ChainStore(store, digest).last_attempt() for digest in specs) > 1
    stored = stored_hashes(store, plan)
    chains = [Chain(spec) for spec in specs.values()]
    undisturbed = {
        (chain.spec.digest, event.meta.variable, event.meta.index): tensors_sha256(event.tensors)
        for chain, events in zip(chains, together(Pack(chains[0]), chains), strict=True)
        for event in events
        if isinstance(event, Sample)
    }
    assert len(stored) == 12 * CHAINS and stored == undisturbed
    one = dict([list(specs.items())[7]])
    assert undisturbed_hashes(one).items() <= stored.items()  # in a pack of its own, of whose rows one has a chain


@pytest.mark.long
def test_a_comparison_of_chains_of_several_kinds_gives_each_worker_one_of_them(
    runs: str,
) -> None:
    run = partial(rc.compare, task="digits", chains=2, repeats=1, epochs=40, task_settings={"train": 90, "hidden": [8]})
    kinds = ("sgld", "swag", "deep-ensemble", Stepping)
    with unpaged():
        result = run(sampler=kinds, lr={Stepping: 0.1}, pack="auto", store=runs, name="mixed")
    specs = result.comparison.chains()
    packs = {spec.sampler.kind: spec.pack for spec in specs.values()}
    assert packs == {"sgld": 2, "swag": 2, "adamw": 2, "tests.chain.test_pack:Stepping": 0}
    assert stored_hashes(runs, specs) == undisturbed_hashes(specs)


@pytest.mark.long
def test_a_chain_that_ends_its_process_whenever_it_begins_fails_alone(runs: str, tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    options = rc.Run(
        task="tests.orchestration.tasks:Doomed",
        task_settings=(f"folder={tmp_path / 'seeds'}",),
        sampler="sghmc", schedule="cyclical", chains=4, repeats=1, epochs=40, batch_size=20, lr=0.1, pack="4",
        max_failures=1, store=runs, name="doomed",
    )  # fmt: skip
    specs = plans.run(options).comparison.chains()
    *others, doomed = specs  # the first one is tried in this process
    (tmp_path / "seeds" / str(stream_seed(specs[doomed], "init"))).touch()
    with pytest.raises(ChainsFailed, match=rf"1 of 4 chains failed.*{doomed[:12]}"), unpaged():
        rc.run(options=options)
    (tmp_path / "seeds" / str(stream_seed(specs[doomed], "init"))).unlink()
    well = {digest: specs[digest] for digest in others}
    found = stored_hashes(runs, well)
    assert found == undisturbed_hashes(well) and len({digest for digest, *_ in found}) == 3
