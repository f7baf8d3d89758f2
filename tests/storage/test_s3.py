"""A chain's whole life in a bucket, opened by the URI that people give, through the S3 protocol."""

from __future__ import annotations

from typing import Any

import pytest
from pyarrow import fs

from raychains.chain.chain import Chain
from raychains.chain.sample_index import expected_samples
from raychains.cli import main
from raychains.core.errors import UserError
from raychains.core.sample import Sample
from raychains.inference.ensemble_source import RunSource, source_of
from raychains.status import Reader, RunState, StoreState
from raychains.store import ChainStore, RunStore, Storage, codec, split_run_path
from tests.chain.chain_cases import HALF, spec
from tests.checks import refused
from tests.status.worlds import advance, begin, comparison, enter, finish, planned
from tests.storage.conftest import Server
from tests.store.test_filesystem import files_come_and_go


@pytest.fixture
def root(server: Server, bucket: str) -> Storage:
    return Storage(server.uri(bucket))


def contents(server: Server, bucket: str) -> list[str]:
    """Every object in the bucket."""
    found = server.filesystem().get_file_info(fs.FileSelector(bucket, recursive=True))
    return sorted(i.path.removeprefix(f"{bucket}/some/prefix/") for i in found if i.type is fs.FileType.File)


def test_objects_are_published_read_listed_and_deleted_under_the_prefix(
    server: Server, bucket: str, root: Storage
) -> None:
    files_come_and_go(root)
    assert contents(server, bucket) == ["a/b/empty"], "no object stands for a folder"
    assert root.read_range("a/b/empty", 999, 5) == b""
    assert set(root.modified("a/b")) == {"empty"} and min(root.modified("a/b").values()) > 1e18


def test_a_taken_name_is_not_created_again_but_two_at_once_may_both_win(root: Storage) -> None:
    assert root.create("a/x", b"1") and not root.create("a/x", b"2")
    assert root.read("a/x") == b"1" and not root.exclusive


@pytest.mark.parametrize("task", ["mixture", "digits"])
def test_a_chain_lives_in_a_bucket_and_resumes_there_bit_for_bit(
    root: Storage, server: Server, bucket: str, task: str
) -> None:
    whole = spec(task, "sghmc")
    straight = [e for e in Chain(whole) if isinstance(e, Sample)]

    first, store = Chain(whole), ChainStore(root, whole.digest)
    environment = first.environment().to_json()
    store.begin(whole, 1, {"from_step": 0})
    told: list[dict[str, Any]] = []
    while first.step < HALF:
        for event in first.advance(lambda: first.step >= HALF):
            if isinstance(event, Sample):
                store.publish_sample(event, 1, environment)
            else:
                told.append({**event.to_json(), "seconds": 1.0})
    if told:
        store.publish_progress(told, first.step, 1)
    store.publish_checkpoint({"chain": first.state_dict(), "seconds": 1.0}, first.step, 1)
    for event in first.advance(lambda: False):  # written behind the checkpoint, by a worker that then dies
        if isinstance(event, Sample):
            store.publish_sample(event, 1, environment)
    assert not store.finished(expected_samples(whole))

    again = ChainStore(Storage(server.uri(bucket)), whole.digest)
    assert again.spec() == whole and again.last_attempt() == 1
    resumed = Chain(again.spec())
    resumed.load_state_dict(again.newest_checkpoint()["chain"])
    assert resumed.step == HALF
    again.begin(whole, 2, {"from_step": resumed.step})
    for event in resumed:
        if isinstance(event, Sample):
            again.publish_sample(event, 2, environment)
        else:
            again.publish_progress([{**event.to_json(), "seconds": 2.0}], event.step, 2)
    assert again.finished(expected_samples(whole))
    before = again.records()
    again.finish(attempt=2)
    assert again.finished(expected_samples(whole)) and again.records() == before and again.seconds() == 2.0

    stored = [codec.decode(again.read_sample(r.file))[0] for r in again.records()]
    assert [codec.encode(t, {}) for t in stored] == [codec.encode(s.tensors, {}) for s in straight], "byte for byte"
    assert [r.meta for r in again.records()] == [s.meta for s in straight]


def test_a_runs_folder_lives_in_a_bucket_and_its_location_leads_back(root: Storage) -> None:
    run = RunStore(root, "digits-1")
    run.write_plan({"x": 1})
    run.write_table("results", [{"arm": "a", "error": 0.5}])
    assert run.plan() == {"x": 1} and run.table("results").to_pylist() == [{"arm": "a", "error": 0.5}]
    store, name = split_run_path(run.location())
    assert name == "digits-1" and RunStore(Storage(store), name).plan() == {"x": 1}


def test_a_bucket_that_does_not_exist_is_a_users_error(server: Server) -> None:
    with refused("store", "exist", "nobucket"):
        Storage(server.uri("nobucket")).publish("a/x", b"1")


def test_credentials_inside_a_uri_are_shown_to_nobody(server: Server, bucket: str) -> None:
    root = Storage(server.uri(bucket).replace("s3://", "s3://AKIAUSER:hunter2@"))
    root.publish("a/x", b"1")
    assert root.read("a/x") == b"1" and "hunter2" in root.uri, "workers need it"
    assert "hunter2" not in root.location("a/x") and "AKIAUSER" not in root.location("a/x")
    with pytest.raises(UserError) as caught:
        Storage("nosuch://user:hunter2@host/x")
    assert "pyarrow" in str(caught.value) and "hunter2" not in str(caught.value)


# `raychains status`


def test_a_run_on_s3_tells_the_same_as_on_a_disk(
    server: Server, bucket: str, direct: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = comparison(3)
    one, two, _ = plan.chains().values()
    planned(direct, plan)
    finish(direct, [one])
    begin(direct, two, 1, host="node-1")
    advance(direct, two, 1, to=30)
    enter(direct)
    path = server.uri(f"{bucket}").replace("some/prefix", "some/prefix/runs/small")
    found = Reader(path, server.filesystem()).read()
    assert isinstance(found, RunState) and found.state == "running"
    assert [(c.state, c.step, c.samples) for c in found.chains] == [
        ("finished", 60, 4),
        ("running", 30, 2),
        ("waiting", 0, 0),
    ]
    assert found.chains[1].host == "node-1" and found.chains[1].checkpoint_step == 30 and found.bytes > 10_000
    assert main(["status", path]) == 0  # with the client that a person's command has
    out = capsys.readouterr().out
    assert out.startswith("run small: running") and "step 30/60" in out
    store = Reader(server.uri(bucket), server.filesystem()).read()
    assert isinstance(store, StoreState) and [(x.name, x.state, x.chains) for x in store.lines] == [
        ("small", "running", 3)
    ]


def test_a_wrong_name_on_s3_is_one_line(server: Server, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = server.uri(bucket).replace("some/prefix", "some/prefix/runs/none")
    assert main(["status", path]) == 2
    err = capsys.readouterr().err
    assert "PATH must be one of the runs in s3://" in err and "there are none yet" in err and err.count("\n") == 1


def test_a_run_that_is_served_keeps_the_credentials_in_its_address(
    server: Server, bucket: str, direct: Storage
) -> None:
    """Replicas open the store again, in processes that know nothing else."""
    plan = comparison(1)
    planned(direct, plan, "x")
    finish(direct, plan.chains().values())
    plain, _, query = server.uri(bucket).partition("?")
    source = source_of(f"{plain.replace('s3://', 's3://testing:testing@')}/runs/x?{query}")
    assert isinstance(source, RunSource) and "testing:testing@" in source.store and source.name == "x"
    assert len(source.load("cpu")[0]) == 4
