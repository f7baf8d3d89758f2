"""Tensors and their description as one safetensors file: complete in itself, checksummed, no pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from raychains.core.errors import RaychainsError, UserError
from raychains.core.sample import tensors_sha256

FORMAT = 1
KEY = "raychains"
"""Entry of the safetensors metadata that holds our JSON."""
CHECK = "raychains_sha256"
"""Entry that holds the sha256 of that JSON's text."""
LONGEST_HEADER = 20_000_000
"""Bytes of the longest header that is read: those of 100,000 tensors."""


class Corrupt(RaychainsError):
    """A stored file is torn or altered."""

    exit_status = 2


def encode(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> bytes:
    """Return a safetensors file of ``tensors`` whose metadata holds ``description``, a format number and the tensors'
    sha256.

    ``model.load_state_dict(safetensors.torch.load_file(path))`` reads a network's sample without raychains.
    """
    return encode_and_hash(tensors, description)[0]


def encode_and_hash(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the file that `encode` returns, and the tensors' sha256."""
    digest = tensors_sha256(tensors)
    own = {"format": FORMAT, "sha256": digest, **description}
    plain = {
        n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()
    }  # clone: safetensors refuses shared memory
    text = json.dumps(own, sort_keys=True, allow_nan=False)
    check = hashlib.sha256(text.encode()).hexdigest()
    return _ordered(save(plain, metadata={"format": "pt", KEY: text, CHECK: check})), digest


def _ordered(data: bytes) -> bytes:
    """Sort a file's metadata: safetensors writes them in another order every time."""
    end = 8 + header_length(data)
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)  # the tensors stay aligned
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(data)[end:]))


def describe(header: bytes) -> dict[str, Any]:
    """Return the description in a file's first bytes (`header_length` says how many are needed).

    Raises:
        Corrupt: no such description, or an altered one.
        UserError: a newer format; it is refused and not passed over, since a newer version wrote it.
    """
    try:
        metadata = json.loads(header[8 : 8 + header_length(header)])["__metadata__"]
        text, check = metadata[KEY], metadata.get(CHECK)
        own = json.loads(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Corrupt("not a raychains tensor file, or a torn one") from None
    if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != check:
        raise Corrupt("the description differs from its sha256")
    number = own.get("format") if isinstance(own, dict) else None
    if not isinstance(number, int) or number < 1:
        raise Corrupt("not a raychains tensor file: it has no format number")
    if number > FORMAT:
        raise UserError(
            f"tensor file: format must be at most {FORMAT}, got {number}: newer files need a newer raychains"
        )
    return own


def header_length(start: bytes) -> int:
    """Return the length of the JSON header after the first eight bytes.

    Raises:
        Corrupt: more than a header can have, so ``start`` begins no tensor file.
    """
    length = int.from_bytes(start[:8], "little")
    if length > LONGEST_HEADER:
        raise Corrupt("not a raychains tensor file, or a torn one")
    return length


def is_whole(header: bytes, size: int) -> bool:
    """Return whether a file of ``size`` bytes that begins with ``header`` has the length that its header states.

    A torn file is found without reading it; `decode` finds altered bytes.
    """
    try:
        end = header_length(header)
        tensors = json.loads(header[8 : 8 + end])
        last = max((t["data_offsets"][1] for name, t in tensors.items() if name != "__metadata__"), default=0)
    except (Corrupt, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False
    return bool(size == 8 + end + last)


def decode(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and description of a file that `encode` made.

    Raises:
        Corrupt: the bytes are not what was written.
        UserError: a newer format.
    """
    own = describe(data)
    try:
        tensors = load(data)
    except Exception as error:  # safetensors raises its own, undocumented classes
        raise Corrupt(f"a torn tensor file: {error}") from None
    if tensors_sha256(tensors) != own.get("sha256"):
        raise Corrupt("the tensors differ from the sha256 in their header")
    return tensors, own


def decode_sample(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and description of a sample's file: every value is finite, every block has the draws that it
    names.

    Raises:
        Corrupt: the bytes are not what was written, or no chain wrote them.
        UserError: a newer format.
    """
    tensors, own = decode(data)
    draws = own.get("draws", 1)
    for name, t in tensors.items():
        if (t.is_floating_point() or t.is_complex()) and not bool(torch.isfinite(t).all()):
            raise Corrupt(f"{name!r} has values that are not finite, which no chain writes")
        if draws != 1 and (t.dim() < 2 or t.shape[0] != draws):
            raise Corrupt(f"{name!r} must hold {draws!r} draws, got shape {list(t.shape)}")
    return tensors, own


def flatten(state: Any) -> tuple[dict[str, Tensor], Any]:
    """Return a nested state as (tensors by path, JSON with the tensors' places marked).

    Dicts may have text or integer keys, as torch's optimizer states do.
    """
    tensors: dict[str, Tensor] = {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            while path in tensors:  # {"a.b": …, "a": {"b": …}} and {1: …, "1": …} have equal paths
                path += "'"
            tensors[path] = value
            return {"$tensor": path}
        if isinstance(value, Mapping):
            return {"$dict": [[k, walk(v, f"{path}.{k}")] for k, v in value.items()]}
        if isinstance(value, list | tuple):
            return [walk(v, f"{path}.{i}") for i, v in enumerate(value)]
        return value

    return tensors, walk(state, "state")


def unflatten(tensors: Mapping[str, Tensor], tree: Any) -> Any:
    """Return the nested state that `flatten` took apart (tuples come back as lists)."""
    if isinstance(tree, dict):
        if "$tensor" in tree:
            return tensors[tree["$tensor"]]
        return {k: unflatten(tensors, v) for k, v in tree["$dict"]}
    if isinstance(tree, list):
        return [unflatten(tensors, v) for v in tree]
    return tree
