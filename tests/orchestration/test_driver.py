"""The driver: queueing, sharing, evaluation meanwhile, workers that fail, chains that diverge, storage that is away or
full."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from raychains.chain.chain import Chain
from raychains.coordination import coordinator
from raychains.core.errors import RaychainsError, StorageRefused
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains.chain_worker import ChainWorker
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run import resource_wait
from raychains.orchestration.run.launch import driver_of, run_chains
from raychains.orchestration.run.outcome import DriverOutcome
from raychains.planning import Comparison, events
from raychains.store import ChainStore
from raychains.tasks.mixture import Mixture25
from tests.orchestration.tasks import Broken, Cliff, Slowing, Starved, Troubled, Waiting
from tests.orchestration.threads import ThreadWorkers
from tests.orchestration.worlds import Diary, Hashes, arm_of, comparison, root, stored_hashes, undisturbed_hashes
from tests.processes import SECONDS, until


def drive(
    plan: Comparison, folder: Path, diary: Diary | None = None, workers: ThreadWorkers | None = None, **resources: Any
) -> DriverOutcome:
    """A run on threads, or on Ray without them."""
    store = root(folder)
    return run_chains(plan, store, ResourceConfig(**resources), diary or Diary(), lease=Lease(store), workers=workers)


def test_more_chains_than_slots_queue_and_give_the_samples_of_undisturbed_chains(
    tmp_path: Path, threads: ThreadWorkers
) -> None:
    plan = comparison(Mixture25(), chains=4, steps=400)
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, threads)
    assert not outcome.failed and not outcome.stopped
    assert diary.most_running <= 2 >= threads.started(ChainWorker), "workers are used again"
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())
    assert outcome.samples == 4 * 2  # 200 kept draws of each chain, 100 to a block


def test_answers_that_come_out_of_order_lose_no_sample(
    tmp_path: Path, threads: ThreadWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several are ready whenever the driver looks, and it is given any one of them."""
    prompt = threads.wait
    monkeypatch.setattr(threads, "wait", lambda calls, timeout: time.sleep(0.02) or prompt(calls, timeout))
    plan = comparison(Mixture25(), chains=1, steps=600, block=20)
    outcome = drive(plan, tmp_path, None, threads)
    assert outcome.samples == outcome.views[(0, 0)].samples == 15
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())


