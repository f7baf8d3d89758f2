"""Drivers and stores that are broken on purpose: the histories must notice each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from raychains.coordination.coordinator import Coordinator, Freed, Recover, SlotLost
from raychains.orchestration.lease import Lease, PeerDrivers
from raychains.orchestration.run.chain_dispatch import ChainDispatch
from raychains.orchestration.run.evaluation_queue import EvaluationQueue
from raychains.orchestration.run.evaluator_pool import JobQueue
from raychains.store import ChainStore
from raychains.store.leases import Claim, Watch

Patch = tuple[Any, str, Any]


def forget_recovered_samples() -> Patch:
    """Samples before a checkpoint are not read from the store after a loss."""
    return ChainDispatch, "_recover", lambda self, action: None


def recover_once() -> Patch:
    """Samples that a listing does not show yet are not looked for again."""
    recover = ChainDispatch._recover

    def once(self: ChainDispatch, action: Recover) -> None:
        recover(self, action)
        self._postponed = []

    return ChainDispatch, "_recover", once


def lost_chains_are_left() -> Patch:
    """A chain whose worker is lost is not put back into the queue."""
    lost = Coordinator._lost

    def left(self: Coordinator, slot: int, reason: str) -> list[Any]:
        found = lost(self, slot, reason)
        self.queue.clear()
        return found

    return Coordinator, "_lost", left


def losses_are_not_heard() -> Patch:
    """The coordinator does not hear that a slot is lost."""
    handle = Coordinator.handle

    def deaf(self: Coordinator, event: Any) -> list[Any]:
        return [] if isinstance(event, SlotLost) else handle(self, event)

    return Coordinator, "handle", deaf


def freed_chains_are_left() -> Patch:
    """A chain that another driver left is not taken up."""
    handle = Coordinator.handle

    def deaf(self: Coordinator, event: Any) -> list[Any]:
        return [] if isinstance(event, Freed) else handle(self, event)

    return Coordinator, "handle", deaf


def dead_drivers_live() -> Patch:
    """A driver counts as alive for ever."""
    return Watch, "living", lambda self, entries, storage_now, now: sorted(entries, key=lambda e: e.seniority)


def samples_are_not_forgotten() -> Patch:
    """Samples of a path that diverged stay in the evaluation."""
    return EvaluationQueue, "forget", lambda self, gone: None


def jobs_go_with_evaluators() -> Patch:
    """An evaluator's jobs are lost with it."""

    def lost(self: JobQueue[Any], evaluator: Any) -> None:
        self.evaluators.forget(evaluator)
        for row in self._room:
            row.pop(id(evaluator), None)
        for ref in evaluator.jobs:
            del self._asked[ref]

    return JobQueue, "_lost", lost


def numbers_are_taken_twice() -> Patch:
    """An attempt's number is taken although another driver has it."""

    def reserve(self: ChainStore, above: int, record: Any) -> int:
        self.root.publish(self._name(f"incarnations/{above + 1}.json"), b"{}")
        return above + 1

    return ChainStore, "reserve", reserve


def chains_are_never_left() -> Patch:
    """Peers' finished chains are not looked at."""
    return PeerDrivers, "events", lambda self, coordinator: []


def claims_are_never_refused() -> Patch:
    """Chains are taken from living drivers, and back."""
    return Lease, "_belongs_to_another", lambda self, digest, driver: False


def late_drivers_judge_nobody() -> Patch:
    """A driver that was stopped for long does not count anybody as dead for as long as it waits for them."""
    renew = Claim.renew

    def again(self: Claim) -> Any:
        self._pardoned = float("nan")
        return renew(self)

    return Claim, "renew", again


def own_numbers_are_forgotten() -> Patch:
    """A driver knows of its own attempts by listings alone."""
    claim = Lease.claim

    def forgetful(self: Lease, digest: str, record: Any) -> int | None:
        self._taken.clear()
        return claim(self, digest, record)

    return Lease, "claim", forgetful


def those_that_wait_are_left() -> Patch:
    """Chains that start at one that finished are not put into the queue."""
    return Coordinator, "_begin_those_at", lambda self, digest: None


EVERY: dict[Callable[[], Patch], int] = {
    forget_recovered_samples: 5,
    recover_once: 2212,
    lost_chains_are_left: 1,
    losses_are_not_heard: 1,
    freed_chains_are_left: 42,
    dead_drivers_live: 12,
    late_drivers_judge_nobody: 94,
    samples_are_not_forgotten: 10,
    jobs_go_with_evaluators: 36,
    numbers_are_taken_twice: 12,
    own_numbers_are_forgotten: 202,
    chains_are_never_left: 5,
    claims_are_never_refused: 12,
    those_that_wait_are_left: 9,
}
"""A seed whose history notices each: the first one, as `python -m tests.simulation --broken NAME` finds it."""


@contextmanager
def broken(how: Callable[[], Patch]) -> Iterator[None]:
    """Break it in the body."""
    target, name, what = how()
    with mock.patch.object(target, name, what):
        yield
