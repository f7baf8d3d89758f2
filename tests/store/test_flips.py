"""A flipped bit of any stored file is refused, warned of or without effect; docs/reliability/failures.md counts 400."""

from __future__ import annotations

import json

import pytest

from tests.store import flips

PAGE = flips.COUNTED.with_name("failures.md")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> flips.Store:
    return flips.make(tmp_path_factory.mktemp("store"))


def test_one_bit_of_every_kind_of_file_changes_no_number_silently(store: flips.Store) -> None:
    found = flips.study(store, len(flips.KINDS), seed=1)
    assert all(counts.total() == 1 and not counts[flips.SILENT] for counts in found.values()), found


@pytest.mark.long
def test_bits_that_were_not_counted_change_no_number_silently(store: flips.Store) -> None:
    found = flips.study(store, 20 * len(flips.KINDS), seed=2)
    assert not any(counts[flips.SILENT] for counts in found.values()), found


def test_the_page_has_the_count() -> None:
    counted = json.loads(flips.COUNTED.read_text())
    assert sum(sum(counts.values()) for counts in counted["kinds"].values()) == counted["flips"] >= 400
    assert not any(counts[flips.SILENT] for counts in counted["kinds"].values())
    text = PAGE.read_text(encoding="utf-8")
    for line in flips.table(counted["kinds"]):
        assert line in text, line


def test_a_reading_that_is_silently_another_is_noticed(store: flips.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checksum the best point of a sweep changes, as it once did."""
    from raychains.core import checksum

    pristine = flips.read(store)
    last = store.planned.plan.points[1].specs[0].digest  # its point is the second best
    name = max(name for name in store.files if f"/reports/{last}/" in name)
    place = store.files[name].index(b'"nll": 0.6') + len(b'"nll": 0.')
    bit = 8 * place + 1  # 6 becomes 4
    assert flips.judge(store, pristine, name, bit)[0] == flips.WARNED
    monkeypatch.setattr(checksum, "unsealed", lambda value: ({k: v for k, v in value.items() if k != "sha256"}, True))
    outcome, other = flips.judge(store, pristine, name, bit)
    assert outcome == flips.SILENT and "resumed" in other
