"""Chains that other drivers run: the coordinator's part, and the looks at a real store. Many drivers over one store:
tests/simulation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raychains.chain.chain import Chain
from raychains.chain.sample_index import expected_samples
from raychains.coordination import coordinator as c
from raychains.core.errors import StorageAway
from raychains.core.sample import Sample
from raychains.orchestration import lease
from raychains.orchestration.lease import Lease, PeerDrivers
from raychains.orchestration.run.chain_dispatch import ChainDispatch
from raychains.store import ChainStore
from raychains.tasks.mixture import Mixture25
from tests.orchestration.worlds import comparison, root


def refusing(*digests: str, slots: int = 1) -> c.Coordinator:
    """A coordinator whose chains all turned out to be another driver's."""
    coordinator = c.Coordinator(digests)
    for slot in range(slots):
        actions = coordinator.handle(c.SlotReady(slot))
        while isinstance(actions[0], c.Claim):
            actions = coordinator.handle(c.Refused(slot, actions[0].digest))
        assert actions == [c.Release(slot)]
    return coordinator


def started(coordinator: c.Coordinator, slot: int, digest: str, attempt: int) -> None:
    """Have a chain start on a slot, under the attempt that a store gives it."""
    assert coordinator.handle(c.SlotReady(slot)) == [c.Claim(slot, digest)]
    assert coordinator.handle(c.Claimed(slot, digest, attempt)) == [c.Start(slot, digest, attempt)]


def test_a_refused_claim_gives_the_slot_to_the_next_chain_and_the_run_is_not_over() -> None:
    coordinator = c.Coordinator(["a", "b"])
    assert coordinator.handle(c.SlotReady(0)) == [c.Claim(0, "a")]
    assert coordinator.handle(c.Refused(0, "a")) == [c.Claim(0, "b")]
    assert coordinator.with_status("elsewhere") == ["a"] and not coordinator.over
    assert coordinator.handle(c.Claimed(0, "b", 7_000_001)) == [c.Start(0, "b", 7_000_001)]
    assert coordinator.handle(c.Began("b", 5, 0)) == []
    assert coordinator.handle(c.Sampled("b", 7_000_001, 0)) == [c.Accept("b", 0)]
    assert coordinator.handle(c.Ended("b", 7_000_001, "finished")) == [c.Release(0)]
    assert not coordinator.over
    assert coordinator.handle(c.DoneElsewhere("a", 12)) == [c.Recover("a", 12)]
    assert coordinator.over and coordinator.with_status("finished") == ["a", "b"]


def test_a_claim_that_is_answered_late_starts_nothing() -> None:
    coordinator = c.Coordinator(["a"])
    assert coordinator.handle(c.SlotReady(0)) == [c.Claim(0, "a")]
    assert coordinator.handle(c.SuspendAsked()) == []
    assert coordinator.handle(c.Claimed(0, "a", 1)) == [c.Release(0)] and coordinator.over
    coordinator = c.Coordinator(["a"])
    coordinator.handle(c.SlotReady(0))
    assert coordinator.handle(c.SlotLost(0, "gone")) == [] and list(coordinator.queue) == ["a"]
    assert coordinator.handle(c.Claimed(0, "a", 1)) == coordinator.handle(c.Refused(0, "a")) == []


def test_a_freed_chain_is_run_and_a_stop_does_not_wait_for_others() -> None:
    coordinator = refusing("a", "b")
    assert coordinator.handle(c.Freed("b")) == [] and list(coordinator.queue) == ["b"]
    started(coordinator, 3, "b", 2)
    assert coordinator.handle(c.SuspendAsked()) == [c.Suspend(3, "b")] and not coordinator.over
    assert coordinator.handle(c.Ended("b", 2, "suspended")) == [c.Release(3)]
    assert coordinator.over and coordinator.with_status("suspended") == ["b"]


def test_a_superseded_chain_is_stopped_left_to_its_new_driver_and_its_own_path_forgotten() -> None:
    coordinator = c.Coordinator(["a"])
    started(coordinator, 0, "a", 1)
    coordinator.handle(c.Sampled("a", 1, 0))
    assert coordinator.handle(c.Superseded("a")) == [c.Suspend(0, "a")]
    assert coordinator.handle(c.Ended("a", 1, "suspended")) == [c.Release(0)]
    assert coordinator.with_status("elsewhere") == ["a"]
    assert coordinator.handle(c.DoneElsewhere("a", 5)) == [c.Forget("a", 0), c.Recover("a", 5)]


