"""A driver's lease on a real folder: refusal in one line, waiting for the doubtful, chains left and taken over."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from raychains.core.errors import UserError
from raychains.orchestration import lease as module
from raychains.orchestration import process_identity
from raychains.orchestration.lease import Lease
from raychains.store import ChainStore, Storage
from tests.checks import refused
from tests.concurrency.entries import about, driver_id
from tests.processes import until
from tests.storage.faults import faulty


def plant(folder: Path, n: int, *, age: float = 0.0, **changed: Any) -> Path:
    """An entry of another driver, last renewed ``age`` seconds ago."""
    file, draft = folder / "drivers" / f"{driver_id(n)}.json", folder / "draft"
    file.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(json.dumps({**about(n), "since": 1, **changed}))
    then = time.time() - age
    os.utime(draft, (then, then))
    return draft.rename(file)  # who reads meanwhile finds the entry before, or this one


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "drivers").iterdir())


def test_an_entry_lies_there_while_the_driver_lives_and_no_longer(tmp_path: Path) -> None:
    with Lease(Storage(tmp_path), "r") as mine:
        assert files(tmp_path) == [f"{mine.driver_id}.json"]
        told = json.loads((tmp_path / "drivers" / f"{mine.driver_id}.json").read_text())
        assert told["run"] == "r" and told["pid"] == os.getpid()
        mine.confirm()
    assert files(tmp_path) == [] and mine.lost is None


def test_it_can_be_left_in_its_own_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python happens to collect a trial that nobody holds any more."""
    monkeypatch.setattr(module, "FIRST_RENEWALS", (0.01,))
    found: list[object] = []
    with Lease(Storage(tmp_path), "r") as mine:

        def collected(_: object) -> None:
            try:
                found.append(mine.__exit__())
            except RuntimeError as error:
                found.append(error)

        monkeypatch.setattr(type(mine._claim), "renew", collected)
        until(lambda: found, "the renewal")
        assert found == [None] and files(tmp_path) == []


def test_the_second_is_refused_with_who_where_since_when_and_what_to_do(tmp_path: Path) -> None:
    with Lease(Storage(tmp_path), "r") as first:
        here = process_identity.here()
        said = ("name", str(here["pid"]), here["host"], "since", "last heard of")
        with refused(*said), Lease(Storage(tmp_path), "r", patient=True):
            pass
        assert files(tmp_path) == [f"{first.driver_id}.json"]
        with Lease(Storage(tmp_path), "other"):
            assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    "how", [{"age": 61.0}, {"place": process_identity.place(), "pid": 2**31 - 1}], ids=["stale", "gone"]
)
def test_a_dead_drivers_entry_stops_nobody_and_is_removed(tmp_path: Path, how: dict[str, Any]) -> None:
    plant(tmp_path, 1, **how)
    plant(tmp_path, 2, run="other", **how)
    with Lease(Storage(tmp_path), "r") as mine:
        assert files(tmp_path) == [f"{mine.driver_id}.json"]


def test_malformed_entries_stop_nobody_and_stay_and_without_resume_nobody_is_waited_for(tmp_path: Path) -> None:
    bad = plant(tmp_path, 1, pid="x")
    with Lease(Storage(tmp_path), "r"):
        assert bad.exists()
    plant(tmp_path, 1, age=20.0)
    with refused("pid 2 on h1 has run it"), Lease(Storage(tmp_path), "r"):
        pass


def test_a_driver_elsewhere_that_may_be_dead_is_waited_for_and_the_person_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CHECK_RIVAL_EVERY", 0.05)
    plant(tmp_path, 1, age=20.0)

    def silence() -> None:
        until(lambda: caplog.records, "the line")
        plant(tmp_path, 1, age=61.0)

    silent = threading.Thread(target=silence)
    silent.start()
    with caplog.at_level(logging.WARNING), Lease(Storage(tmp_path), "r", patient=True) as mine:
        assert files(tmp_path) == [f"{mine.driver_id}.json"]
    silent.join()
    (line,) = [r.getMessage() for r in caplog.records]
    said = re.search(r"pid 2 on h1, last heard of (\d+) s ago: waiting", line)
    assert said is not None and 20 <= int(said[1]) < 60 and "\n" not in line


