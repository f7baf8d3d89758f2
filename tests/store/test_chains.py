"""A chain's folder: which file counts among attempts and torn ones, what is kept, what the index says."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from raychains.chain.chain import Chain
from raychains.core.errors import UserError
from raychains.core.sample import Sample, SampleMeta, tensors_sha256
from raychains.store import ChainStore, Storage, chain_store, codec, finished_chains
from raychains.store.chain_store import encode_index, stored_chains
from raychains.tasks.mixture import Mixture25
from tests.checks import refused
from tests.orchestration.worlds import comparison, meta
from tests.planning.plans import chain

SPEC = chain()
ENVIRONMENT = {"torch": "2", "device": "cpu"}


@pytest.fixture
def store(tmp_path: Path) -> ChainStore:
    return ChainStore(Storage(tmp_path), SPEC.digest)


def sample(index: int, value: float = 0.0, variable: str = "theta") -> Sample:
    about = meta(SPEC.digest, index, variable=variable, step=10 * index, train_nll=None if index == 0 else 0.5)
    return Sample(meta=about, tensors={"w": torch.full((4,), value), "n": torch.tensor(index)})


def publish(store: ChainStore, index: int, attempt: int = 1, value: float = 0.0, variable: str = "theta") -> str:
    return store.publish_sample(sample(index, value, variable), attempt, ENVIRONMENT)[0].file


def tear(store: ChainStore, file: str, keep: float) -> None:
    """Leave the first part of a file, as a broken upload does."""
    data = store.read_sample(file)
    store.root.publish(f"chains/{store.digest}/{file}", data[: int(len(data) * keep)])


def values(store: ChainStore) -> list[float]:
    return [float(codec.decode(store.read_sample(r.file))[0]["w"][0]) for r in store.records()]


def record(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 0.5, "seconds": float(step), **more}


def test_an_index_has_the_columns_of_all_rows() -> None:
    """The first held-out loss may be missing because it was infinite."""
    rows = [record(1), record(2, held_out_loss=0.25)]
    table = pq.read_table(io.BytesIO(encode_index(rows, 1)))
    assert table["held_out_loss"].to_pylist() == [None, 0.25]


# Beginning


def test_the_spec_is_written_once_and_read_back(store: ChainStore) -> None:
    store.begin(SPEC, 1, {"pid": 1})
    store.root.publish(f"chains/{SPEC.digest}/spec.json", json.dumps(SPEC.to_json()).encode())  # other spaces
    before = store.root.read(f"chains/{SPEC.digest}/spec.json")
    store.begin(SPEC, 2, {"pid": 2})
    assert store.spec() == SPEC and store.root.read(f"chains/{SPEC.digest}/spec.json") == before
    assert [store.attempt(n)["pid"] for n in (1, 2)] == [1, 2]


def test_attempts_are_numbers_that_may_be_far_apart_and_other_files_are_none(store: ChainStore) -> None:
    """Names that cannot be created exclusively are far apart."""
    assert store.last_attempt() == 0
    numbers = (2, 9, 10, 1_166_770, 2_934_753)
    for n in reversed(numbers):
        store.begin(SPEC, n, {"pid": n})
    store.root.publish(f"chains/{SPEC.digest}/incarnations/notes.txt", b"somebody's")
    store.root.publish(f"chains/{SPEC.digest}/incarnations/3142708.json", b'{"pid": 3')
    torn = (3_142_708, {})
    assert list(store.attempts().items()) == [*((n, {"pid": n}) for n in numbers), torn]
    assert store.last_attempt() == 3_142_708


# Samples


def test_a_published_sample_is_durable_and_travels_as_the_same_bytes(store: ChainStore) -> None:
    found, data = store.publish_sample(sample(3, 2.5), 4, ENVIRONMENT)
    assert store.read_sample(found.file) == data and found.file.endswith("-4.safetensors")
    tensors, description = codec.decode(data)
    assert found.sha256 == tensors_sha256(tensors) == tensors_sha256(sample(3, 2.5).tensors)
    assert SampleMeta.from_json(description) == sample(3).meta == found.meta
    assert description["incarnation"] == 4 and description["environment"] == ENVIRONMENT


def test_of_two_files_for_one_sample_the_highest_attempt_counts(store: ChainStore) -> None:
    for attempt in (2, 10, 9, 1):
        publish(store, 0, attempt, value=attempt)
    publish(store, 1, 1, value=1)
    assert values(store) == [10, 1]


def test_samples_come_in_order_and_variables_apart(store: ChainStore) -> None:
    for index in (11, 2, 0):
        publish(store, index)
        publish(store, index, variable="anchor")
    order = [("anchor", 0), ("anchor", 2), ("anchor", 11), ("theta", 0), ("theta", 2), ("theta", 11)]
    assert [(r.meta.variable, r.meta.index) for r in store.records()] == order


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_torn_file_gives_way_to_the_attempt_before_and_alone_is_no_sample(store: ChainStore, keep: float) -> None:
    publish(store, 0, 1, value=1)
    tear(store, publish(store, 0, 2, value=2), keep)
    tear(store, publish(store, 1, 2, value=2), keep)
    assert values(store) == [1] and not store.finished(2) and store.finished(1)


def test_other_files_among_samples_are_no_samples(store: ChainStore) -> None:
    publish(store, 0)
    for name in ("README.md", "000001-theta-x.safetensors", "000001-theta-1.safetensors.part"):
        store.root.publish(f"chains/{SPEC.digest}/samples/{name}", b"x")
    assert len(store.records()) == 1


# Checkpoints


def state(step: int) -> dict[str, Any]:
    return {"step": step, "w": torch.full((3,), float(step)), "groups": [{"lr": 0.1}]}


def checkpoints(store: ChainStore) -> list[str]:
    return store.root.names(f"chains/{SPEC.digest}/checkpoints")


def test_the_last_two_checkpoints_are_kept(store: ChainStore) -> None:
    assert store.newest_checkpoint() is None
    for step in (5, 90, 100, 1000):
        store.publish_checkpoint(state(step), step, 1)
    assert checkpoints(store) == ["0000000100-1.safetensors", "0000001000-1.safetensors"]
    found = store.newest_checkpoint()
    assert found["step"] == 1000 and torch.equal(found["w"], state(1000)["w"])


def test_a_later_attempts_checkpoint_is_newer_whatever_its_step_and_a_zombies_pushes_none_out(
    store: ChainStore,
) -> None:
    store.publish_checkpoint(state(500), 500, 9)
    store.publish_checkpoint(state(50), 50, 10)
    assert store.newest_checkpoint()["step"] == 50
    store.publish_checkpoint(state(60), 60, 10)
    assert checkpoints(store) == ["0000000050-10.safetensors", "0000000060-10.safetensors"]
    store.publish_checkpoint(state(999), 999, 9)
    assert store.newest_checkpoint()["step"] == 60 and len(checkpoints(store)) == 2


@pytest.mark.parametrize("keep", [0.0, 0.2, 0.95])
def test_a_torn_newest_checkpoint_is_passed_over_and_the_log_names_it(
    store: ChainStore, keep: float, caplog: pytest.LogCaptureFixture
) -> None:
    store.publish_checkpoint(state(10), 10, 1)
    store.publish_checkpoint(state(20), 20, 1)
    tear(store, "checkpoints/0000000020-1.safetensors", keep)
    assert store.newest_checkpoint()["step"] == 10 and "0000000020-1.safetensors" in caplog.text
    tear(store, "checkpoints/0000000010-1.safetensors", keep)
    assert store.newest_checkpoint() is None


# Progress


def test_progress_of_two_attempts_merges_and_the_later_one_counts(store: ChainStore) -> None:
    assert store.progress() == [] and store.seconds() == 0.0
    store.publish_progress([record(1, by=9), record(2, by=9), record(3, by=9)], 3, 9)
    store.publish_progress([record(4, by=9)], 4, 9)
    store.publish_progress([record(3, by=10), record(5, by=10)], 5, 10)
    assert [(r["step"], r["by"]) for r in store.progress()] == [(1, 9), (2, 9), (3, 10), (4, 9), (5, 10)]
    assert store.seconds() == 5.0


def test_a_torn_progress_file_gives_what_it_holds(store: ChainStore) -> None:
    store.publish_progress([record(1), record(2)], 2, 1)
    store.publish_progress([record(3)], 3, 1)
    name = f"chains/{SPEC.digest}/progress/0000000002-1.jsonl"
    store.root.publish(name, store.root.read(name)[:-5])
    assert [r["step"] for r in store.progress()] == [1, 3]


# The end


def test_the_index_says_what_the_files_headers_say_without_a_read_of_them_and_can_be_rebuilt(
    store: ChainStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(4):
        publish(store, index, 1)
    publish(store, 2, 2, value=7)
    store.publish_progress([record(10), record(20, loss=None)], 20, 1)
    before = store.records(), store.progress()
    assert len(before[0]) == 4 and before[0][2].file.endswith("-2.safetensors")
    for _ in range(2):
        store.finish()
        assert {"samples.parquet", "progress.parquet"} <= set(store.root.names(f"chains/{SPEC.digest}"))
        with monkeypatch.context() as unread:
            unread.setattr(codec, "describe", None)
            assert (store.records(), store.progress()) == before
        for name in ("samples.parquet", "progress.parquet"):
            store.root.delete(f"chains/{SPEC.digest}/{name}")
        assert (store.records(), store.progress()) == before
    for r in store.records():
        assert tensors_sha256(codec.decode(store.read_sample(r.file))[0]) == r.sha256


def test_a_chain_is_finished_when_all_its_samples_are_there_or_its_index(store: ChainStore) -> None:
    assert not store.finished(2)
    publish(store, 0)
    publish(store, 0, 2)
    assert not store.finished(2), "two attempts at one sample are one"
    publish(store, 1)
    assert store.finished(2)
    store.finish()
    assert store.finished(2)


def test_newer_files_are_refused_and_not_taken_for_torn_ones(
    store: ChainStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passed over, the chain would run again and supersede what a newer version drew."""
    publish(store, 0, 1)
    store.publish_checkpoint(state(10), 10, 1)
    with monkeypatch.context() as newer:
        newer.setattr(codec, "FORMAT", codec.FORMAT + 1)
        publish(store, 0, 2)
        store.publish_checkpoint(state(20), 20, 2)
    for read in (store.records, store.newest_checkpoint, lambda: store.finished(1)):
        with refused("format", "newer"):
            read()


