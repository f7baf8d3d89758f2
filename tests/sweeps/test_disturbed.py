"""A sweep whose driver is interrupted and killed and whose trials die or hang ends as one that nobody disturbed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import raychains as rc
from raychains import tasks
from raychains.api import plans
from raychains.core.config import Run
from raychains.core.errors import ChainsFailed, Interrupted
from raychains.planning import events
from raychains.store import Storage, SweepStore, load_sweep
from tests.processes import until
from tests.sweeps.tasks import Poisoned
from tests.sweeps.worlds import TASK, Diary, attempts_of, command, driver, hashes, reports, settled, undrawn

pytestmark = pytest.mark.usefixtures("ray_session")

NAME = "disturbed"
HOW = ("die", "die-early", "die-handed-over", "hang")
"""What happens to processes of trials, each once."""


def options(folder: Path) -> dict[str, Any]:
    """Six chains, two of which diverge; the folder's files say what happens to the others."""
    return {
        "task": "tests.sweeps.tasks:Dying", "task_settings": ("pause=0.03", f"folder={folder}"), "epochs": 12,
        "val_split": 40, "checkpoint_every": 0.1, "samples_per_cycle": 1, "thinning": 1, "exploration": 0.5,
        "grid": ("lr=.05,.1,1e29", "cycles=2,4"),
    }  # fmt: skip


def sweep(folder: Path, store: str, diary: Diary, **more: Any) -> None:
    """Run it here; two of its points fail."""
    with undrawn(), pytest.raises(ChainsFailed, match=r"2 chains of the sweep failed") as failed:
        rc.sweep(store=store, name=NAME, callback=diary, **options(folder), **more)
    assert failed.value.exit_status == 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tasks' folder, as yet empty."""
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, folder: Path, ray_session: None) -> str:
    """The store of a sweep that nothing happened to; its task raises when its test split is read."""
    store = str(tmp_path_factory.mktemp("undisturbed"))
    diary = Diary()
    sweep(folder, store, diary)
    assert not diary.of(events.WorkerLost)
    rows = table(store)
    assert {event.digest for event in diary.of(events.ChainFailed)} == set(rows[rows["status"] == "failed"]["digest"])
    assert max(tick.failed for tick in diary.of(events.Tick)) <= 2
    assert not any("Poisoned" in (reason or "") for reason in rows["reason"])
    return store


def table(store: str, name: str = "results") -> Any:
    found = load_sweep(f"{store}/sweeps/{NAME}").table(name)
    assert found is not None
    return found.to_pandas()


def interrupt_at_first_report() -> Any:
    seen: list[Any] = []

    def react(event: Any) -> None:
        if isinstance(event, events.ChainReported) and not seen:
            seen.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    return react


@pytest.fixture(scope="module")
def disturbed(
    tmp_path_factory: pytest.TempPathFactory, folder: Path, undisturbed: str
) -> tuple[str, dict[str, int], Diary]:
    """The store of a sweep that was stopped, whose driver was killed, and whose trials died or hung: their
    processes."""
    store = str(tmp_path_factory.mktemp("disturbed"))
    digests = list(table(undisturbed)["digest"])
    (folder / "slow").touch()
    with pytest.raises(Interrupted, match=rf"same call with `resume=True`, `name={NAME}`") as stop:
        rc.sweep(store=store, name=NAME, callback=Diary(interrupt_at_first_report()), **options(folder))
    assert stop.value.exit_status == 130

    def count() -> int:
        return sum(len(r) for r in reports(store, NAME, digests).values())

    before = count()
    assert 0 < before < len(table(undisturbed, "reports")), "the sweep was stopped in its middle"
    with driver(command(options(folder), store, NAME, "--resume"), store) as kill:
        until(lambda: count() > before, "a further report")
        kill()
    (folder / "slow").unlink()
    for how in HOW:
        (folder / how).touch()
    diary = Diary()
    sweep(folder, store, diary, resume=True, stall_timeout=2, max_failures=10)
    died = {file.read_text(): int(file.name.partition("-")[2]) for file in folder.glob("died-*")}
    return store, died, diary


@pytest.mark.long
def test_the_trial_whose_process_was_killed_went_on_from_its_checkpoint(
    disturbed: tuple[str, dict[str, int], Diary], undisturbed: str
) -> None:
    store, died, diary = disturbed
    lost = {event.digest for event in diary.of(events.WorkerLost)}
    [digest] = [d for d in lost if died["die"] in [attempt.get("pid") for attempt in attempts_of(store, d)[:-1]]]
    later = [r["from_step"] for d in table(store)["digest"] for r in attempts_of(store, d)[1:]]
    assert any(step > 0 for step in later), "nothing went on from a checkpoint"
    assert hashes(store, digest) == hashes(undisturbed, digest)


