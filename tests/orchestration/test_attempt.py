"""One chain's attempts: any cadence, any death, storage that is away, full or torn, and what diverges."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from raychains import schedules
from raychains.chain.chain import Chain
from raychains.chain.divergence import Diverged
from raychains.chain.divergence_replay import Diagnosis
from raychains.chain.process_group import Group
from raychains.coordination.coordinator import Began, Sampled
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains import attempt
from raychains.orchestration.chains.messages import ChainAssignment
from raychains.store import ChainStore
from raychains.tasks import Task
from raychains.tasks.mixture import Mixture25
from tests.orchestration.lives import begin, live_elsewhere, rest_of, run
from tests.orchestration.tasks import Cliff, Exits, Mortal
from tests.orchestration.worlds import comparison, root, stored_hashes, undisturbed_hashes
from tests.processes import until
from tests.spread import spread

SAMPLERS: dict[str, dict[str, Any]] = {
    "sgnht": {"momentum": 0.9, "thermostat": "scalar"},
    "emcmc": {"eta": 0.5},
    "entropy-sgd": {"inner_steps": 5},
}
CADENCES = {"20 ms": (0.02, False), "200 ms": (0.2, False), "each cycle": (1e9, True)}
"""Seconds between checkpoints, and whether each cycle's end has one."""
LIMIT = 3.05
"""Of the four chains below one passes it, in its second cycle."""


@pytest.mark.parametrize(("sampler", "cadence"), spread(tuple(SAMPLERS), CADENCES))
def test_any_cadence_gives_the_same_bytes_although_processes_die(
    sampler: str, cadence: tuple[float, bool], tmp_path: Path
) -> None:
    every, every_cycle = cadence
    frequent = every < 0.1 or every_cycle
    task = Mortal(str(tmp_path), every=170, lives=3, checkpointed=frequent, pause=0.0005)
    temperature = 0.0 if sampler == "entropy-sgd" else 1.0
    plan = comparison(
        task, chains=1, steps=600, block=20, cycles=6, sampler=sampler, temperature=temperature, **SAMPLERS[sampler]
    )
    [(digest, spec)] = plan.chains().items()
    config = {"checkpoint_every": every, "every_cycle": every_cycle}
    codes = [live_elsewhere(root(tmp_path).uri, spec.to_json(), n, config) for n in range(1, 5)]
    assert codes == [-signal.SIGKILL] * 3 + [0]
    store = ChainStore(root(tmp_path), digest)
    froms = [store.attempt(n)["from_step"] for n in range(1, 5)]
    assert froms[0] == 0 and froms == sorted(froms)
    assert not frequent or froms[1] > 0, "later lives go on from checkpoints of earlier ones"
    assert not every_cycle or all(step % 100 == 0 for step in froms)
    assert stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, Mixture25())


def spec_of(task: Task, chain: int = 0, **settings: Any) -> ChainSpec:
    plan = comparison(task, chains=chain + 1, **{"steps": 1200, "block": 50, **settings})
    return list(plan.chains().values())[chain]


def hashes(store: ChainStore) -> list[str]:
    return [r.sha256 for r in store.records()]


def drawn(chain: Chain, to: int | None = None) -> list[str]:
    """Hashes of the samples that a chain yields up to a step."""
    found: list[str] = []
    end = chain.spec.steps if to is None else to
    while chain.step < end:
        found += [tensors_sha256(e.tensors) for e in chain.advance(lambda: chain.step >= end) if isinstance(e, Sample)]
    return found


def whole(spec: ChainSpec) -> list[str]:
    """Hashes of all samples of an undisturbed chain."""
    if spec.digest not in _WHOLE:
        _WHOLE[spec.digest] = drawn(Chain(spec))
    return _WHOLE[spec.digest]


_WHOLE: dict[str, list[str]] = {}


