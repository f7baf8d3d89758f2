"""A chain is one path: what was written behind the step from which a later attempt went on counts for nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raychains.store import ChainStore, Storage, parquet_codec
from raychains.store.chain_store import History
from raychains.store.filesystem import table_of
from tests.checks import refused
from tests.planning.plans import chain
from tests.store.test_chains import publish, record, state, tear, values

SPEC = chain()
# publish(store, index, …) writes a sample of step 10 · index


@pytest.fixture
def store(tmp_path: Path) -> ChainStore:
    return ChainStore(Storage(tmp_path), SPEC.digest)


def begin(store: ChainStore, attempt: int, from_step: int) -> None:
    store.begin(SPEC, attempt, {"from_step": from_step})


def test_samples_up_to_the_checkpoint_stay_and_those_behind_it_go(store: ChainStore) -> None:
    begin(store, 1, 0)
    for index in range(5):
        publish(store, index, 1, value=1)
    begin(store, 2, 20)
    assert [r.meta.step for r in store.records()] == [0, 10, 20] and not store.finished(4) and store.finished(3)
    publish(store, 3, 2, value=2)
    assert values(store) == [1, 1, 1, 2] and not store.finished(5)
    publish(store, 4, 2, value=2)
    assert values(store) == [1, 1, 1, 2, 2] and store.finished(5)


def test_a_zombies_late_files_are_taken_before_its_successors_checkpoint_only(store: ChainStore) -> None:
    """Its successor began behind that step, so the path that it continues is the zombie's own."""
    begin(store, 1, 0)
    publish(store, 0, 1, value=1)
    begin(store, 2, 10)
    for index in (1, 2, 3):
        publish(store, index, 1, value=1)
    assert values(store) == [1, 1] and not store.finished(3)
    publish(store, 2, 2, value=2)
    publish(store, 4, 1, value=1)
    assert values(store) == [1, 1, 2] and not store.finished(4)


def test_a_torn_successor_does_not_bring_the_superseded_file_back(store: ChainStore) -> None:
    begin(store, 1, 0)
    publish(store, 2, 1, value=1)
    begin(store, 2, 10)
    tear(store, publish(store, 2, 2, value=2), 0.9)
    assert values(store) == [] and not store.finished(1)


def test_a_record_without_a_step_or_a_torn_one_supersedes_nothing(store: ChainStore) -> None:
    begin(store, 1, 0)
    publish(store, 3, 1, value=1)
    store.begin(SPEC, 2, {"driver_id": "reserved"})
    store.root.publish(f"chains/{SPEC.digest}/incarnations/3.json", b'{"from_st')
    store.root.publish(f"chains/{SPEC.digest}/incarnations/4.json", b"[1]")
    assert values(store) == [1] and store.last_attempt() == 4
    begin(store, 2, 10)
    assert values(store) == [], "once it is known it counts"


# The index


def test_a_zombie_that_comes_to_its_end_writes_no_index(store: ChainStore) -> None:
    begin(store, 1, 0)
    for index in range(3):
        publish(store, index, 1, value=1)
    begin(store, 2, 10)
    assert not store.finish(attempt=1, expected=3)
    assert store.root.names(f"chains/{SPEC.digest}") == ["incarnations", "samples", "spec.json"]
    assert not store.finished(3)


def test_an_attempt_whose_chain_was_superseded_meanwhile_writes_no_index_of_what_is_left(store: ChainStore) -> None:
    """It would be taken for the whole chain for ever: without exclusive names two drivers may begin at once, and a
    lower number's record may come last.
    """
    begin(store, 1, 0)
    for index in range(2):
        publish(store, index, 1, value=1)
    begin(store, 3, 10)
    for index in range(2, 4):
        publish(store, index, 3, value=3)
    begin(store, 2, 0)
    assert values(store) == [1, 3, 3] and not store.finish(attempt=3, expected=4)
    publish(store, 1, 2, value=2)
    assert values(store) == [1, 2, 3, 3] and store.finish(attempt=3, expected=4)