def test_it_is_refused_as_soon_as_the_other_shows_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_RIVAL_EVERY", 0.05)
    plant(tmp_path, 1, age=10.0)
    seen: list[str] = []

    def claim() -> None:
        try:
            with Lease(Storage(tmp_path), "r", patient=True):
                seen.append("owned")
        except UserError as error:
            seen.append(str(error))

    waiting = threading.Thread(target=claim)
    waiting.start()
    renewals = itertools.count(1)

    def refused_at_last() -> bool:
        if len(files(tmp_path)) == 2:
            plant(tmp_path, 1, renewals=next(renewals))
        return not waiting.is_alive()

    until(refused_at_last, "a refusal", every=0.1)
    assert len(seen) == 1 and "pid 2 on h1 has run it" in seen[0]
    assert files(tmp_path) == [f"{driver_id(1)}.json"]


def test_an_older_entry_that_appears_late_makes_the_driver_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_RENEWALS", (0.05,) * 1000)
    with Lease(Storage(tmp_path), "r") as mine:
        plant(tmp_path, 1)
        until(lambda: mine.lost is not None, "the other's entry")
        assert mine.lost is not None
        assert "pid 2 on h1 has run it" in mine.lost
        with refused("pid 2 on h1"):
            mine.confirm()
    assert files(tmp_path) == [f"{driver_id(1)}.json"]


# Chains


def test_a_chain_of_a_living_driver_is_left_to_it_and_taken_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH", 0.0)  # else it is noticed with the next look
    root, record = Storage(tmp_path), {"started": 0}
    with Lease(root, "b") as mine:
        with Lease(root, "a") as other:
            assert other.claim("d", record) == 1
            assert ChainStore(root, "d").attempt(1) == {"started": 0, "driver_id": other.driver_id}
            assert mine.claim("d", record) is None and mine.runs_elsewhere("d")
            assert other.claim("d", record) == 2  # its own, after a loss
            assert mine.claim("e", record) == 1
            assert other.superseded("d", 2) is False
        assert not mine.runs_elsewhere("d") and mine.claim("d", record) == 3


def test_a_chain_that_its_driver_gave_up_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RENEWALS", (0.05,) * 1000)
    monkeypatch.setattr(module, "FRESH", 0.05)
    root = Storage(tmp_path)
    with Lease(root, "a") as other, Lease(root, "b") as mine:
        assert other.claim("d", {}) == 1 and mine.runs_elsewhere("d")
        other.give_up("d")
        until(lambda: not mine.runs_elsewhere("d"), "the other's renewal")
        assert mine.claim("d", {}) == 2
        assert other.superseded("d", 1)


def test_an_attempt_without_a_known_driver_is_nobodys(tmp_path: Path) -> None:
    root = Storage(tmp_path)
    for n, data in enumerate((b"{", b"{}", b'{"driver_id": "../../x"}'), start=1):
        root.publish(f"chains/d/incarnations/{2 * n - 1}.json", data)
        assert Lease(root).claim("d", {}) == 2 * n


def test_a_dead_drivers_chain_is_free_at_once_on_its_own_machine(tmp_path: Path) -> None:
    root = Storage(tmp_path)
    plant(tmp_path, 1, place=process_identity.place(), pid=2**31 - 1)
    plant(tmp_path, 2)
    for n, digest in ((1, "d"), (2, "e")):
        record = json.dumps({"driver_id": driver_id(n)}).encode()
        root.publish(f"chains/{digest}/incarnations/1.json", record)
    with Lease(root, "mine") as mine:
        assert mine.claim("d", {}) == 2
        assert mine.claim("e", {}) is None


def test_storage_that_is_away_leaves_a_chain_for_later(tmp_path: Path) -> None:
    handler, filesystem = faulty()
    with Lease(Storage(tmp_path, filesystem), "r") as mine:
        handler.stumbles = {"list": 1_000_000}
        assert mine.claim("d", {}) is None and mine.runs_elsewhere("d")
        handler.stumbles = {}
        assert mine.claim("d", {}) is not None


def test_storage_that_refuses_is_said_at_once(tmp_path: Path) -> None:
    with Lease(Storage(tmp_path), "r") as mine:
        (tmp_path / "chains" / "d").mkdir(parents=True)
        (tmp_path / "chains" / "d" / "incarnations").write_text("in the way")
        for ask in (lambda: mine.claim("d", {}), lambda: mine.runs_elsewhere("d")):
            with refused("store", "incarnations", "Not a directory"):
                ask()
