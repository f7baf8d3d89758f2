"""Two processes that both believe to be a chain's only worker, at the same moment: no wrong sample comes of it."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import pytest

from raychains.chain.sample_index import expected_samples
from raychains.coordination.coordinator import Ended
from raychains.orchestration.chains.chain_worker import ChainWorker, PackWorker
from raychains.orchestration.chains.messages import ChainAssignment, ChainWorkerConfig
from raychains.orchestration.cluster.thread_workers import Actor
from raychains.orchestration.cluster.workers import ActorOptions
from raychains.store import ChainStore, codec
from raychains.tasks.mixture import Mixture25
from tests.concurrency import alone
from tests.orchestration.worlds import comparison, root, stored_hashes, undisturbed_hashes
from tests.processes import SECONDS, sessions


def test_two_workers_of_one_chain_leave_its_samples_whatever_their_attempt_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a listing that came late: with one number for both, and with the second's above the first's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the worker sets it in its process, of which one is this one
    plan = comparison(Mixture25(), chains=3, steps=1_500, block=100)
    specs = list(plan.chains().values())
    numbers = {"a": (1, 1, 2), "b": (1, 2, 1)}
    for name, own in numbers.items():
        orders = tmp_path / f"{name}.json"
        orders.write_text(json.dumps([[s.to_json(), n] for s, n in zip(specs, own, strict=True)]))
    mine, its = ([root(tmp_path).uri, str(tmp_path / f"{name}.json"), str(tmp_path), name] for name in numbers)
    with sessions() as start:
        process = start(sys.executable, "-m", "tests.concurrency.alone", *its)
        here = alone.run(*mine)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        other = json.loads(out.splitlines()[-1])

    expected = undisturbed_hashes(plan, Mixture25())
    for c, spec in enumerate(specs):
        store = ChainStore(root(tmp_path), spec.digest)
        hashes = [h for (digest, _, _), h in expected.items() if digest == spec.digest]
        for outcomes, own in zip((here, other), numbers.values(), strict=True):
            outcome, handed_out, reason = outcomes[c]
            assert outcome in ("finished", "suspended"), reason
            assert set(handed_out) <= set(hashes)  # which of the two started from a checkpoint is open
            if own[c] == store.last_attempt():
                assert outcome == "finished"
        assert store.finished(expected_samples(spec))
        assert all(codec.decode(store.read_sample(r.file)) for r in store.records())
    assert stored_hashes(root(tmp_path), plan) == expected


def test_an_attempt_with_a_successor_that_is_not_through_does_not_pass_for_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the worker sets it in its process, which this one is here
    plan = comparison(Mixture25(), chains=1, steps=600)
    (spec,) = plan.chains().values()
    store = ChainStore(root(tmp_path), spec.digest)
    store.begin(spec, 2, {"driver_id": "other", "from_step": 0})
    worker = ChainWorker(ChainWorkerConfig(store=root(tmp_path).uri))
    for number, outcome in ((1, "suspended"), (3, "finished")):
        worker.start(ChainAssignment(spec=spec.to_json(), attempt=number, about={"driver_id": "mine"}))
        event: object = None
        while not isinstance(event, Ended):
            event, _ = worker.next(spec.digest, number)
        assert event.outcome == outcome, event
        assert store.finished(expected_samples(spec)) is (outcome == "finished")
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())


class Slow:
    """An attempt that has ended, as is found slowly by the first that asks."""

    def __init__(self) -> None:
        self.asked, self.known = threading.Event(), threading.Event()

    @property
    def taken(self) -> bool:
        if not self.asked.is_set():
            self.asked.set()
            self.known.wait(SECONDS)
        return True


def test_chains_that_two_slots_of_a_pack_start_at_once_are_both_there(tmp_path: Path) -> None:
    """One that is missing is begun elsewhere, while its first attempt waits, and with it the pack, for who takes its
    samples."""
    plan = comparison(Mixture25(), chains=2, steps=400, block=100)
    specs = [replace(spec, pack=2) for spec in plan.chains().values()]
    actor = Actor(
        PackWorker, ActorOptions(name="pack"), [ChainWorkerConfig(store=root(tmp_path).uri, own_process=False)]
    )
    worker, slow = actor.made.result(SECONDS), Slow()
    worker._attempts = {"an earlier one": slow}
    first, second = (
        actor.submit("start", [ChainAssignment(spec=s.to_json(), attempt=1, about={})], "control") for s in specs
    )
    assert slow.asked.wait(SECONDS)
    wait([second], timeout=0.5)
    slow.known.set()
    assert first.result(SECONDS) is second.result(SECONDS) is None
    assert set(worker._attempts) == {spec.digest for spec in specs}
    for spec in specs:
        event: object = None
        while not isinstance(event, Ended):
            event, _ = worker.next(spec.digest, 1)
        assert event.outcome == "finished", event.reason