@cache
def restarted() -> tuple[ChainSpec, list[str]]:
    """The chain that passes the limit, and its samples under fresh noise from the second cycle on."""
    spec = spec_of(Cliff(LIMIT), chain=3)
    chain = Chain(spec)
    expected = drawn(chain, 600)
    chain.restart_noise(1)
    return spec, expected + drawn(chain)


# Storage


class Disk:
    """Local disks of this process answer fsync with an error while ``number`` is set."""

    number: int | None = None
    refused = 0

    def fsync(self, descriptor: int) -> None:
        if self.number is not None:
            self.refused += 1
            raise OSError(self.number, os.strerror(self.number))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr("os.fsync", made.fsync)
    return made


def test_an_outage_pauses_the_chain_after_two_undelivered_samples_and_loses_none(tmp_path: Path, disk: Disk) -> None:
    spec = spec_of(Mixture25())
    life = begin(
        root(tmp_path), spec, checkpoint_every=0.01, holds=frozenset({420})
    )  # the third sample is drawn at 450
    assert [type(life.take()[0]) for _ in range(3)] == [Began, Sampled, Sampled]
    disk.number = errno.EIO
    life.allow(420)
    until(lambda: life.status().waiting, "the writer to wait")
    assert "Input/output error" in life.status().waiting and "\n" not in life.status().waiting
    until(lambda: disk.refused > 4, "repeated attempts")
    waits = life.status().step
    disk.number = None
    events = rest_of(life)
    status = life.status()
    assert (status.digest, status.step, status.cycle, status.waiting) == (spec.digest, 1200, 1, None)
    assert waits < spec.steps and events[-1].outcome == "finished"
    assert hashes(ChainStore(root(tmp_path), spec.digest)) == whole(spec)
    assert [e.position for e in events if isinstance(e, Sampled)] == list(range(2, 12))


def test_a_stop_during_an_outage_ends_soon_and_the_chain_goes_on_from_its_last_checkpoint(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "SUSPEND_PATIENCE", 0.2)
    spec = spec_of(Mixture25())
    life = begin(root(tmp_path), spec, every_cycle=True, holds=frozenset({600}))
    store = ChainStore(root(tmp_path), spec.digest)
    for _ in range(7):  # up to the first cycle's end at 600, of six samples
        life.take()
    until(lambda: store.newest_checkpoint() is not None, "the cycle's checkpoint")
    disk.number = errno.ESTALE
    life.allow(600)
    until(lambda: life.status().waiting, "the writer to wait")
    life.suspend()
    end = rest_of(life)[-1]
    assert end.outcome == "suspended" and "reachable" in end.reason
    disk.number = None
    assert run(root(tmp_path), spec, 2)[-1].outcome == "finished"
    assert store.attempt(2)["from_step"] == 600 and hashes(store) == whole(spec)


def test_storage_without_room_ends_the_attempt_with_one_line_and_nothing_is_lost(tmp_path: Path, disk: Disk) -> None:
    spec = spec_of(Mixture25())
    life = begin(root(tmp_path), spec, checkpoint_every=0.01)
    assert [type(life.take()[0]) for _ in range(3)] == [Began, Sampled, Sampled]
    disk.number = errno.ENOSPC
    end = rest_of(life)[-1]
    assert end.outcome == "storage_refused" and "`resume=True`" in end.reason and "\n" not in end.reason
    store = ChainStore(root(tmp_path), spec.digest)
    kept = hashes(store)
    assert kept == whole(spec)[: len(kept)] and len(kept) >= 2
    disk.number = None
    assert run(root(tmp_path), spec, 2)[-1].outcome == "finished"
    assert hashes(store) == whole(spec)


def stopped(folder: Path, spec: ChainSpec) -> ChainStore:
    """The store of an attempt that was stopped after ten samples or a few more, with a checkpoint of every cycle."""
    life = begin(root(folder), spec, every_cycle=True, holds=frozenset({spec.steps - 1}))
    for _ in range(11):
        life.take()
    life.suspend()
    assert rest_of(life)[-1].outcome == "suspended"
    return ChainStore(root(folder), spec.digest)


