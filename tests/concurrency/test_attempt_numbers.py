"""Numbers of attempts: one owner each, whatever the timing, and always above those before."""

from __future__ import annotations

import threading
from pathlib import Path

from pyarrow import fs

from raychains.store import ChainStore, Storage
from raychains.store.chain_store import SPAN
from tests.processes import SECONDS


def test_of_many_who_reserve_at_once_one_gets_each_number(tmp_path: Path) -> None:
    root, start, got = Storage(tmp_path), threading.Barrier(8), []

    def reserve(n: int) -> None:
        start.wait(timeout=SECONDS)
        for _ in range(5):
            while (number := ChainStore(root, "d").reserve(ChainStore(root, "d").last_attempt(), {"n": n})) is None:
                pass
            got.append((number, n))

    threads = [threading.Thread(target=reserve, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=SECONDS)
    assert sorted(number for number, _ in got) == list(range(1, 41))
    assert all(ChainStore(root, "d").attempt(number) == {"n": n} for number, n in got)


def test_who_believes_to_be_the_first_by_a_late_listing_is_refused_where_names_are_exclusive(tmp_path: Path) -> None:
    root = Storage(tmp_path)
    assert root.exclusive and ChainStore(root, "d").reserve(0, {"driver_id": "a"}) == 1
    assert ChainStore(root, "d").reserve(0, {"driver_id": "b"}) is None
    assert ChainStore(root, "d").newest_attempt() == (1, "a")


def test_an_object_store_gives_two_who_see_nothing_different_numbers_of_one_ordinal(tmp_path: Path) -> None:
    folder = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())  # stands for one without exclusive names
    root = Storage("bucket/store", filesystem=folder)
    assert not root.exclusive
    numbers = [ChainStore(root, "d").reserve(0, {"driver_id": str(i)}) for i in range(20)]
    assert len(set(numbers)) == 20 and all(n is not None and SPAN <= n < 2 * SPAN for n in numbers)
    highest = max(n for n in numbers if n is not None)
    assert ChainStore(root, "d").newest_attempt() == (highest, str(numbers.index(highest)))
    later = ChainStore(root, "d").reserve(highest, {})
    assert later is not None and 2 * SPAN <= later < 3 * SPAN


def test_a_record_that_is_torn_or_of_another_kind_names_no_driver(tmp_path: Path) -> None:
    root = Storage(tmp_path)
    assert ChainStore(root, "d").newest_attempt() == (0, None)
    for n, data in enumerate((b"", b"{", b"[]", b"7", b'{"driver_id": 3}', b"{}", b'{"driver_id": "x"}'), start=1):
        root.publish(f"chains/d/incarnations/{n}.json", data)
        assert ChainStore(root, "d").newest_attempt() == (n, "x" if n == 7 else None)