def test_an_index_that_lacks_samples_does_not_make_a_chain_finished(store: ChainStore) -> None:
    """Written by a zombie between its successor's beginning and end, or by a version that did not look."""
    begin(store, 1, 0)
    publish(store, 0, 1, value=1)
    begin(store, 2, 0)
    store.finish()
    assert store.finished(1) and not store.finished(2)
    publish(store, 1, 2, value=2)
    assert store.finished(2)
    store.finish(attempt=2)
    assert values(store) == [1, 2] and store.finished(2)


def test_an_index_from_before_the_newest_attempt_is_not_used(store: ChainStore) -> None:
    begin(store, 1, 0)
    for index in range(3):
        publish(store, index, 1, value=1)
    store.publish_progress([record(10), record(20)], 20, 1)
    store.finish(attempt=1)
    assert store.finished(3) and store.seconds() == 20.0
    begin(store, 2, 10)
    assert not store.finished(3) and values(store) == [1, 1] and store.seconds() == 10.0


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99, None], ids=str)
def test_a_torn_index_and_one_without_a_stamp_are_none(store: ChainStore, keep: float | None) -> None:
    publish(store, 0)
    store.publish_progress([record(1)], 1, 1)
    store.finish()
    expected = store.records(), store.progress()
    for name in ("samples.parquet", "progress.parquet"):
        data = store.root.read(f"chains/{SPEC.digest}/{name}")
        others = parquet_codec.encode(table_of([{"file": "another's"}]))
        store.root.publish(f"chains/{SPEC.digest}/{name}", others if keep is None else data[: int(len(data) * keep)])
    assert (store.records(), store.progress()) == expected and len(expected[0]) == 1 and store.finished(1)


