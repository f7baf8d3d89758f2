"""The network between a chain and its S3 store fails in every way; what is published arrives whole or not at all."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from raychains.core.errors import StorageAway
from raychains.core.retry import Patience
from raychains.core.sample import Sample
from raychains.store import ChainStore, Storage, codec
from tests.checks import refused
from tests.orchestration.worlds import meta
from tests.planning.plans import chain
from tests.spread import spread
from tests.storage.proxy import Proxy

SPEC = chain()
SMALL, LARGE = 10_000, 12_000_000
"""Bytes; the second takes two parts of a multipart upload."""

FAULTS: dict[str, Callable[[Proxy], None]] = {
    "refused": lambda p: p.refuse(),
    "cut in the first request": lambda p: p.cut(2, after=100),
    "cut in mid-upload": lambda p: p.cut(2, after=5000),
    "HTTP 500": lambda p: p.errors(4),
    "HTTP 503": lambda p: p.errors(4, "503 Slow Down"),
    "no answer": lambda p: p.cut_answers(2, after=0),
}


def sample(index: int) -> Sample:
    generator = torch.Generator().manual_seed(index)
    return Sample(meta=meta(SPEC.digest, index), tensors={"w": torch.randn(50_000, generator=generator)})


def recovering(between: Proxy, after: int = 5) -> tuple[Callable[[str], bool], list[str]]:
    """Asks to go on, and after so many failures everything works again; what it was told."""
    reasons: list[str] = []

    def keep_trying(reason: str) -> bool:
        reasons.append(reason)
        if len(reasons) == after:
            between.normal()
        return len(reasons) < 50

    return keep_trying, reasons


@pytest.mark.parametrize(("fault", "size"), spread(FAULTS, {"small": SMALL, "large": LARGE}))
def test_a_file_arrives_whole_through_every_fault(
    shaky: Storage,
    direct: Storage,
    between: Proxy,
    fault: Callable[[Proxy], None],
    size: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = os.urandom(size)
    keep_trying, reasons = recovering(between)
    fault(between)
    shaky.retrying(keep_trying).publish("a/x", data)
    assert direct.read("a/x") == data
    assert reasons and all("a/x could not be written" in r and "\n" not in r for r in reasons)
    told = [r for r in caplog.records if r.name.startswith("raychains") and r.levelno == logging.WARNING]
    assert [("away" in r.message, "back" in r.message) for r in told] == [(True, False), (False, True)], "once each"


def test_a_slow_network_is_no_outage(
    shaky: Storage, direct: Storage, between: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    data = os.urandom(300_000)
    between.slow(1_000_000)
    shaky.retrying(lambda reason: pytest.fail(reason)).publish("a/x", data)
    assert direct.read("a/x") == data and not [r for r in caplog.records if r.name.startswith("raychains")]


STORED = bytes(range(250)) * 40
CALLS: dict[str, tuple[Callable[[Storage], Any], Any]] = {
    "read": (lambda r: r.read("a/x"), STORED),
    "range": (lambda r: r.read_range("a/x", 10, 20), STORED[10:30]),
    "size": (lambda r: r.size("a/x"), len(STORED)),
    "exists": (lambda r: r.exists("a/x"), True),
    "missing": (lambda r: r.exists("a/y"), False),
    "names": (lambda r: r.names("a"), ["x"]),
    "modified": (lambda r: list(r.modified("a")), ["x"]),
    "delete": (lambda r: r.delete("a/x"), None),
}


READS = [name for name in CALLS if name not in ("delete", "missing")]


@pytest.mark.parametrize(("fault", "name"), spread(FAULTS, tuple(CALLS)))
def test_reading_and_listing_outlast_every_fault(
    shaky: Storage, direct: Storage, between: Proxy, fault: Callable[[Proxy], None], name: str
) -> None:
    direct.publish("a/x", STORED)
    call, expected = CALLS[name]
    fault(between)
    assert call(shaky.retrying(recovering(between)[0])) == expected
    assert direct.exists("a/x") is (name != "delete")


@pytest.mark.parametrize("after", [25, 60, 120, 200, 260, 320, 2000, 5000, 9000])
def test_an_answer_that_breaks_off_within_its_headers_or_its_data_is_no_answer(
    shaky: Storage, direct: Storage, between: Proxy, after: int
) -> None:
    """The client takes such a one for that of an empty file or folder, without an error."""
    direct.publish("a/x", STORED)
    for name in READS:
        call, expected = CALLS[name]
        between.cut_answers(1, after=after)
        assert call(shaky) == expected


def test_a_server_that_says_nothing_is_given_up_and_asked_again(
    server: Any, bucket: str, direct: Storage, between: Proxy
) -> None:
    shaky = Storage(server.uri(bucket), server.filesystem(between.port, seconds=1))
    keep_trying, reasons = recovering(between, after=1)
    between.stall()
    shaky.retrying(keep_trying).publish("a/x", b"data")
    assert reasons and direct.read("a/x") == b"data"


# Storage that stays away


@pytest.mark.parametrize("method", ["publish", "read", "names", "exists", "delete"])
def test_without_anybody_to_ask_patience_ends(server: Any, bucket: str, between: Proxy, method: str) -> None:
    root = Storage(
        server.uri(bucket), server.filesystem(between.port), patience=Patience(first=0.01, cap=0.02, total=0.1)
    )
    between.refuse()
    arguments = ("a/x", b"data") if method == "publish" else ("a/x",)
    with refused("store", "a/x" if method != "exists" else bucket, "intact", "`resume=True`"):
        getattr(root, method)(*arguments)


def test_a_store_that_is_away_from_the_start_is_a_users_error(server: Any, bucket: str, between: Proxy) -> None:
    between.refuse()
    with pytest.raises(StorageAway) as caught:
        Storage(server.uri(bucket), server.filesystem(between.port), patience=Patience(total=0.2))
    assert caught.value.exit_status == 2


def test_it_waits_as_long_as_it_is_told(shaky: Storage, between: Proxy) -> None:
    between.refuse()
    asked: list[str] = []
    with pytest.raises(StorageAway):
        shaky.retrying(lambda reason: not asked.append(reason) and len(asked) < 7).publish("a/x", b"data")
    assert len(asked) == 7


@pytest.mark.parametrize(("kind", "after"), spread(("client", "server"), (100, 5000, 60_000, 150_000, 203_000)))
def test_what_an_abandoned_upload_leaves_is_never_a_sample(
    shaky: Storage, direct: Storage, between: Proxy, kind: str, after: int
) -> None:
    store, healthy = ChainStore(shaky, SPEC.digest), ChainStore(direct, SPEC.digest)
    healthy.publish_sample(sample(0), 1, {})
    if kind == "client":
        between.cut(10**6, after=after)
    else:
        between.cut_answers(10**6, after=after % 400)
    try:
        store.without_waiting().publish_sample(sample(1), 1, {})
        published = True
    except StorageAway:
        published = False
    found = healthy.records()
    if published:
        assert len(found) == 2
    for record in found:  # an upload whose answer alone was lost is whole
        tensors, _ = codec.decode(healthy.read_sample(record.file))
        assert torch.equal(tensors["w"], sample(record.meta.index).tensors["w"])
    between.normal()
    store.publish_sample(sample(1), 1, {})
    assert [r.meta.index for r in healthy.records()] == [0, 1]
