"""`raychains status` of a store on S3: the same facts through listings and small reads over HTTP."""

from __future__ import annotations

import pytest

from raychains.cli import main
from raychains.status import Reader, RunState, StoreState
from raychains.store import Root
from tests.status.worlds import advance, begin, comparison, enter, finish, planned
from tests.storage.conftest import Server


def test_a_run_on_s3_tells_the_same_as_on_a_disk(
    server: Server, bucket: str, direct: Root, capsys: pytest.CaptureFixture[str]
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
    assert "run must be the name of a run in s3://" in err and "there are none yet" in err and err.count("\n") == 1
