"""The checksum in a JSON object: no bit of the file changes anything unnoticed, and files without one are read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from raychains.core import checksum
from raychains.core.spec import digest_of

OBJECTS: list[dict[str, Any]] = [
    {"cycle": 1, "epoch": 2.5, "gradients": 10, "metrics": {"nll": 0.7499, "error": 1e-05}, "samples": 3},
    {"from_step": 0, "digest": "5" * 64, "host": "größe", "more": [None, True, {"a": []}]},
    {"nll": math.inf},
]


@pytest.mark.parametrize("own", OBJECTS)
def test_what_is_sealed_comes_back(own: dict[str, Any]) -> None:
    read = json.loads(json.dumps(checksum.sealed({"format": 1, **own})))
    assert checksum.unsealed(read) == ({"format": 1, **own}, True)
    assert checksum.unsealed(own) == (own, True)  # as older versions wrote it


def test_it_is_the_sha256_of_the_canonical_json() -> None:
    """The one that points between samples had before others had any."""
    assert checksum.sealed({"format": 1, "point": "x"})["sha256"] == digest_of({"point": "x"})
    assert checksum.sealed({1: (2, 3)}) == {1: (2, 3), "sha256": digest_of({"1": [2, 3]})}  # type: ignore[dict-item]


@pytest.mark.parametrize("own", OBJECTS)
def test_no_flipped_bit_changes_an_object_unnoticed(own: dict[str, Any]) -> None:
    data = json.dumps(checksum.sealed(own)).encode()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = json.loads(flipped)
        except ValueError:
            continue
        read, whole = checksum.unsealed(found)
        assert not whole or json.dumps(read) == json.dumps(own), bit
