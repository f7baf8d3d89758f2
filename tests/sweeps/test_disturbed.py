"""A sweep whose driver is interrupted and killed and whose trials are killed ends as one that nobody disturbed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raychains.core.errors import ChainsFailed, Interrupted
from raychains.store import Storage, SweepStore, load_sweep
from tests.sweeps.worlds import (
    TASK,
    Diary,
    Driver,
    command,
    events,
    hashes,
    incarnations,
    rc,
    reports,
    settled,
    wait_for,
)

pytestmark = pytest.mark.usefixtures("ray_session")

OPTIONS: dict[str, Any] = {
    "task": TASK, "task_settings": ("pause=0.03",), "epochs": 12, "val_split": 40, "samples_per_cycle": 1, "thinning": 1,
    "exploration": 0.5, "grid": ("lr=.05,.1,1e29", "cycles=2,4"),
}  # fmt: skip
"""Six chains of one to two seconds, two of which diverge."""
NAME = "disturbed"


def sweep(store: str, diary: Diary, **more: Any) -> None:
    """Run it here; two of its points fail."""
    with pytest.raises(ChainsFailed, match=r"2 chains of the sweep failed") as failed:
        rc.sweep(store=store, name=NAME, callback=diary, **OPTIONS, **more)
    assert failed.value.exit_status == 3


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> str:
    """The store of a sweep that nothing happened to."""
    store = str(tmp_path_factory.mktemp("undisturbed"))
    diary = Diary()
    sweep(store, diary)
    assert not diary.of(events.WorkerLost)
    rows = table(store)
    assert {event.digest for event in diary.of(events.ChainFailed)} == set(rows[rows["status"] == "failed"]["digest"])
    assert max(tick.failed for tick in diary.of(events.Tick)) <= 2
    return store


def table(store: str, name: str = "results") -> Any:
    found = load_sweep(f"{store}/sweeps/{NAME}").table(name)
    assert found is not None
    return found.to_pandas()


def test_a_point_that_diverges_fails_and_the_others_go_on(undisturbed: str) -> None:
    rows = table(undisturbed)
    failed = rows[rows["status"] == "failed"]
    assert list(failed["lr"]) == [1e29, 1e29] and all("step" in reason for reason in failed["reason"])
    assert list(rows[rows["status"] == "finished"]["lr"]) == [0.05, 0.05, 0.1, 0.1]
    best = load_sweep(f"{undisturbed}/sweeps/{NAME}").best()
    assert best is not None and best["lr"] == rows.loc[rows["nll"].idxmin(), "lr"]


class Killer:
    """Kills, once, the process of a chain that has reported and is not through."""

    def __init__(self, store: str) -> None:
        self._store = store
        self.killed: dict[str, int] = {}
        self._rates: dict[str, float] = {}

    def __call__(self, event: Any) -> None:
        if isinstance(event, events.SweepPlanned):
            self._rates = {spec.digest: point.values["lr"] for point in event.plan.points for spec in point.specs}
        if self.killed or not isinstance(event, events.Tick):
            return
        for now in event.running:
            digest = now.digest
            last = incarnations(self._store, digest)[-1:]
            if last and "pid" in last[0] and 0 < now.step < now.steps and self._rates[digest] < 1:
                os.kill(last[0]["pid"], signal.SIGKILL)
                self.killed[digest] = len(incarnations(self._store, digest))
                return


def interrupt_at_first_report() -> Any:
    seen: list[Any] = []

    def react(event: Any) -> None:
        if isinstance(event, events.Tick) and not seen and any(chain.step for chain in event.running):
            seen.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    return react


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory, undisturbed: str) -> Iterator[tuple[str, Killer, Diary]]:
    """The store of a sweep that was stopped, whose driver was killed, and one of whose trials was killed."""
    store = str(tmp_path_factory.mktemp("disturbed"))
    digests = list(table(undisturbed)["digest"])
    with pytest.raises(Interrupted, match=rf"same command with --resume --name {NAME}") as stop:
        rc.sweep(store=store, name=NAME, callback=Diary(interrupt_at_first_report()), **OPTIONS)
    assert stop.value.exit_status == 130
    began = [r for d in digests for r in incarnations(store, d)]
    assert 0 < len(began) <= 4, "the sweep was stopped in its middle"

    def count() -> int:
        return sum(len(r) for r in reports(store, NAME, digests).values())

    before = count()
    with Driver(command(OPTIONS, store, NAME, "--resume"), store, Path(store) / "driver.log") as driver:
        wait_for(lambda: count() > before, 120, "a further report")
        driver.kill()
    killer = Killer(store)
    diary = Diary(killer)
    sweep(store, diary, resume=True)
    yield store, killer, diary


def test_the_trial_whose_process_was_killed_went_on_from_its_checkpoint(
    disturbed: tuple[str, Killer, Diary], undisturbed: str
) -> None:
    store, killer, diary = disturbed
    [(digest, number)] = killer.killed.items()
    assert [event.digest for event in diary.of(events.WorkerLost)] == [digest]
    assert len(incarnations(store, digest)) > number
    later = [r["from_step"] for d in table(store)["digest"] for r in incarnations(store, d)[1:]]
    assert any(step > 0 for step in later), "nothing went on from a checkpoint"
    assert hashes(store, digest) == hashes(undisturbed, digest)


def test_every_sample_report_and_result_is_that_of_the_undisturbed_sweep(
    disturbed: tuple[str, Killer, Diary], undisturbed: str
) -> None:
    store, _, _ = disturbed
    for digest in table(undisturbed)["digest"]:
        assert hashes(store, digest) == hashes(undisturbed, digest)
    assert table(store, "reports").equals(table(undisturbed, "reports"))
    assert settled(table(store)).equals(settled(table(undisturbed)))
    assert SweepStore(Storage(store), NAME).best() == SweepStore(Storage(undisturbed), NAME).best()


def test_nobody_read_another_split(disturbed: tuple[str, Killer, Diary]) -> None:
    """The task raises when its test split is asked for: that these sweeps ended as they did shows that nobody did."""
    from raychains import tasks
    from tests.sweeps.tasks import Poisoned

    with pytest.raises(Poisoned):
        tasks.make(TASK, val_split=40).splits()["test"]
    store, _, _ = disturbed
    assert not any("Poisoned" in (reason or "") for reason in table(store)["reason"])
    assert not {c for c in table(store).columns if c.startswith("test")}
