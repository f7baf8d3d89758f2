"""Tensor files: every dtype and state comes back bit for bit, and no altered file gives other contents."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from raychains.core.sample import tensors_sha256
from raychains.store import codec
from raychains.store.codec import Corrupt, decode, describe, encode, flatten, is_whole, unflatten
from tests.checks import refused

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]
SHAPES: list[tuple[int, ...]] = [(), (0,), (3, 0, 2), (1,), (7,), (2, 3, 5)]


def tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Any bits at all that the type can hold, nan and infinities among them."""
    generator = torch.Generator().manual_seed(1)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, size), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal type, shape and bits."""
    return a.dtype == b.dtype and a.shape == b.shape and tensors_sha256({"": a}) == tensors_sha256({"": b})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_type_and_shape_comes_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = tensor(dtype, shape)
    back, _ = decode(encode({"x": value, "other": torch.ones(2)}, {}))
    assert back.keys() == {"x", "other"} and same(back["x"], value)


def test_views_and_shared_memory_come_back_as_what_they_show() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    views = {"t": base.T, "row": base[1], "strided": base[:, ::2], "again": base, "expanded": base[0].expand(3, 6)}
    back, _ = decode(encode(views, {}))
    assert all(torch.equal(back[n], t) and back[n].is_contiguous() for n, t in views.items())


@pytest.mark.parametrize("tensors", [{}, {"w": torch.ones(1000)}], ids=["none", "one"])
def test_the_description_comes_back_with_format_and_hash_from_the_first_bytes(tensors: dict[str, Tensor]) -> None:
    given = {"index": 3, "lr": 0.1, "train_nll": None, "text": "θ “quoted” \n", "nested": {"b": [1, 2], "a": {}}}
    data = encode(tensors, given)
    header = data[: 8 + codec.header_length(data[:8])]
    assert describe(header) == {**given, "format": codec.FORMAT, "sha256": tensors_sha256(tensors)} == decode(data)[1]
    assert decode(data)[0].keys() == tensors.keys() and len(header) < 1000


def test_a_network_is_loaded_without_our_code(tmp_path: Any) -> None:
    model, other = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(2))
    (tmp_path / "f.safetensors").write_bytes(encode(model.state_dict(), {}))
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "f.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError):
        encode({}, {"lr": float("nan")})


# Altered files

TENSORS = {"a.weight": torch.randn(3, 4), "b": torch.arange(5), "h": torch.randn(3).bfloat16(), "s": torch.tensor(2.0)}
DESCRIPTION = {"step": 12, "state": {"lr": 0.25, "$tensor": "a.weight"}, "digest": "ab" * 32}
DATA = encode(TENSORS, DESCRIPTION)
READ = decode(DATA)


def unchanged(data: bytes) -> bool:
    """Whether an altered file is found out, or else gives exactly what was written."""
    try:
        tensors, description = decode(data)
    except Corrupt:
        return False
    assert tensors.keys() == TENSORS.keys() and all(same(tensors[n], t) for n, t in TENSORS.items())
    assert description == READ[1]
    return True


def test_every_single_flipped_bit_is_found_or_harmless() -> None:
    unnoticed = [i for i in range(8 * len(DATA)) if unchanged(_flip(DATA, i))]
    # What remains is the safetensors "format" entry, which nobody reads, and white space behind the header.
    assert len(unnoticed) < 0.02 * 8 * len(DATA), f"{len(unnoticed)} of {8 * len(DATA)} flips were not noticed"


def _flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_truncation_and_added_bytes_are_found() -> None:
    assert not any(unchanged(DATA[:n]) for n in range(len(DATA)))
    assert not unchanged(DATA + b"\0") and not unchanged(b"\0" + DATA)
    header = DATA[: 8 + codec.header_length(DATA)]
    assert [n for n in range(len(DATA) + 2) if is_whole(header, n)] == [len(DATA)]


def test_random_damage_is_found_or_harmless() -> None:
    rng = random.Random(0)
    for _ in range(100):
        start, length = rng.randrange(len(DATA)), rng.randint(1, 64)
        damage = rng.randbytes(min(length, len(DATA) - start))
        unchanged(DATA[:start] + damage + DATA[start + len(damage) :])  # overwritten
        assert not unchanged(DATA[:start] + DATA[start + length :])  # a piece lost
        unchanged(DATA[:start] + bytes(len(DATA) - start))  # zeros where a block never reached the disk


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 8, b"\xff" * 64, b"PK\3\4 nothing of ours", b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\0{}"]
)
def test_other_files_are_not_ours(data: bytes) -> None:
    somebodys = safetensors.torch.save({"w": torch.ones(1)}, metadata={"format": "pt"})
    for read, other in ((decode, data), (describe, data), (decode, somebodys)):
        with pytest.raises(Corrupt):
            read(other)
    assert not is_whole(data, len(data)) or data.endswith(b"{}")


def test_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FORMAT", codec.FORMAT + 1)
    newer = encode(TENSORS, DESCRIPTION)
    monkeypatch.undo()
    with refused("format", "newer"):
        decode(newer)
    assert describe(DATA)["format"] == codec.FORMAT


# Nested states


def through_file(state: Any) -> Any:
    tensors, tree = flatten(state)
    tensors, description = decode(encode(tensors, {"state": json.loads(json.dumps(tree))}))
    return unflatten(tensors, description["state"])


def equal(a: Any, b: Any) -> bool:
    """Deep equality, with tuples as lists."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and same(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)


def test_an_adam_state_with_integer_keys_comes_back() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    again = through_file(state)
    assert set(again["state"]) == {0, 1} and equal(again, state)


NESTED: dict[str, Any] = {
    "plain values": {"a": 1, "b": 2.5, "c": None, "d": True, "e": "text", "f": [], "g": {}},
    "lists": [torch.ones(2), [torch.zeros(1), {"x": torch.tensor(3)}], (1, torch.ones(1))],
    "equal paths": {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}},
    "1 and '1'": {1: torch.ones(1), "1": torch.zeros(1)},
    "our own words": {"$tensor": torch.ones(1), "$dict": {"$tensor": "state"}},
    "a tensor alone": torch.ones(3),
    "the same twice": [torch.ones(2)] * 2,
}


@pytest.mark.parametrize("state", NESTED.values(), ids=list(NESTED))
def test_nested_states_come_back(state: Any) -> None:
    assert equal(through_file(state), state)
