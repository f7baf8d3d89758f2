"""Chains that stall although their processes answer: in a step that never returns, and on storage that never
answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from raychains.store import ChainStore
from raychains.tasks.mixture import Mixture25
from tests.orchestration.tasks import Hanging, Mute
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("ray_session")]


class Watching(Diary):
    def __init__(self, react: Callable[[events.ChainStatus], None] = lambda _: None) -> None:
        super().__init__()
        self._react = react

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.Tick):
            for chain in event.running:
                self._react(chain)


def test_a_chain_in_a_step_that_never_returns_is_taken_up_by_another_worker(tmp_path: Path) -> None:
    plan, diary = comparison(Hanging(str(tmp_path), at=250, pause=0.01), chains=1, steps=400, block=50), Watching()
    resources = ResourceConfig(checkpoint_every=0.2, stall_timeout=1.0)
    outcome = run_chains(plan, root(tmp_path), resources, diary, lease=Lease(root(tmp_path)))
    assert not outcome.failed and stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())
    [digest] = plan.chains()
    # On a busy machine it may be told, too, that the worker is slow to come up: that has no digest.
    [stalled, *_] = [event for event in diary.of(events.Stalled) if event.digest is not None]
    assert stalled.digest == digest and stalled.reason == "it makes no step"
    [lost] = diary.of(events.WorkerLost)
    assert lost.digest == digest and lost.reason.startswith("it makes no step for ")
    assert ChainStore(root(tmp_path), digest).attempt(2)["from_step"] > 0


def test_a_chain_whose_storage_does_not_answer_is_named_and_keeps_its_worker(tmp_path: Path) -> None:
    trouble = tmp_path / "trouble"

    def react(chain: events.ChainStatus) -> None:
        if chain.step > 100 and not trouble.exists() and not diary.of(events.Stalled):
            trouble.touch()
        if (chain.stalled_seconds or 0.0) > 7:  # twice the bound of a step that never returns
            trouble.unlink(missing_ok=True)

    plan, diary = comparison(Mute(str(trouble), pause=0.01), chains=1, steps=600, block=50), Watching(react)
    resources = ResourceConfig(checkpoint_every=0.2, stall_timeout=1.0)
    outcome = run_chains(plan, root(tmp_path), resources, diary, lease=Lease(root(tmp_path)))
    assert not outcome.failed and stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())
    [stalled, *_] = [event for event in diary.of(events.Stalled) if event.digest is not None]
    assert "taken" in stalled.reason, "its last checkpoint, or its samples"
    assert not diary.of(events.WorkerLost) and diary.of(events.StallEnded)
