"""The driver with real actors: queueing, sharing, fencing, evaluation meanwhile, and workers that fail or die."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from raychains.errors import RaychainsError
from raychains.orchestration.driver import Driver, Outcome, Placement
from raychains.planning import Comparison
from raychains.planning import listener as told
from raychains.store import ChainStore
from raychains.tasks.mixture import Mixture25
from tests.orchestration.tasks import Broken, Dying, Paced
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes

pytestmark = pytest.mark.usefixtures("ray_session")


def drive(plan: Comparison, folder: Path, diary: Diary | None = None, **placement: object) -> Outcome:
    return Driver(plan, root(folder), Placement(**placement), diary or Diary()).run()  # type: ignore[arg-type]


def test_more_chains_than_slots_queue_and_give_the_samples_of_undisturbed_chains(tmp_path: Path) -> None:
    plan = comparison(Mixture25(), chains=5, steps=600)
    diary = Diary()
    outcome = drive(plan, tmp_path, diary)
    assert not outcome.failed and not outcome.stopped
    assert diary.most_running <= 2
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())
    assert outcome.samples == 5 * 3  # 300 kept draws of each chain, 100 to a block


def test_workers_are_used_again(tmp_path: Path) -> None:
    plan = comparison(Mixture25(), chains=6, steps=200)
    drive(plan, tmp_path, evaluate=False)
    stores = [ChainStore(root(tmp_path), digest) for digest in plan.chains()]
    assert len({s.incarnation(1)["pid"] for s in stores}) <= 2


def test_arms_share_chains_and_every_view_is_the_counts_of_its_own_chains(tmp_path: Path) -> None:
    plan = comparison(Mixture25(), chains=3, steps=800, arms=(1, 3))
    diary = Diary()
    outcome = drive(plan, tmp_path, diary)
    assert len(list((tmp_path / "store" / "chains").iterdir())) == 3
    evaluation = Mixture25().splits()["target"]
    from raychains.store import codec

    for arm, n in enumerate((1, 3)):
        blocks = []
        for spec in plan.arms[arm].chains[0]:
            chain = ChainStore(root(tmp_path), spec.digest)
            blocks += [evaluation.predict(codec.decode(chain.read_sample(f))[0], 0) for f in chain.sample_files()]
        view = outcome.views[(arm, 0)]
        assert view.samples == len(blocks) == n * 4  # 400 kept draws of each chain, 100 to a block
        assert (view.rows["counts"] == sum(blocks)).all() and view.rows["counts"].sum() > 0
    told_of = {h.arm: h.chain_seconds for h in diary.of(told.ViewDone)}
    assert told_of == {a.name: a.seconds(0, outcome.seconds) for a in plan.arms}
    assert 0 < told_of["first-1"] < told_of["first-3"]


def test_a_second_run_reuses_finished_chains(tmp_path: Path) -> None:
    drive(comparison(Mixture25(), chains=2, steps=300), tmp_path, evaluate=False)
    outcome = drive(comparison(Mixture25(), chains=3, steps=300), tmp_path, evaluate=False)
    plan = comparison(Mixture25(), chains=3, steps=300)
    begun = [ChainStore(root(tmp_path), d).last_incarnation() for d in plan.chains()]
    assert begun == [1, 1, 1] and outcome.samples == 3 * 2  # ceil(150 kept draws / 100)
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())


def test_a_users_mistake_stops_its_chains_with_their_traceback_and_no_other(tmp_path: Path) -> None:
    task = Broken()
    plan = comparison(task, chains=6, steps=200)
    bad = {d for d, s in plan.chains().items() if _starts_negative(task, s)}
    assert 0 < len(bad) < 6
    diary = Diary()
    outcome = drive(plan, tmp_path, diary)
    assert set(outcome.failed) == bad
    assert all("ZeroDivisionError: the user's own mistake" in r and "backward" in r for r in outcome.failed.values())
    assert {h.digest for h in diary.of(told.ChainFailed)} == bad
    good = [d for d in plan.chains() if d not in bad]
    assert all(ChainStore(root(tmp_path), d).finished(1) for d in good)
    assert not outcome.views  # the one arm lacks chains


def _starts_negative(task: Broken, spec: object) -> bool:
    from raychains.chain import Chain

    return bool(Chain(spec, task).model.theta[0, 0] < 0)  # type: ignore[arg-type]


def test_a_killed_workers_chain_goes_on_elsewhere_with_the_same_bytes(tmp_path: Path) -> None:
    task = Dying(str(tmp_path / "died"), at=500)
    plan = comparison(task, chains=2, steps=1000, block=50)
    diary = Diary()
    outcome = drive(plan, tmp_path, diary, checkpoint_every=0.02, evaluate=False)
    assert (tmp_path / "died").exists() and len(diary.of(told.SlotGone)) == 1
    assert not outcome.failed
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, task)
    begun = sorted(ChainStore(root(tmp_path), d).last_incarnation() for d in plan.chains())
    assert begun == [1, 2]


@pytest.mark.parametrize(("sampler", "settings"), [("emcmc", {"eta": 0.5}), ("bsam", {"prediction_samples": 2})])
def test_several_samples_a_keep_come_once_each_although_a_worker_dies(
    sampler: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    task = Dying(str(tmp_path / "died"), at=300)
    plan = comparison(task, chains=2, steps=600, block=30, sampler=sampler, **settings)
    outcome = drive(plan, tmp_path, checkpoint_every=0.02)
    expected = undisturbed_hashes(plan, task)
    assert (tmp_path / "died").exists() and not outcome.failed
    assert stored_hashes(root(tmp_path), plan) == expected
    assert outcome.samples == len(expected) == 2 * 10 * (2 if sampler == "emcmc" else 1)
    assert outcome.views[(0, 0)].samples == 2 * 10  # of θ alone: the target is θ's


def test_ctrl_c_writes_checkpoints_and_a_second_run_continues_from_them(tmp_path: Path) -> None:
    task = Paced(pause=0.002)
    plan = comparison(task, chains=3, steps=1500, block=50)
    stopper = threading.Thread(target=_interrupt_when, args=(tmp_path / "store" / "chains",))
    stopper.start()
    outcome = drive(plan, tmp_path)
    stopper.join()
    assert outcome.stopped and not outcome.views
    stores = {d: ChainStore(root(tmp_path), d) for d in plan.chains()}
    stopped = {d: s.newest_checkpoint()["chain"]["step"] for d, s in stores.items() if s.newest_checkpoint()}  # type: ignore[index]
    assert stopped and all(0 < step < 1500 for step in stopped.values())
    again = drive(plan, tmp_path)
    assert not again.stopped and len(again.views) == 1
    for digest, step in stopped.items():
        assert stores[digest].incarnation(2)["from_step"] == step
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, _without_pause(task))
    assert again.samples == 3 * 15  # 750 kept draws of each chain, 50 to a block


def _without_pause(task: Paced) -> Paced:
    """The same task without its pause: the pause changes no sample."""
    quick = Paced(task.pause)
    quick.pause = 0.0
    return quick


def _interrupt_when(chains: Path) -> None:
    """Press Ctrl-C once two chains have stored samples."""
    deadline = time.monotonic() + 60
    while len(list(chains.glob("*/samples/*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def test_evaluation_works_while_chains_still_run(tmp_path: Path) -> None:
    plan = comparison(Paced(pause=0.002), chains=2, steps=2500, block=50)
    outcome = drive(plan, tmp_path)
    assert outcome.evaluated_while_sampling is not None and outcome.evaluated_while_sampling > 0.5


def test_workers_that_never_come_up_end_the_run_with_their_reason(tmp_path: Path) -> None:
    plan = comparison(Mixture25(), chains=1, steps=100)
    driver = Driver(plan, root(tmp_path), Placement(max_failures=1, evaluate=False), Diary())
    driver._workers.store = "carrier-pigeon://nowhere"  # every worker fails as it starts
    with pytest.raises(RaychainsError, match=r"2 workers in a row died before they were up.*"):
        driver.run()