@pytest.mark.parametrize(("damage", "which"), spread(("torn", "gone"), (0, -1)))
def test_a_sample_lost_before_a_later_checkpoint_is_drawn_again(damage: str, which: int, tmp_path: Path) -> None:
    """The chain goes back to a checkpoint before it, or to its beginning, rather than go on without it."""
    spec = spec_of(Cliff(LIMIT), chain=0, cycles=4)
    store = stopped(tmp_path, spec)
    checkpoint = store.newest_checkpoint()
    assert checkpoint is not None
    folder = Path(root(tmp_path).location(f"chains/{spec.digest}/samples"))
    lost = sorted(folder.glob("*"))[: checkpoint["chain"]["index"]][which]
    if damage == "torn":
        lost.write_bytes(lost.read_bytes()[:-8])
    else:
        lost.unlink()
    began, *_, ended = run(root(tmp_path), spec, 2)
    assert began.step < checkpoint["chain"]["step"] and ended.outcome == "finished"
    assert any("drawn again" in reason for _, reason in began.torn)
    assert hashes(store) == whole(spec)


# Divergence


def test_a_divergence_is_diagnosed_to_the_step_and_written_down(tmp_path: Path) -> None:
    spec = spec_of(Cliff(LIMIT), chain=3)
    end = run(root(tmp_path), spec, checkpoint_every=0.01)[-1]
    store = ChainStore(root(tmp_path), spec.digest)
    [told] = store.diagnoses()
    found = Diagnosis.from_json(told)
    assert end.outcome == "diverged" and end.reason == found.sentence() and "\n" not in end.reason
    assert found.step == passes(spec) and found.kind == "gradient" and 600 < found.step < 1200
    assert store.newest_checkpoint()["chain"]["step"] < found.step  # type: ignore[index]


def passes(spec: ChainSpec) -> int:
    """The step whose gradient is taken beyond the cliff."""
    chain = Chain(spec, Cliff(1e9))
    while float(chain.model.theta.detach().abs().max()) <= LIMIT:  # type: ignore[union-attr,operator]
        step = chain.step
        chain.advance(lambda step=step: chain.step > step)  # type: ignore[misc]
    return chain.step + 1


def test_fresh_noise_from_the_cycles_start_is_one_path_wherever_it_is_interrupted(tmp_path: Path) -> None:
    spec, expected = restarted()
    assert run(root(tmp_path), spec, 1, every_cycle=True)[-1].outcome == "diverged"
    life = begin(root(tmp_path), spec, 2, every_cycle=True, restart=1)
    began = life.take()[0]
    assert (began.step, began.restart, began.drawn) == (600, 1, 6)
    life.suspend()
    rest_of(life)
    again = run(root(tmp_path), spec, 3, every_cycle=True, restart=1)  # asked for again: it had not heard that it began
    assert again[0].restart == 1 and again[0].step >= 600 and again[-1].outcome == "finished"
    assert hashes(ChainStore(root(tmp_path), spec.digest)) == expected
    assert expected != drawn(Chain(spec, Cliff(1e9)))


@pytest.mark.parametrize("lost", ["the cycle's start", "a sample before it"])
def test_fresh_noise_begins_at_the_cycles_start_though_that_was_lost(tmp_path: Path, lost: str) -> None:
    """It used to begin wherever the chain was resumed, so that samples depended on which files were there."""
    spec, expected = restarted()
    end = run(root(tmp_path), spec, 1, every_cycle=True)[-1]
    assert (end.outcome, end.cycle_start) == ("diverged", 600)
    folder = tmp_path / "store" / "chains" / spec.digest
    if lost == "the cycle's start":
        [start] = (folder / "checkpoints").iterdir()
        start.unlink()
    else:
        sample = min((folder / "samples").iterdir())
        sample.write_bytes(sample.read_bytes()[:-1])
    began, *_, again = run(root(tmp_path), spec, 2, every_cycle=True, restart=1, restart_from=end.cycle_start)
    assert (began.step, began.restart, again.outcome, again.cycle_start) == (0, 0, "diverged", 600)
    began, *_, through = run(root(tmp_path), spec, 3, every_cycle=True, restart=1, restart_from=again.cycle_start)
    assert (began.step, began.restart, through.outcome) == (600, 1, "finished")
    assert hashes(ChainStore(root(tmp_path), spec.digest)) == expected