@pytest.mark.parametrize(
    "event", [c.Refused(0, "a"), c.Superseded("a"), c.Freed("a"), c.DoneElsewhere("a", 1)], ids=repr
)
def test_news_of_a_finished_chain_change_nothing(event: c.Event) -> None:
    coordinator = refusing("a")
    coordinator.handle(c.DoneElsewhere("a", 1))
    assert coordinator.handle(event) == [] and coordinator.over


# A real store


def test_the_store_tells_of_chains_left_freed_and_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "PEERS_EVERY", -1.0)
    monkeypatch.setattr(lease, "COMPARE_EVERY", -1.0)
    monkeypatch.setattr(lease, "FRESH", 0.0)
    plan = comparison(Mixture25(), chains=2, steps=300)
    first, second = plan.chains()
    with Lease(root(tmp_path), "mine") as mine:
        looks = PeerDrivers(root(tmp_path), mine, plan.chains())
        coordinator = c.Coordinator([first])
        with Lease(root(tmp_path), "other") as other:
            assert other.claim(first, {}) == 1
            assert coordinator.handle(c.SlotReady(0)) == [c.Claim(0, first)]
            assert looks.claim(first, {}) is None
            coordinator.handle(c.Refused(0, first))
            assert looks.events(coordinator) == []

            running = c.Coordinator([second])
            assert looks.claim(second, {}) == 1
            started(running, 0, second, 1)
            assert looks.events(running) == []
            ChainStore(root(tmp_path), second).begin(plan.chains()[second], 2, {"driver_id": other.driver_id})
            assert looks.events(running) == [c.Superseded(second)]
        assert looks.events(coordinator) == [c.Freed(first)]
    store, spec = ChainStore(root(tmp_path), first), plan.chains()[first]
    for sample in (e for e in Chain(spec) if isinstance(e, Sample)):
        store.publish_sample(sample, 1, {})
    assert looks.events(coordinator) == [c.DoneElsewhere(first, expected_samples(spec))]
    assert looks.claim(first, {}) is None  # finished since


def test_a_chain_is_not_finished_while_a_listing_hides_the_attempt_that_this_driver_took(tmp_path: Path) -> None:
    """That attempt may have superseded samples which an older index, or their files, still show."""
    plan = comparison(Mixture25(), chains=1, steps=300)
    ((digest, spec),) = plan.chains().items()
    store = ChainStore(root(tmp_path), digest)
    with Lease(root(tmp_path), "mine") as mine:
        looks = PeerDrivers(root(tmp_path), mine, plan.chains())
        assert looks.claim(digest, {}) == 1 and looks.claim(digest, {}) == 2
        for sample in (e for e in Chain(spec) if isinstance(e, Sample)):
            store.publish_sample(sample, 1, {})
        newest = tmp_path / "store" / f"chains/{digest}/incarnations/2.json"
        shown = newest.read_bytes()
        newest.unlink()
        assert looks.claim(digest, {}) == 3, "taken again, not left as finished"
        newest.write_bytes(shown)
        assert looks.claim(digest, {}) is None


def test_a_look_ends_in_time_and_the_other_chains_come_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand chains on slow storage would keep the driver from its own for minutes."""
    monkeypatch.setattr(lease, "PEERS_EVERY", -1.0)
    monkeypatch.setattr(lease, "PEERS_FOR", -1.0)
    specs, store = comparison(Mixture25(), chains=3).chains(), root(tmp_path)
    others, coordinator = PeerDrivers(store, Lease(store), specs), refusing(*specs)
    looks = [others.events(coordinator) for _ in range(6)]
    assert looks == [[c.Freed(digest)] for digest in [*specs, *specs]]


def test_storage_that_goes_away_as_a_chain_is_found_finished_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "PEERS_EVERY", -1.0)
    specs, store = comparison(Mixture25(), chains=1, steps=300).chains(), root(tmp_path)
    ((digest, spec),) = specs.items()
    for sample in (e for e in Chain(spec) if isinstance(e, Sample)):
        ChainStore(store, digest).publish_sample(sample, 1, {})
    finished: list[tuple[Any, ...]] = []
    handled: list[c.Event] = []
    results: Any = SimpleNamespace(seconds={}, finish=lambda *told: finished.append(told))
    queue: Any = SimpleNamespace(pool=None)
    none: Any = None
    sampling = ChainDispatch(specs, store, refusing(digest), none, Lease(store), queue, results, none)
    monkeypatch.setattr(sampling, "_handle", handled.append)
    with monkeypatch.context() as away:
        away.setattr(ChainStore, "records", lambda self: (_ for _ in ()).throw(StorageAway("no answer")))
        sampling.follow_peers()
    assert finished == [] and handled == []
    sampling.follow_peers()
    assert finished == [(digest, 0.0, spec.steps)] and handled == [c.DoneElsewhere(digest, expected_samples(spec))]
