"""A prepared image set in an object store: its reader outlasts a network that fails, and says so when it gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from raychains.core.errors import StorageAway
from raychains.core.retry import Patience
from raychains.data.prepared import manifest as manifests
from raychains.data.prepared.feed import Cutting, Feed
from raychains.data.prepared.manifest import Manifest, Rows, manifest_at
from tests.data.prepared.made import folder_of_classes, prepared
from tests.storage.conftest import QUICK, Server
from tests.storage.proxy import Proxy
from tests.storage.test_outages import FAULTS


@pytest.fixture
def sets(server: Server, bucket: str, between: Proxy, tmp_path: Path) -> tuple[str, str, Manifest]:
    """The same set on the disk and in the bucket behind the proxy, and its manifest."""
    folder = tmp_path / "out"
    manifest = prepared(folder_of_classes(tmp_path / "in"), folder)
    fs.copy_files(str(folder), f"{bucket}/some/prefix", destination_filesystem=server.filesystem())
    return str(folder), server.uri(bucket, between.port), manifest


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=name, marks=[] if name in ("refused", "no answer") else [pytest.mark.long])
        for name, fault in FAULTS.items()
    ],
)
def test_every_picture_is_read_through_every_fault(
    sets: tuple[str, str, Manifest], between: Proxy, fault: Callable[[Proxy], None]
) -> None:
    here, there, manifest = sets
    local, far = Rows(here, manifest, "train"), Rows(there, manifest, "train", QUICK)
    for group in range(len(local.counts)):
        if group == 1:  # files are open by now
            fault(between)
            threading.Timer(0.2, between.normal).start()
        assert list(map(bytes, far.read(group))) == list(map(bytes, local.read(group)))
    assert (far.labels == local.labels).all()


def test_pictures_that_stay_away_are_said_and_read_once_they_are_back(
    sets: tuple[str, str, Manifest], server: Server, bucket: str, between: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, manifest = sets
    opened, client = manifests.opened, server.filesystem(between.port)  # that of a URI waits for long by itself
    far_away = (client, f"{bucket}/some/prefix")
    monkeypatch.setattr(manifests, "opened", lambda uri: far_away if uri == there else opened(uri))
    assert manifest_at(there) == manifest
    far = Rows(there, manifest, "train", Patience(first=0.01, cap=0.05, total=0.1))
    far.read(0)
    between.refuse()
    last = len(far.counts) - 1
    with pytest.raises(StorageAway, match=r"^data must be reachable, but for .* could not be read"):
        far.read(last)
    between.normal()
    assert list(map(bytes, far.read(last))) == list(map(bytes, Rows(here, manifest, "train").read(last)))


def test_decoder_processes_wait_for_pictures_that_are_away(sets: tuple[str, str, Manifest], between: Proxy) -> None:
    here, there, manifest = sets

    def pixels(uri: str, away: bool, decoders: int) -> list[bytes]:
        cutting = Cutting(uri=uri, split="train", size=16, batch_size=8, window=2, slots=2)
        found = []
        with closing(Feed(cutting, Rows(uri, manifest, "train"), decoders=decoders)) as feed:
            for batch, _ in feed.epoch(3):
                found.append(np.array(batch).tobytes())
                if away and len(found) == 1:
                    between.refuse()
                    threading.Timer(0.5, between.normal).start()
        return found

    assert pixels(there, True, 2) == pixels(here, False, 1)