def test_an_index_with_altered_bytes_is_none_or_says_the_same(store: ChainStore) -> None:
    for index in range(3):
        publish(store, index)
    store.finish()
    expected, name = store.records(), f"chains/{SPEC.digest}/samples.parquet"
    data = store.root.read(name)
    for place in range(0, len(data), 97):
        store.root.publish(name, data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        assert store.records() == expected, place


def test_an_index_of_a_newer_format_is_refused(store: ChainStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from raychains.store import chain_store

    publish(store, 0)
    with monkeypatch.context() as newer:
        newer.setattr(chain_store, "INDEX_FORMAT", 2)
        store.finish()
    for read in (store.records, lambda: store.finished(1)):
        with refused("samples.parquet", "format", "newer"):
            read()


# Checkpoints and progress


def test_a_superseded_checkpoint_is_not_gone_on_from_and_drops_no_other(store: ChainStore) -> None:
    """Or the next attempt would begin behind samples that nobody draws again."""
    names = lambda: store.root.names(f"chains/{SPEC.digest}/checkpoints")  # noqa: E731
    begin(store, 1, 0)
    store.publish_checkpoint(state(10), 10, 1)
    begin(store, 2, 10)
    for step in (20, 30, 40):
        store.publish_checkpoint(state(step), step, 1)
    assert len(names()) == 4 and store.newest_checkpoint()["step"] == 10
    store.publish_checkpoint(state(20), 20, 2)
    assert names() == ["0000000010-1.safetensors", "0000000020-2.safetensors"], "its successor drops the zombie's"
    store.publish_checkpoint(state(40), 40, 1)
    assert store.newest_checkpoint()["step"] == 20


def test_the_newest_cycle_end_is_kept_besides_the_last_two(store: ChainStore) -> None:
    begin(store, 1, 0)
    for step in (10, 20, 30, 40, 50, 60):
        store.publish_checkpoint(state(step), step, 1, cycle_end=step in (10, 30))
    assert store.root.names(f"chains/{SPEC.digest}/checkpoints") == [
        "0000000030-1-cycle.safetensors", "0000000050-1.safetensors", "0000000060-1.safetensors",
    ]  # fmt: skip
    assert store.newest_checkpoint()["step"] == 60
    assert store.newest_checkpoint(cycle_end=True)["step"] == 30
    assert store.newest_checkpoint(before=59)["step"] == 50 and store.newest_checkpoint(before=30)["step"] == 30
    assert store.newest_checkpoint(before=29) is None and store.newest_checkpoint(before=29, cycle_end=True) is None


def test_checkpoints_passed_over_are_told_one_by_one(store: ChainStore) -> None:
    for step in (10, 20):
        store.publish_checkpoint(state(step), step, 1)
    store.publish_checkpoint(state(30), 30, 1, cycle_end=True)
    tear(store, "checkpoints/0000000030-1-cycle.safetensors", 0.5)
    name = f"chains/{SPEC.digest}/checkpoints/0000000020-1.safetensors"
    data = bytearray(store.root.read(name))
    data[-1] ^= 1
    store.root.publish(name, bytes(data))
    told: list[tuple[str, str]] = []
    assert store.newest_checkpoint(warn=lambda *what: told.append(what)) is None
    assert [Path(file).name for file, _ in told] == ["0000000030-1-cycle.safetensors", "0000000020-1.safetensors"]
    assert all(Path(file).is_file() and reason and "\n" not in reason for file, reason in told)


def test_a_sample_in_a_checkpoints_place_is_passed_over(store: ChainStore) -> None:
    data = store.read_sample(publish(store, 0))
    store.root.publish(f"chains/{SPEC.digest}/checkpoints/0000000010-1.safetensors", data)
    told: list[str] = []
    assert store.newest_checkpoint(warn=lambda _, reason: told.append(reason)) is None
    assert told == ["it holds no state"]


def test_superseded_progress_is_left_out(store: ChainStore) -> None:
    begin(store, 1, 0)
    store.publish_progress([record(s, by=1) for s in (10, 20, 30)], 30, 1)
    begin(store, 2, 10)
    store.publish_progress([record(40, by=1)], 40, 1)
    assert [r["step"] for r in store.progress()] == [10] and store.seconds() == 10.0
    store.publish_progress([record(20, by=2)], 20, 2)
    assert [(r["step"], r["by"]) for r in store.progress()] == [(10, 1), (20, 2)]


def test_a_torn_spec_is_written_again_and_never_read(store: ChainStore) -> None:
    from raychains.store import Corrupt

    begin(store, 1, 0)
    name = f"chains/{SPEC.digest}/spec.json"
    store.root.publish(name, store.root.read(name)[:40])
    with pytest.raises(Corrupt, match=r"spec\.json"):
        store.spec()
    begin(store, 2, 0)
    assert store.spec() == SPEC


def test_diagnoses_come_back_in_order_and_torn_ones_do_not(store: ChainStore) -> None:
    assert store.diagnoses() == []
    for step, attempt in ((500, 1), (90, 2), (40, 10)):
        store.publish_diagnosis({"step": step, "kind": "loss"}, step, attempt)
    store.root.publish(f"chains/{SPEC.digest}/diagnoses/0000000001-11.json", b'{"st')
    assert [d["step"] for d in store.diagnoses()] == [500, 90, 40]
    assert store.root.exists(f"chains/{SPEC.digest}/diagnoses/0000000090-2.json")


# The rule itself


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(1, 8), st.integers(0, 30), max_size=6))
def test_what_counts_is_exactly_one_path(from_steps: dict[int, int]) -> None:
    """At every step those attempts count that no later one restarted before, and the newest always does."""
    history = History(from_steps)
    for n, step in itertools.product(range(1, 9), range(31)):
        expected = any(later > n and begun < step for later, begun in from_steps.items())
        assert history.superseded(n, step) is expected
    if from_steps:
        assert not any(history.superseded(max(from_steps), step) for step in range(31))
