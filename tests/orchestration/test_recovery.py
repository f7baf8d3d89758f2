"""Runs whose chains diverge, whose devices fail, whose storage is away or full: what becomes of each, with real actors."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raychains.chain import Chain
from raychains.errors import StorageFull
from raychains.orchestration.driver import Driver, Outcome, Placement
from raychains.planning import Comparison
from raychains.planning import listener as told
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore
from raychains.tasks.mixture import Mixture25
from tests.orchestration.tasks import Cliff, Starved, Troubled
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes

pytestmark = pytest.mark.usefixtures("ray_session")

LIMIT = 3.05
"""Of four chains the fourth passes it, in its second cycle."""


def drive(plan: Comparison, folder: Path, diary: Diary | None = None, **placement: object) -> Outcome:
    return Driver(plan, root(folder), Placement(**placement), diary or Diary()).run()  # type: ignore[arg-type]


def cliffs(limit: float = LIMIT, chains: int = 4, arms: tuple[int, ...] = (2, 4)) -> tuple[Comparison, str]:
    """Arms of two and of four chains, and the chain that passes the limit."""
    plan = comparison(Cliff(limit), chains=chains, steps=1200, block=50, arms=arms)
    return plan, list(plan.chains())[min(3, chains - 1)]


def test_a_diverged_chain_costs_its_arm_and_no_other(tmp_path: Path) -> None:
    plan, bad = cliffs()
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, checkpoint_every=0.1)
    assert list(outcome.failed) == [bad] and list(outcome.views) == [(0, 0)]
    [failed] = diary.of(told.ChainFailed)
    [diagnosis] = ChainStore(root(tmp_path), bad).diagnoses()
    assert outcome.failed[bad] == failed.reason and "\n" not in failed.reason
    assert f"at step {diagnosis['step']} of 1200" in failed.reason and "gradient of theta" in failed.reason
    good = undisturbed_hashes(comparison_without(plan, bad), Cliff(LIMIT))
    assert {k: v for k, v in stored_hashes(root(tmp_path), plan).items() if k[0] != bad} == good


def comparison_without(plan: Comparison, digest: str) -> Comparison:
    arm = plan.arms[-1]
    return replace(plan, arms=(replace(arm, chains=(tuple(s for s in arm.chains[0] if s.digest != digest),)),))


def test_a_dropped_chains_arm_is_evaluated_from_the_others(tmp_path: Path) -> None:
    plan, bad = cliffs()
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, on_divergence="drop-chain")
    assert list(outcome.failed) == [bad] and set(outcome.views) == {(0, 0), (1, 0)}
    assert [h.digest for h in diary.of(told.ChainDropped)] == [bad] and not diary.of(told.ChainFailed)
    assert (outcome.views[(0, 0)].chains, outcome.views[(1, 0)].chains) == (2, 3)
    assert outcome.views[(1, 0)].samples == 3 * 12
    assert (outcome.views[(1, 0)].rows["counts"] == counts(blocks(plan, without=bad))).all()


def blocks(plan: Comparison, without: str) -> list[Mapping[str, Any]]:
    """All samples' tensors of a plan's chains but one."""
    chains = (Chain(spec) for digest, spec in plan.chains().items() if digest != without)
    return [event.tensors for chain in chains for event in chain if isinstance(event, Sample)]


def counts(blocks: list[Mapping[str, Any]]) -> Any:
    """What a view of these samples counts."""
    evaluation = Mixture25().splits()["target"]
    return sum(evaluation.predict(block, 0) for block in blocks)


def test_fresh_noise_cures_a_divergence_and_the_result_is_of_the_new_path(tmp_path: Path) -> None:
    plan, bad = cliffs()
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, on_divergence="restart-cycle")
    assert not outcome.failed and set(outcome.views) == {(0, 0), (1, 0)}
    assert [(h.digest, h.attempt) for h in diary.of(told.ChainRestarted)] == [(bad, 1)]
    expected = undisturbed_hashes(comparison_without(plan, bad), Cliff(LIMIT))
    chain = Chain(plan.chains()[bad])
    new = []
    while not chain.done:
        for event in chain.advance(lambda: chain.step == 600 and chain.noise_attempt == 0):
            if isinstance(event, Sample):
                expected[(bad, "theta", event.meta.index)] = tensors_sha256(event.tensors)
                new.append(event.tensors)
        if chain.step == 600:
            chain.restart_noise(1)
    assert stored_hashes(root(tmp_path), plan) == expected and len(new) == 12
    assert (outcome.views[(1, 0)].rows["counts"] == counts(new + blocks(plan, without=bad))).all()


def test_a_divergence_that_no_noise_cures_ends_after_as_many_restarts_as_allowed(tmp_path: Path) -> None:
    plan, bad = cliffs(0.5, chains=1, arms=(1,))
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, on_divergence="restart-cycle", max_failures=2)
    assert [h.attempt for h in diary.of(told.ChainRestarted)] == [1, 2] and not outcome.views
    assert outcome.failed[bad].endswith("(restarted 2 times with fresh noise)")
    diagnoses = ChainStore(root(tmp_path), bad).diagnoses()
    assert len(diagnoses) == 3 and len({d["parameter_scale"] for d in diagnoses}) == 3, "each under other noise"


def test_a_device_without_memory_ends_the_worker_and_the_chain_is_tried_in_another(tmp_path: Path) -> None:
    task = Starved(str(tmp_path))
    plan = comparison(task, chains=4, steps=300)
    hopeless = {d for d, s in plan.chains().items() if float(Chain(s, task).model.theta.detach()[0, 0]) < 0}  # type: ignore[union-attr,index,arg-type]
    assert 0 < len(hopeless) < 4
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, max_failures=1)
    assert set(outcome.failed) == hopeless
    for reason in outcome.failed.values():
        assert "torch.OutOfMemoryError: CUDA out of memory" in reason and "Traceback" in reason
        assert reason.endswith("(2 losses in a row without progress)")
    assert len(diary.of(told.SlotGone)) == 2 * len(hopeless) + 4 - len(hopeless)
    lost = [(d, n) for d in plan.chains() for n in (1, 2) if n == 1 or d in hopeless]
    pids = [ChainStore(root(tmp_path), d).incarnation(n)["pid"] for d, n in lost]
    assert len(set(pids)) == len(pids), "a broken process ran a chain again"
    cured = {k: v for k, v in undisturbed_hashes(plan, Mixture25()).items() if k[0] not in hopeless}
    assert {k: v for k, v in stored_hashes(root(tmp_path), plan).items() if k[0] not in hopeless} == cured


# Storage


def when(holds: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Do something in another thread once a condition holds."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not holds() and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_full_storage_stops_the_run_in_one_line_and_it_goes_on_later_with_the_same_bytes(tmp_path: Path) -> None:
    trouble = tmp_path / "trouble"
    plan = comparison(Troubled(str(trouble), pause=0.002), chains=3, steps=1000, block=50)
    samples = tmp_path / "store" / "chains"
    filling = when(lambda: len(list(samples.glob("*/samples/*.safetensors"))) > 5, lambda: write(trouble, errno.ENOSPC))
    diary = Diary()
    with pytest.raises(StorageFull) as full:
        drive(plan, tmp_path, diary, checkpoint_every=0.2)
    filling.join()
    assert "\n" not in str(full.value) and "--resume" in str(full.value)
    [stopping] = diary.of(told.Stopping)
    assert "no room" in stopping.reason
    expected = undisturbed_hashes(plan, Mixture25())
    kept = stored_hashes(root(tmp_path), plan)
    assert 5 < len(kept) < len(expected) and kept.items() <= expected.items()
    trouble.unlink()
    outcome = drive(plan, tmp_path)
    assert stored_hashes(root(tmp_path), plan) == expected and outcome.views[(0, 0)].samples == len(expected)
    assert max(ChainStore(root(tmp_path), d).incarnation(2)["from_step"] for d in list(plan.chains())[:2]) > 0


def write(trouble: Path, number: int) -> None:
    """Let disks answer with an error, at once and not with half of its number."""
    draft = trouble.with_suffix(".draft")
    draft.write_text(str(number))
    draft.rename(trouble)


def test_an_outage_is_told_once_and_passed_over_and_so_is_a_torn_checkpoint(tmp_path: Path) -> None:
    trouble, diary = tmp_path / "trouble", Diary()
    plan = comparison(Troubled(str(trouble), pause=0.001), chains=2, steps=1000, block=50)
    [first, _] = plan.chains().items()
    torn = torn_checkpoint(tmp_path, *first)
    samples = tmp_path / "store" / "chains"
    when(lambda: len(list(samples.glob("*/samples/*.safetensors"))) > 8, lambda: write(trouble, errno.EIO))
    back = when(lambda: diary.of(told.Waiting), trouble.unlink)
    outcome = drive(plan, tmp_path, diary, checkpoint_every=0.2)
    back.join()
    [waiting], [_] = diary.of(told.Waiting), diary.of(told.GoesOn)
    assert "Input/output error" in waiting.reason and "\n" not in waiting.reason
    assert [(h.digest, h.file) for h in diary.of(told.TornCheckpoint)] == [(first[0], str(torn))]
    assert not outcome.failed and not diary.of(told.SlotGone)
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())


def torn_checkpoint(folder: Path, digest: str, spec: object) -> Path:
    """Two checkpoints of a chain in the store, the newer one cut short."""
    store, chain = ChainStore(root(folder), digest), Chain(spec, Mixture25())  # type: ignore[arg-type]
    store.begin(chain.spec, 1, {"from_step": 0})
    for step in (100, 200):
        while chain.step < step:
            for event in chain.advance(lambda step=step: chain.step >= step):  # type: ignore[misc]
                if isinstance(event, Sample):
                    store.publish_sample(event, 1, {})
        store.publish_checkpoint({"chain": chain.state_dict(), "seconds": 1.0}, step, 1)
    newest = max((folder / "store" / "chains" / digest / "checkpoints").glob("*"))
    newest.write_bytes(newest.read_bytes()[:-50])
    return newest