def test_without_a_finished_cycle_a_restart_begins_at_the_start(tmp_path: Path) -> None:
    spec = spec_of(Cliff(0.5), chain=2)
    assert run(root(tmp_path), spec, 1, checkpoint_every=0.01, every_cycle=True)[-1].outcome == "diverged"
    began, *_, end = run(root(tmp_path), spec, 2, every_cycle=True, restart=1)
    assert (began.step, began.restart, end.outcome) == (0, 1, "diverged")
    assert len(ChainStore(root(tmp_path), spec.digest).diagnoses()) == 2


class Pair(Group):
    """Rank 0 of two, whose waits are over at once."""

    size = 2

    def wait(self, over: Callable[[float], bool]) -> None:
        pass


class Paused:
    """A chain of several ranks as `Attempt` steps it: it pauses behind the step before which it was asked."""

    share = 1.0

    def __init__(self, spec: ChainSpec) -> None:
        self.spec, self.schedule, self.group = spec, schedules.build(spec.schedule), Pair()
        self.step, self.paused = 0, False

    @property
    def done(self) -> bool:
        return self.step == self.spec.steps

    def advance(self, stop: Callable[[], bool]) -> list[Any]:
        self.paused = stop()
        self.step += 1
        return []

    def check_ranks(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}


def test_ranks_write_checkpoints_at_cycles_ends_and_where_they_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step later the checkpoint is no cycle's start: a restart from there would begin at the first step, for ever."""
    spec = spec_of(Mixture25())
    config = attempt.AttemptConfig(checkpoint_every=1e9, every_cycle=True, holds=frozenset({420}))
    life = attempt.Attempt(ChainAssignment(spec=spec.to_json(), attempt=1), root(tmp_path), config, {})
    written = list[tuple[int, bool]]()
    monkeypatch.setattr(
        life, "_publish_checkpoint", lambda records, state, step, at_end: written.append((step, at_end))
    )
    assert life._run_to_end(Paused(spec)) == "finished"  # type: ignore[arg-type]
    life._to_write.put(None)
    life._write()
    assert written == [(420, False), (600, True)]


def test_what_diverges_at_a_checkpoint_leaves_its_pack_at_once_and_keeps_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rows step on while it is found where it diverged."""
    spec = dataclasses.replace(spec_of(Mixture25(), steps=2000), pack=2)
    state_dict, packs = Chain.state_dict, list[Any]()

    def diverging(chain: Chain) -> dict[str, Any]:
        if chain.step:
            raise Diverged("a momentum is nan", chain.step)
        return state_dict(chain)

    def where(error: Diverged, chain: Chain, *_: Any) -> str:
        packs.append(chain._pack)
        return str(error)

    monkeypatch.setattr(Chain, "state_dict", diverging)
    monkeypatch.setattr(attempt, "diagnosed", where)
    config = attempt.AttemptConfig(checkpoint_every=1e9, every_cycle=True)
    assignment = ChainAssignment(spec=spec.to_json(), attempt=1)
    life = attempt.Attempt(assignment, root(tmp_path), config, {}, packs=attempt.Packs())
    life.begin()
    end = rest_of(life)[-1]
    assert (end.outcome, packs) == ("diverged", [None])
    assert ChainStore(root(tmp_path), spec.digest).progress()[-1]["step"] == 1000


def test_a_chain_that_ends_the_process_by_sys_exit_fails_with_that_reason(tmp_path: Path) -> None:
    end = run(root(tmp_path), spec_of(Exits()))[-1]
    assert end.outcome == "failed" and end.reason.endswith("SystemExit: 3")