# Many chains at once


def test_finished_torn_begun_and_untouched_chains_are_told_apart(tmp_path: Path) -> None:
    root, specs = Storage(tmp_path), comparison(Mixture25(), chains=20, steps=80, block=10).chains()
    whole, torn, begun = list(specs)[3], list(specs)[7], list(specs)[11]
    for digest in (whole, torn, begun):
        store = ChainStore(root, digest)
        store.begin(specs[digest], 5, {"from_step": 0})
        samples = [e for e in Chain(specs[digest], Mixture25()) if isinstance(e, Sample)]
        for sample in samples[: 1 if digest == begun else None]:
            store.publish_sample(sample, 5, {})
    ChainStore(root, whole).publish_progress([{"step": 80, "seconds": 2.5}], 80, 5)
    ChainStore(root, whole).finish()
    file = tmp_path / "chains" / torn / ChainStore(root, torn).records()[-1].file
    file.write_bytes(file.read_bytes()[:-1])
    found = stored_chains(root, specs)
    assert list(found) == list(specs)
    assert [d for d, chain in found.items() if chain.records is not None] == [whole]
    assert finished_chains(root, specs) == {whole}
    assert found[whole].records == ChainStore(root, whole).records() and found[whole].seconds == 2.5


def test_a_newer_format_of_one_chain_is_an_error_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, specs = Storage(tmp_path), comparison(Mixture25(), chains=40, steps=80, block=10).chains()
    with monkeypatch.context() as newer:
        newer.setattr(chain_store, "INDEX_FORMAT", 2)
        root.publish(f"chains/{list(specs)[30]}/samples.parquet", encode_index([{"file": "x"}], 0))
    with pytest.raises(UserError, match="newer"):
        stored_chains(root, specs)
