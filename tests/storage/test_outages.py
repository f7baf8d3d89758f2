"""The network between a chain and its S3 store fails in every way; what is published arrives whole or not at all."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from raychains.errors import StorageAway
from raychains.retry import Patience
from raychains.sample import Sample, SampleMeta
from raychains.store import ChainStore, Root, codec
from tests.checks import refused
from tests.planning.plans import chain
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
faults = pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))


def sample(index: int) -> Sample:
    meta = SampleMeta(
        digest=SPEC.digest, index=index, cycle=0, epoch=index, step=10 * index, lr=0.1, temperature=1.0, stage="sampling",
        train_nll=0.5,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(index)
    return Sample(meta=meta, tensors={"w": torch.randn(50_000, generator=generator)})


@faults
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_file_arrives_whole_through_every_fault(
    shaky: Root,
    direct: Root,
    between: Proxy,
    fault: Callable[[Proxy], None],
    size: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = os.urandom(size)
    reasons: list[str] = []

    def keep_trying(reason: str) -> bool:
        reasons.append(reason)
        if len(reasons) == 5:  # no fault lasts longer
            between.normal()
        return len(reasons) < 50

    fault(between)
    shaky.publish("a/x", data, keep_trying=keep_trying)
    assert direct.read("a/x") == data
    assert reasons and all("a/x could not be written" in r and "\n" not in r for r in reasons)
    told = [r for r in caplog.records if r.name.startswith("raychains") and r.levelno == logging.WARNING]
    assert [("away" in r.message, "back" in r.message) for r in told] == [(True, False), (False, True)], "once each"


def test_a_slow_network_is_no_outage(
    shaky: Root, direct: Root, between: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    data = os.urandom(300_000)
    between.slow(1_000_000)
    shaky.publish("a/x", data, keep_trying=lambda reason: pytest.fail(reason))
    assert direct.read("a/x") == data and not [r for r in caplog.records if r.name.startswith("raychains")]


@faults
def test_reading_and_listing_outlast_every_fault(
    shaky: Root, direct: Root, between: Proxy, fault: Callable[[Proxy], None]
) -> None:
    data = os.urandom(SMALL)
    direct.publish("a/x", data)
    calls: dict[str, tuple[Callable[[Root], Any], Any]] = {
        "read": (lambda r: r.read("a/x"), data),
        "range": (lambda r: r.read_range("a/x", 10, 20), data[10:30]),
        "size": (lambda r: r.size("a/x"), SMALL),
        "exists": (lambda r: r.exists("a/x"), True),
        "missing": (lambda r: r.exists("a/y"), False),
        "names": (lambda r: r.names("a"), ["x"]),
        "delete": (lambda r: r.delete("a/x"), None),
    }
    for call, expected in calls.values():
        fault(between)
        tried: list[str] = []

        def keep_trying(reason: str, tried: list[str] = tried) -> bool:
            tried.append(reason)
            if len(tried) == 5:
                between.normal()
            return len(tried) < 50

        assert call(shaky.waiting(keep_trying)) == expected
        between.normal()
    assert not direct.exists("a/x")


@pytest.mark.parametrize("after", [2000, 5000, 9000])
def test_a_download_that_is_cut_is_never_taken_for_the_whole(
    shaky: Root, direct: Root, between: Proxy, after: int
) -> None:
    data = os.urandom(SMALL)
    direct.publish("a/x", data)
    between.cut_answers(3, after=after)
    assert shaky.read("a/x") == data and between.cuts_made


@pytest.mark.parametrize("after", [25, 60, 120, 200, 260, 320])
def test_an_answer_that_breaks_off_within_its_headers_is_no_answer(
    shaky: Root, direct: Root, between: Proxy, after: int
) -> None:
    """The client takes such a one for that of an empty file or folder, without an error."""
    data = os.urandom(SMALL)
    for name in ("x", "y"):
        direct.publish(f"a/{name}", data)
    calls: list[tuple[Callable[[], Any], Any]] = [
        (lambda: shaky.read("a/x"), data),
        (lambda: shaky.read_range("a/x", 5000, 100), data[5000:5100]),
        (lambda: shaky.size("a/x"), SMALL),
        (lambda: shaky.exists("a/x"), True),
        (lambda: shaky.names("a"), ["x", "y"]),
        (lambda: sorted(shaky.modified("a")), ["x", "y"]),
    ]
    for call, expected in calls:
        between.cut_answers(1, after=after)
        assert call() == expected


def test_a_server_that_says_nothing_is_given_up_and_asked_again(shaky: Root, direct: Root, between: Proxy) -> None:
    reasons: list[str] = []

    def keep_trying(reason: str) -> bool:
        reasons.append(reason)
        between.normal()
        return len(reasons) < 50

    between.stall()
    shaky.publish("a/x", b"data", keep_trying=keep_trying)
    assert reasons and direct.read("a/x") == b"data"


# Storage that stays away


@pytest.mark.parametrize("method", ["publish", "read", "names", "exists", "delete"])
def test_without_anybody_to_ask_patience_ends(server: Any, bucket: str, between: Proxy, method: str) -> None:
    root = Root(server.uri(bucket), server.filesystem(between.port), patience=Patience(first=0.01, cap=0.1, total=0.5))
    between.refuse()
    arguments = ("a/x", b"data") if method == "publish" else ("a/x",)
    with refused("store", "a/x" if method != "exists" else bucket, "intact", "--resume"):
        getattr(root, method)(*arguments)


def test_a_store_that_is_away_from_the_start_is_a_users_error(server: Any, bucket: str, between: Proxy) -> None:
    between.refuse()
    with pytest.raises(StorageAway) as caught:
        Root(server.uri(bucket), server.filesystem(between.port), patience=Patience(total=0.2))
    assert caught.value.exit_status == 2


def test_it_waits_as_long_as_it_is_told(shaky: Root, between: Proxy) -> None:
    between.refuse()
    asked: list[str] = []
    with pytest.raises(StorageAway):
        shaky.publish("a/x", b"data", keep_trying=lambda reason: not asked.append(reason) and len(asked) < 7)
    assert len(asked) == 7


@pytest.mark.parametrize("after", [100, 5000, 60_000, 150_000, 203_000])
@pytest.mark.parametrize("kind", ["client", "server"])
def test_what_an_abandoned_upload_leaves_is_never_a_sample(
    shaky: Root, direct: Root, between: Proxy, after: int, kind: str
) -> None:
    store, healthy = ChainStore(shaky, SPEC.digest), ChainStore(direct, SPEC.digest)
    healthy.publish_sample(sample(0), 1, {})
    if kind == "client":
        between.cut(10**6, after=after)
    else:
        between.cut_answers(10**6, after=after % 400)
    try:
        store.publish_sample(sample(1), 1, {}, keep_trying=lambda _: False)
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