def test_any_number_of_claims_may_be_refused_in_a_row(
    tmp_path: Path, threads: ThreadWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the storage is away, or another driver has finished them all."""
    plan, folder = comparison(Mixture25(), chains=1500, steps=4), root(tmp_path)
    driver = driver_of(plan, folder, ResourceConfig(), Diary(), lease=Lease(folder), workers=threads)
    refused: list[str] = []
    monkeypatch.setattr(driver.sampling._peers, "claim", lambda digest, about: refused.append(digest))
    driver.sampling.handle(coordinator.SlotReady(0))
    assert refused == list(plan.chains())


def test_samples_that_nobody_evaluates_are_not_kept_in_memory(tmp_path: Path, threads: ThreadWorkers) -> None:
    plan = comparison(Mixture25(), chains=2, steps=200)
    folder = root(tmp_path)
    driver = driver_of(plan, folder, ResourceConfig(evaluate=False), Diary(), lease=Lease(folder), workers=threads)
    assert driver.run().samples > 0
    assert all(pooled.ref is None for pooled in driver.sampling._pool.select())


def test_arms_share_chains_and_every_view_is_the_counts_of_its_own_chains(
    tmp_path: Path, threads: ThreadWorkers
) -> None:
    plan = comparison(Mixture25(), chains=3, steps=800, arms=(1, 3))
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, threads)
    assert len(list((tmp_path / "store" / "chains").iterdir())) == 3
    evaluation = Mixture25().splits()["target"]
    from raychains.store import codec

    for arm, n in enumerate((1, 3)):
        blocks = []
        for spec in plan.arms[arm].chains[0]:
            chain = ChainStore(root(tmp_path), spec.digest)
            blocks += [evaluation.predict(codec.decode(chain.read_sample(r.file))[0], 0) for r in chain.records()]
        view = outcome.views[(arm, 0)]
        assert view.samples == len(blocks) == n * 4  # 400 kept draws of each chain, 100 to a block
        assert (view.rows["counts"] == sum(blocks)).all() and view.rows["counts"].sum() > 0
    told_of = {h.arm: h.chain_seconds for h in diary.of(events.ViewDone)}
    assert told_of == {a.name: a.per_repeat(0, outcome.seconds) for a in plan.arms}
    assert 0 < told_of["first-1"] < told_of["first-3"]


def test_a_second_run_reuses_finished_chains(tmp_path: Path, threads: ThreadWorkers) -> None:
    drive(comparison(Mixture25(), chains=2, steps=300), tmp_path, None, threads, evaluate=False)
    outcome = drive(comparison(Mixture25(), chains=3, steps=300), tmp_path, None, threads, evaluate=False)
    plan = comparison(Mixture25(), chains=3, steps=300)
    begun = [ChainStore(root(tmp_path), d).last_attempt() for d in plan.chains()]
    assert begun == [1, 1, 1] and outcome.samples == 3 * 2  # ceil(150 kept draws / 100)
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())


def test_a_users_mistake_stops_its_chains_with_their_traceback_and_no_other(
    tmp_path: Path, threads: ThreadWorkers
) -> None:
    task = Broken()
    plan = comparison(task, chains=6, steps=200)
    bad = {d for d, s in plan.chains().items() if _first_coordinate(task, s) < 0}
    assert 0 < len(bad) < 6
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, threads)
    assert set(outcome.failed) == bad
    assert all("ZeroDivisionError: the user's own mistake" in r and "backward" in r for r in outcome.failed.values())
    assert {h.digest for h in diary.of(events.ChainFailed)} == bad
    good = [d for d in plan.chains() if d not in bad]
    assert all(ChainStore(root(tmp_path), d).finished(1) for d in good)
    assert not outcome.views  # the one arm lacks chains


def _first_coordinate(task: Mixture25, spec: ChainSpec) -> float:
    """Where a chain starts."""
    return float(Chain(spec, task).model.theta.detach()[0, 0])  # type: ignore[union-attr,index]


def test_ctrl_c_writes_checkpoints_and_a_second_run_continues_from_them(tmp_path: Path, threads: ThreadWorkers) -> None:
    plan = comparison(Slowing(str(tmp_path / "go"), at=350), chains=3, steps=800, block=50)
    samples = partial((tmp_path / "store" / "chains").glob, "*/samples/*")
    stopper = when(
        lambda: len({sample.parents[1] for sample in samples()}) == 2, lambda: os.kill(os.getpid(), signal.SIGINT)
    )
    outcome = drive(plan, tmp_path, None, threads)
    stopper.join()
    assert outcome.stopped and not outcome.views
    stores = {d: ChainStore(root(tmp_path), d) for d in plan.chains()}
    stopped = {d: s.newest_checkpoint()["chain"]["step"] for d, s in stores.items() if s.newest_checkpoint()}
    assert len(stopped) == 2 and all(0 < step < 800 for step in stopped.values())
    (tmp_path / "go").touch()
    again = drive(plan, tmp_path, None, threads)
    assert not again.stopped and len(again.views) == 1
    for digest, step in stopped.items():
        assert stores[digest].attempt(2)["from_step"] == step
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())
    assert again.samples == 3 * 8  # 400 kept draws of each chain, 50 to a block


class LettingGo(Diary):
    """Lets waiting chains go on once so many samples were evaluated."""

    def __init__(self, go: Path, evaluated: int) -> None:
        super().__init__()
        self._go, self._evaluated = go, evaluated

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.Tick) and event.evaluated >= self._evaluated:
            self._go.touch()


def test_evaluation_works_while_chains_still_run(tmp_path: Path, threads: ThreadWorkers) -> None:
    plan = comparison(Waiting(str(tmp_path / "go"), at=1000), chains=2, steps=1250, block=25)
    # The chain that waits keeps the other from stepping: it has drawn 15 by then, the other perhaps none, of 50 in all.
    outcome = drive(plan, tmp_path, LettingGo(tmp_path / "go", 14), threads)
    assert outcome.evaluated_while_sampling is not None and outcome.evaluated_while_sampling > 0.25


def test_workers_that_never_come_up_end_the_run_with_their_reason(tmp_path: Path, threads: ThreadWorkers) -> None:
    plan = comparison(Mixture25(), chains=1, steps=100)
    resources = ResourceConfig(max_failures=1, evaluate=False)
    folder = root(tmp_path)
    driver = driver_of(plan, folder, resources, Diary(), lease=Lease(folder), workers=threads)
    workers = driver.sampling.workers
    workers.config = replace(workers.config, store="carrier-pigeon://nowhere")  # every worker fails as it starts
    with pytest.raises(RaychainsError, match=r"2 workers in a row died before they were up.*"):
        driver.run()


# Divergence, devices and storage


LIMIT = 3.05
"""Of the chains of `cliffs` the last one passes it, in its second cycle."""


def cliffs(limit: float = LIMIT) -> tuple[Comparison, str]:
    """Arms of one and of three chains, and the chain that passes the limit."""
    first, second, _, bad = comparison(Cliff(limit), chains=4, steps=1200, block=50).chains().values()
    plan = comparison(Cliff(limit), chains=1)
    return replace(plan, arms=(arm_of("one", first), arm_of("three", first, second, bad))), bad.digest


@cache
def good() -> tuple[Sample, ...]:
    """The samples of the chains that do not pass it."""
    plan, bad = cliffs()
    specs = [spec for digest, spec in plan.chains().items() if digest != bad]
    return tuple(event for spec in specs for event in Chain(spec) if isinstance(event, Sample))


def hashes(samples: Iterable[Sample]) -> Hashes:
    return {(s.meta.digest, s.meta.variable, s.meta.index): tensors_sha256(s.tensors) for s in samples}


def counts(samples: Iterable[Sample]) -> Any:
    evaluation = Mixture25().splits()["target"]
    return sum(evaluation.predict(sample.tensors, 0) for sample in samples)


def test_a_diverged_chain_costs_its_arm_and_no_other(tmp_path: Path, threads: ThreadWorkers) -> None:
    plan, bad = cliffs()
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, threads, checkpoint_every=0.1)
    assert list(outcome.failed) == [bad] and list(outcome.views) == [(0, 0)]
    [failed] = diary.of(events.ChainFailed)
    [diagnosis] = ChainStore(root(tmp_path), bad).diagnoses()
    assert outcome.failed[bad] == failed.reason and "\n" not in failed.reason
    assert f"at step {diagnosis['step']} of 1200" in failed.reason and "gradient of theta" in failed.reason
    assert {k: v for k, v in stored_hashes(root(tmp_path), plan).items() if k[0] != bad} == hashes(good())


def comparison_without(plan: Comparison, digest: str) -> Comparison:
    arm = plan.arms[-1]
    return replace(plan, arms=(replace(arm, chains=(tuple(s for s in arm.chains[0] if s.digest != digest),)),))


def test_a_dropped_chains_arm_is_evaluated_from_the_others(tmp_path: Path, threads: ThreadWorkers) -> None:
    plan, bad = cliffs()
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, threads, on_divergence="drop-chain")
    assert list(outcome.failed) == [bad] and set(outcome.views) == {(0, 0), (1, 0)}
    assert [h.digest for h in diary.of(events.ChainDropped)] == [bad] and not diary.of(events.ChainFailed)
    assert (outcome.views[(0, 0)].chains, outcome.views[(1, 0)].chains) == (1, 2)
    assert outcome.views[(1, 0)].samples == 2 * 12
    assert (outcome.views[(1, 0)].rows["counts"] == counts(good())).all()


def test_fresh_noise_cures_a_divergence_and_the_result_is_of_the_new_path(
    tmp_path: Path, threads: ThreadWorkers
) -> None:
    plan, bad = cliffs()
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, threads, on_divergence="restart-cycle")
    assert not outcome.failed and set(outcome.views) == {(0, 0), (1, 0)}
    assert [(h.digest, h.attempt) for h in diary.of(events.ChainRestarted)] == [(bad, 1)]
    chain = Chain(plan.chains()[bad])
    new: list[Sample] = []
    while not chain.done:
        found = chain.advance(lambda: chain.step == 600 and chain.noise_attempt == 0)
        new += [event for event in found if isinstance(event, Sample)]
        if chain.step == 600:
            chain.restart_noise(1)
    assert stored_hashes(root(tmp_path), plan) == hashes([*good(), *new]) and len(new) == 12
    assert (outcome.views[(1, 0)].rows["counts"] == counts([*good(), *new])).all()


def test_a_divergence_that_no_noise_cures_ends_after_as_many_restarts_as_allowed(
    tmp_path: Path, threads: ThreadWorkers
) -> None:
    plan = comparison(Cliff(0.5), chains=1, steps=1200, block=50)
    [bad] = plan.chains()
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, threads, on_divergence="restart-cycle", max_failures=2)
    assert [h.attempt for h in diary.of(events.ChainRestarted)] == [1, 2] and not outcome.views
    assert outcome.failed[bad].endswith("(restarted 2 times with fresh noise)")
    diagnoses = ChainStore(root(tmp_path), bad).diagnoses()
    assert len(diagnoses) == 3 and len({d["parameter_scale"] for d in diagnoses}) == 3, "each under other noise"


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_a_device_without_memory_ends_the_worker_and_the_chain_is_tried_in_another(tmp_path: Path) -> None:
    task = Starved(str(tmp_path))
    plan = comparison(task, chains=3, steps=300)
    plan = comparison_without(
        plan, min(plan.chains(), key=lambda digest: _first_coordinate(task, plan.chains()[digest]))
    )
    hopeless, cured = sorted(plan.chains(), key=lambda digest: _first_coordinate(task, plan.chains()[digest]))
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, max_failures=1, evaluate=False)
    [(failed, reason)] = outcome.failed.items()
    assert failed == hopeless
    assert "torch.OutOfMemoryError: CUDA out of memory" in reason and "Traceback" in reason
    assert reason.endswith("(2 losses in a row without progress)")
    assert sorted(h.digest for h in diary.of(events.WorkerLost)) == sorted([hopeless, hopeless, cured])
    pids = [ChainStore(root(tmp_path), d).attempt(n)["pid"] for d in (hopeless, cured) for n in (1, 2)]
    assert len(set(pids)) == 4, "a broken process ran a chain again"
    alone = undisturbed_hashes(comparison_without(plan, hopeless), Mixture25())
    assert {k: v for k, v in stored_hashes(root(tmp_path), plan).items() if k[0] == cured} == alone


# Storage


@pytest.fixture(params=["threads", pytest.param("ray", marks=pytest.mark.long)])
def workers(request: pytest.FixtureRequest) -> ThreadWorkers | None:
    """Workers in this process, or on Ray."""
    if request.param == "threads":
        return request.getfixturevalue("threads")  # type: ignore[no-any-return]
    request.getfixturevalue("ray_session")
    return None


def when(holds: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Do something in another thread once a condition holds."""

    def wait() -> None:
        until(holds, "what is to happen before")
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_full_storage_stops_the_run_in_one_line_and_it_goes_on_later_with_the_same_bytes(
    tmp_path: Path, workers: ThreadWorkers | None
) -> None:
    trouble = tmp_path / "trouble"
    task = Troubled(str(trouble), str(tmp_path / "go"), at=700, pause=0.002)
    plan = comparison(task, chains=3, steps=1000, block=50)
    samples = tmp_path / "store" / "chains"
    filling = when(lambda: len(list(samples.glob("*/samples/*.safetensors"))) > 5, lambda: write(trouble, errno.ENOSPC))
    diary = Diary()
    with pytest.raises(StorageRefused) as full:
        drive(plan, tmp_path, diary, workers, checkpoint_every=0.2, evaluate=False)
    filling.join()
    assert "\n" not in str(full.value) and "`resume=True`" in str(full.value)
    [stopping] = diary.of(events.Stopping)
    assert "no more files" in stopping.reason
    expected = undisturbed_hashes(plan, Mixture25())
    kept = stored_hashes(root(tmp_path), plan)
    assert 5 < len(kept) < len(expected) and kept.items() <= expected.items()
    trouble.unlink()
    outcome = drive(plan, tmp_path, None, workers)
    assert stored_hashes(root(tmp_path), plan) == expected and outcome.views[(0, 0)].samples == len(expected)
    assert max(ChainStore(root(tmp_path), d).attempt(2)["from_step"] for d in list(plan.chains())[:2]) > 0


def write(trouble: Path, number: int) -> None:
    """Let disks answer with an error, at once and not with half of its number, and then chains go on."""
    draft = trouble.with_suffix(".draft")
    draft.write_text(str(number))
    draft.rename(trouble)
    trouble.with_name("go").touch()


def test_an_outage_is_told_once_and_passed_over_and_so_is_a_torn_checkpoint(
    tmp_path: Path, workers: ThreadWorkers | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_wait, "HELD_AFTER", SECONDS)  # workers that are slow to come up are not what is told
    trouble, diary = tmp_path / "trouble", Diary()
    task = Troubled(str(trouble), str(tmp_path / "go"), at=700, pause=0.001)
    plan = comparison(task, chains=2, steps=1000, block=50)
    [first, _] = plan.chains().items()
    torn = torn_checkpoint(tmp_path, *first)
    samples = tmp_path / "store" / "chains"
    when(lambda: len(list(samples.glob("*/samples/*.safetensors"))) > 8, lambda: write(trouble, errno.EIO))
    back = when(lambda: diary.of(events.Waiting), trouble.unlink)
    outcome = drive(plan, tmp_path, diary, workers, checkpoint_every=0.2, evaluate=False)
    back.join()
    [waiting], [_] = diary.of(events.Waiting), diary.of(events.Resumed)
    assert "Input/output error" in waiting.reason and "\n" not in waiting.reason
    assert [(h.digest, h.file) for h in diary.of(events.TornCheckpoint)] == [(first[0], str(torn))]
    assert not outcome.failed and not diary.of(events.WorkerLost)
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
