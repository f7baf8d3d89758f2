"""A deep ensemble and chains that start at its members, on real workers that are killed: the same bytes, and an honest ledger."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import raychains as rc
from raychains import status
from raychains.chain.chain import Chain
from raychains.core.sample import Sample
from raychains.planning import events, gradient_evaluations
from raychains.store import ChainStore, SampleRecord, Storage

SETTINGS: dict[str, Any] = {
    "task": "digits", "sampler": ("deep-ensemble", "sghmc"), "schedule": ("cyclical",), "init_from": "deep-ensemble:40,6",
    "epochs": 12, "cycles": 2, "batch_size": 10, "chains": 2, "repeats": 1, "name": "started", "progress": False,
}  # fmt: skip


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
def undisturbed(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    return rc.compare(**SETTINGS, store=str(tmp_path_factory.mktemp("undisturbed")))


def test_killed_workers_change_no_byte_of_members_and_of_chains_that_start_there(
    undisturbed: rc.Result, tmp_path: Path
) -> None:
    killer = Killer(tmp_path)
    disturbed = rc.compare(**SETTINGS, store=str(tmp_path), callback=killer)
    assert set(killer.killed) == {False, True} and killer.lost == 2
    for digest in killer.killed.values():
        assert ChainStore(disturbed.store.root, digest).last_attempt() > 1
    whole, again = records(undisturbed), records(disturbed)
    assert {d: [r.sha256 for r in rs] for d, rs in whole.items()} == {
        d: [r.sha256 for r in rs] for d, rs in again.items()
    }
    columns = ["error", "nll", "gradients"]
    assert undisturbed.table(full=True)[columns].equals(disturbed.table(full=True)[columns])


def test_a_chain_is_the_one_that_begins_at_its_members_best_weights(undisturbed: rc.Result) -> None:
    root, plan = undisturbed.store.root, undisturbed.comparison
    spec = plan.arms[1].chains[0][1]
    assert spec.start_chain == plan.arms[0].chains[0][1].digest
    [member] = ChainStore(root, str(spec.start_chain)).records()
    start = ChainStore(root, str(spec.start_chain)).sample(member.file)[0]
    drawn = [e for e in Chain(spec, start=start) if isinstance(e, Sample)]
    stored = [ChainStore(root, spec.digest).sample(r.file)[0] for r in records(undisturbed)[spec.digest]]
    assert len(drawn) == len(stored) > 0
    for one, other in zip(drawn, stored, strict=True):
        assert all(torch.equal(one.tensors[name], t) for name, t in other.items())


def test_the_ledger_has_the_gradients_that_were_made(undisturbed: rc.Result) -> None:
    plan, table = undisturbed.comparison, undisturbed.table(full=True)
    made = {digest: rs[-1].meta.step * 10 for digest, rs in records(undisturbed).items()}  # of whole batches
    members = [spec.digest for spec in plan.arms[0].chains[0]]
    epochs = [made[d] // 10 / 43 for d in members]
    assert all(e == int(e) for e in epochs) and min(epochs) < 40, "no member stopped early"
    of_members = [e * 425 for e in epochs]
    chain = gradient_evaluations(plan.arms[1].chains[0][0])
    assert table["gradients"].tolist() == [sum(of_members), sum(of_members) + 2 * chain, of_members[0] + chain]
    state = status.status_of(undisturbed.store.location())
    assert state.gradients == state.to_spend == sum(of_members) + 2 * chain  # type: ignore[union-attr]
    arms = {arm.name: arm.gradients for arm in state.arms}  # type: ignore[union-attr]
    assert list(arms.values()) == table["gradients"].tolist()
    page = Path(undisturbed.store.location("report.html")).read_text(encoding="utf-8")
    assert "Gradient evaluations" in page and "holds 15% of the training data out" in page


def test_a_resumed_run_goes_on_without_its_members(undisturbed: rc.Result, tmp_path: Path) -> None:
    """Members that another run finished are taken from the store; the ensemble alone is a run of its own."""
    store = str(undisturbed.store.root.location())
    alone = rc.run(
        **{k: v for k, v in SETTINGS.items() if k not in ("sampler", "schedule", "cycles", "name")},
        sampler="deep-ensemble", store=store, name="alone",
    )  # fmt: skip
    assert alone.comparison.chains() == {d: s for d, s in undisturbed.comparison.starts.items()}
    attempts = [ChainStore(Storage(store), d).last_attempt() for d in alone.comparison.chains()]
    assert attempts == [1, 1]