@pytest.mark.long
def test_trials_that_die_or_hang_are_started_again_and_the_user_is_told_why(
    disturbed: tuple[str, dict[str, int], Diary],
) -> None:
    """They die while they run, are set up or are handed over; a step that hangs is seen in the trial's own process."""
    store, died, diary = disturbed
    assert died.keys() == set(HOW)
    lost = diary.of(events.WorkerLost)
    assert len(lost) == 4 and {event.digest for event in lost} <= set(table(store)["digest"])
    [hung] = [event for event in lost if event.reason != "its process died"]
    assert re.fullmatch(r"it makes no step for \d+ s", hung.reason)
    pids = [attempt["pid"] for attempt in attempts_of(store, hung.digest)]
    assert pids.count(died["hang"]) == 1 and pids[-1] != died["hang"]


@pytest.mark.long
def test_every_sample_report_and_result_is_that_of_the_undisturbed_sweep(
    disturbed: tuple[str, dict[str, int], Diary], undisturbed: str
) -> None:
    store, _, _ = disturbed
    for digest in table(undisturbed)["digest"]:
        assert hashes(store, digest) == hashes(undisturbed, digest)
    assert table(store, "reports").equals(table(undisturbed, "reports"))
    assert settled(table(store)).equals(settled(table(undisturbed)))
    assert SweepStore(Storage(store), NAME).best() == SweepStore(Storage(undisturbed), NAME).best()
    assert not {column for column in table(store) if column.startswith("test")}
    with pytest.raises(Poisoned):
        tasks.make(TASK, val_split=40).splits()["test"]


@pytest.mark.long
def test_a_trial_that_has_to_leave_too_often_fails(tmp_path: Path) -> None:
    """It learns in its twelfth step that its node is draining; no death is allowed."""
    (tmp_path / "leave").touch()
    one = options(tmp_path) | {"task_settings": ("pause=0.1", f"folder={tmp_path}"), "grid": ("lr=.05",), "cycles": 2}
    with undrawn(), pytest.raises(ChainsFailed, match="1 chains of the sweep failed"):
        rc.sweep(store=str(tmp_path / "store"), name=NAME, max_failures=0, max_preemptions=0, **one)
    assert list(table(str(tmp_path / "store"))["reason"]) == ["it had to leave its node 1 times"]


@pytest.mark.parametrize(
    "way",
    [
        {"grid": "lr=.05,1e29", "asha": True},
        pytest.param({"space": "lr=log:1e28:1e30", "optuna": 2}, marks=pytest.mark.long),
    ],
)
def test_a_chain_that_diverges_is_a_failed_point_whoever_judges_it(tmp_path: Path, way: dict[str, Any]) -> None:
    count = 1 if "grid" in way else 2
    asked = {"task": TASK, "epochs": 4, "val_split": 40, "cycles": 2, "exploration": 0.5, "thinning": 1}
    with pytest.raises(ChainsFailed, match=rf"^{count} chains of the sweep failed"):
        rc.sweep(store=str(tmp_path), name="some", **asked, **way)
    rows = load_sweep(f"{tmp_path}/sweeps/some").table("results")
    assert rows is not None and rows["status"].to_pylist().count("failed") == count and len(rows) == 2
    failed = [row for row in rows.to_pylist() if row["status"] == "failed"]
    assert all("step" in row["reason"] for row in failed)
    if "grid" in way:
        best = load_sweep(f"{tmp_path}/sweeps/some").best()
        assert [row["lr"] for row in failed] == [1e29] and best is not None and best["lr"] == 0.05
    assert Path(tmp_path, "sweeps", "some", "report.html").stat().st_size > 5_000


def test_a_start_is_in_the_store_and_the_sweep_goes_on_from_there(tmp_path: Path) -> None:
    asked = {"task": TASK, "epochs": 2, "val_split": 40, "exploration": 0.5, "thinning": 1, "grid": {"lr": [0.05, 0.1]}}
    asked |= {"concurrent": 1}
    network = rc.make_task(TASK).build_model(seed=3, lanes=1)
    store = str(tmp_path / "store")
    with undrawn():
        first = rc.sweep(store=store, name="warm", init_from=network, **asked)
        again = rc.sweep(store=store, name="warm", init_from=first.best["init_from"], resume=True, **asked)
    assert first.best == again.best
    start = Path(first.best["init_from"])
    assert start.parent == Path(store) / "starts" and torch.equal(
        load_file(start)["layers.0.weight"], network.state_dict()["layers.0.weight"]
    )
    made = plans.run(Run(**first.best, chains=1)).comparison
    assert set(made.chains()) < set(first.table(full=True)["digest"])
