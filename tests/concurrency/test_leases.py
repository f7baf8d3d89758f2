"""Entries as they are stored: whole ones come back, malformed ones are ignored, and age decides who lives."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raychains.core.errors import StorageAway
from raychains.store import Storage
from raychains.store.leases import LONGEST, SECOND, STALE_AFTER, Claim, Entry, Leases, Watch
from tests.concurrency.entries import about, driver_id, entry

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
NAME = f"{driver_id(1)}.json"


def test_what_is_published_comes_back_with_the_times_of_the_storage(tmp_path: Path) -> None:
    leases = Leases(Storage(tmp_path))
    before = time.time_ns()
    first = leases.publish({**about(1), "since": None})
    assert abs(first - before) < 60 * SECOND
    deadline = time.monotonic() + 10
    while (second := leases.publish({**about(1), "since": first, "renewals": 1, "given_up": ["d"]})) == first:
        assert time.monotonic() < deadline
    expected = Entry(**about(1), since=first, renewed=second, renewals=1, given_up=frozenset({"d"}))
    assert leases.entries() == [expected] and second > first
    leases.remove(driver_id(1))
    leases.remove(driver_id(1))
    assert leases.entries() == []


def test_a_driver_whose_entry_is_not_listed_publishes_it_again_and_never_counts_as_the_first_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim(n: int) -> Claim:
        return Claim(Leases(Storage(tmp_path)), about(n), lambda e: False)

    listed, unlisted = Storage.modified, 1

    def modified(root: Storage, folder: str) -> dict[str, int]:
        nonlocal unlisted
        unlisted -= 1
        return listed(root, folder) if unlisted < 0 else {}

    first, second = claim(2), claim(1)
    monkeypatch.setattr(Storage, "modified", modified)
    unlisted = 0
    assert first.renew() is None
    unlisted = 1
    rival = second.renew()
    assert rival is not None and rival.driver_id == driver_id(2) and first.renew() is None
    unlisted = 100
    with pytest.raises(StorageAway, match="does not list this driver's entry"):
        claim(3).renew()


@pytest.mark.parametrize(
    "changed",
    [
        {"driver_id": driver_id(2)}, {"driver_id": "../x"}, {"run": "a\nb"}, {"run": ""}, {"run": None},
        {"host": "\x1b[31m"},
        {"host": "h" * 256}, {"place": 3}, {"pid": 0}, {"pid": -1}, {"pid": True}, {"pid": 2**31}, {"pid": "1"},
        {"pid": 1.0},
        {"process": "a b"}, {"since": -1}, {"since": 1.5}, {"since": "0"}, {"since": True}, {"given_up": "d"},
        {"renewals": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_field_makes_an_entry_none(changed: dict[str, Any]) -> None:
    good = {**about(1), "since": None}
    assert Entry.parse(NAME, json.dumps(good).encode(), 5) is not None
    assert Entry.parse(NAME, json.dumps({**good, **changed}).encode(), 5) is None


@given(st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()))
def test_anything_else_is_no_entry_and_no_error(data: bytes) -> None:
    assert Entry.parse(NAME, data, 5) is None


@given(st.dictionaries(st.sampled_from([*about(1), "since", "given_up", "renewals", "other"]), JSON))
def test_fields_of_any_kind_give_an_entry_or_none_and_no_error(changed: dict[str, Any]) -> None:
    e = Entry.parse(NAME, json.dumps({**about(1), "since": None, **changed}).encode(), 5)
    assert e is None or (e.driver_id == driver_id(1) and 0 < e.pid < 2**31 and 0 <= e.since <= e.renewed == 5)


def test_nobody_is_older_in_the_file_than_its_own_modification_allows() -> None:
    e = Entry.parse(NAME, json.dumps({**about(1), "since": 99}).encode(), 5)
    assert e is not None and e.since == 5


def test_foreign_torn_and_huge_files_and_folders_are_ignored(tmp_path: Path) -> None:
    leases = Leases(Storage(tmp_path))
    folder = tmp_path / "drivers"
    (folder / f"{driver_id(3)}.json").mkdir(parents=True)
    whole = json.dumps({**about(4), "since": None}).encode()
    for name, data in {
        "README": b"hello",
        f"{driver_id(4)}.json": whole[:-9],
        f"{driver_id(5)}.json": b"[" * 100_000,
        f"{driver_id(6)}.json": json.dumps({**about(6), "since": None, "x": "y" * LONGEST}).encode(),
        f"{driver_id(7)}.json.bak": whole,
        f".{driver_id(8)}.json": whole,
    }.items():
        (folder / name).write_bytes(data)
    leases.publish({**about(1), "since": None})
    assert [e.driver_id for e in leases.entries()] == [driver_id(1)]


def living(watch: Watch, entries: list[Entry], storage: float | None, now: float) -> list[str]:
    found = watch.living(entries, None if storage is None else int(storage * SECOND), now)
    return [e.driver_id for e in found]


def test_the_living_come_by_seniority_and_ties_by_id() -> None:
    entries = [entry(3, 10, 100), entry(1, 20, 100), entry(2, 10, 100)]
    assert living(Watch(lambda e: False), entries, 100, 0) == [driver_id(2), driver_id(3), driver_id(1)]


def test_a_driver_is_dead_once_the_storages_clock_says_so_and_at_once_when_its_process_is_gone() -> None:
    entries = [entry(1, 10, 100), entry(2, 11, 100)]
    watch = Watch(lambda e: e.pid == 3)
    assert living(watch, entries, 100 + STALE_AFTER, 0) == [driver_id(1)]
    assert living(watch, entries, 100.1 + STALE_AFTER, 0) == []


@given(jump=st.floats(-1e6, 1e6))
def test_an_entry_that_is_watched_without_a_renewal_dies_whatever_the_storages_clock_says(jump: float) -> None:
    watch = Watch(lambda e: False)
    ahead = entry(1, 10, 2e6)  # from before the storage's clock was set back
    assert living(watch, [ahead], 1e6 + jump, 500) == [driver_id(1)]
    assert living(watch, [ahead], None, 500 + STALE_AFTER) == [driver_id(1)]
    assert living(watch, [ahead], None, 500.1 + STALE_AFTER) == []


def test_a_renewal_counts_although_the_storage_keeps_no_times() -> None:
    watch = Watch(lambda e: False)
    for n, now in enumerate((0.0, 50.0, 100.0, 150.0)):
        assert living(watch, [entry(1, 0, 0, renewals=n)], 0, now) == [driver_id(1)]
    assert living(watch, [entry(1, 0, 0, renewals=3)], 0, 211) == []


def test_nobody_is_judged_by_age_just_after_the_storage_was_away_but_the_gone_are_gone() -> None:
    watch = Watch(lambda e: e.pid == 3)
    watch.pardon(520.0)
    entries = [entry(1, 10, 100), entry(2, 11, 100)]
    assert living(watch, entries, 1000, 519) == [driver_id(1)]
    assert living(watch, entries, 1000, 520) == []
