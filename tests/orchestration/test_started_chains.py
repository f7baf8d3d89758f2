"""A deep ensemble and chains that start at its members, on real workers that are killed: the same bytes, and an honest
ledger."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import raychains as rc
from raychains import status
from raychains.chain.chain import Chain
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.planning import events, gradient_evaluations
from raychains.store import ChainStore, SampleRecord, Storage
from tests.pool import unpaged

SETTINGS: dict[str, Any] = {
    "task": "digits",
    "sampler": ("deep-ensemble", "sghmc"),
    "schedule": ("cyclical",),
    "init_from": "deep-ensemble:40,6",
    "epochs": 6,
    "cycles": 2,
    "batch_size": 10,
    "chains": 2,
    "repeats": 1,
    "evaluators": 1,
    "name": "started",
    "progress": False,
}


class Killer:
    """Kills the worker of the first attempt at a member, and of the first at a chain that starts at one."""

    def __init__(self, store: Path) -> None:
        self._root = Storage(str(store))
        self.killed: dict[bool, str] = {}
        """The chain's digest, by whether it starts at another."""
        self.lost = 0

    def on(self, event: Any) -> None:
        if isinstance(event, events.WorkerLost):
            self.lost += 1
        if isinstance(event, events.ChainBegan):
            store = ChainStore(self._root, event.digest)
            started = store.spec().start_chain is not None
            if started not in self.killed:
                self.killed[started] = event.digest
                os.kill(store.attempt(event.incarnation)["pid"], signal.SIGKILL)


def records(result: rc.Result) -> dict[str, list[SampleRecord]]:
    return {digest: ChainStore(result.store.root, digest).records() for digest in result.comparison.chains()}


@pytest.fixture(scope="module")
def run(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[rc.Result, Killer]:
    """A run whose workers were killed, and who killed them."""
    folder = tmp_path_factory.mktemp("disturbed")
    killer = Killer(folder)
    return rc.compare(**SETTINGS, store=str(folder), callback=killer), killer


@pytest.fixture(scope="module")
def disturbed(run: tuple[rc.Result, Killer]) -> rc.Result:
    return run[0]


def samples(spec: ChainSpec, start: Mapping[str, Tensor] | None = None) -> list[Sample]:
    """Of a chain in this process."""
    return [event for event in Chain(spec, start=start) if isinstance(event, Sample)]


def test_killed_workers_change_no_byte_of_members_and_of_chains_that_start_there(
    run: tuple[rc.Result, Killer],
) -> None:
    """Each chain is the one that begins at its own member's best weights."""
    disturbed, killer = run
    assert set(killer.killed) == {False, True} and killer.lost == 2
    for digest in killer.killed.values():
        assert ChainStore(disturbed.store.root, digest).last_attempt() > 1
    members, chains = (arm.chains[0] for arm in disturbed.comparison.arms[:2])
    alone = {spec.digest: samples(spec) for spec in members}
    for spec, member in zip(chains, members, strict=True):
        assert spec.start_chain == member.digest
        [best] = alone[member.digest]
        alone[spec.digest] = samples(spec, best.tensors)
        assert len(alone[spec.digest]) > 0
    stored = records(disturbed)
    assert {d: [r.sha256 for r in rs] for d, rs in stored.items()} == {
        d: [tensors_sha256(s.tensors) for s in ss] for d, ss in alone.items()
    }


def test_the_ledger_has_the_gradients_that_were_made(disturbed: rc.Result) -> None:
    plan, table = disturbed.comparison, disturbed.table(full=True)
    made = {digest: rs[-1].meta.step * 10 for digest, rs in records(disturbed).items()}  # of whole batches
    members = [spec.digest for spec in plan.arms[0].chains[0]]
    epochs = [made[d] // 10 / 43 for d in members]
    assert all(e == int(e) for e in epochs) and min(epochs) < 40, "no member stopped early"
    of_members = [e * 425 for e in epochs]
    chain = gradient_evaluations(plan.arms[1].chains[0][0])
    assert table["gradients"].tolist() == [sum(of_members), sum(of_members) + 2 * chain, of_members[0] + chain]
    state = status.status_of(disturbed.store.location())
    assert state.gradients == state.to_spend == sum(of_members) + 2 * chain  # type: ignore[union-attr]
    arms = {arm.name: arm.gradients for arm in state.arms}  # type: ignore[union-attr]
    assert list(arms.values()) == table["gradients"].tolist()
    page = Path(disturbed.store.location("report.html")).read_text(encoding="utf-8")
    assert "Gradient evaluations" in page and "holds 15% of the training data out" in page


def test_a_resumed_run_goes_on_without_its_members(disturbed: rc.Result) -> None:
    """Members that another run finished are taken from the store; the ensemble alone is a run of its own."""
    store = str(disturbed.store.root.location())
    members = disturbed.comparison.starts
    before = [ChainStore(Storage(store), digest).last_attempt() for digest in members]
    with unpaged():
        alone = rc.run(
            **{k: v for k, v in SETTINGS.items() if k not in ("sampler", "schedule", "cycles", "name")},
            sampler="deep-ensemble", store=store, name="alone",
        )  # fmt: skip
    assert alone.comparison.chains() == dict(members)
    assert [ChainStore(Storage(store), digest).last_attempt() for digest in members] == before
