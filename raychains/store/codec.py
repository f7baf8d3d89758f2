"""Tensors and their description as one safetensors file: complete in itself, checksummed, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from raychains.errors import RaychainsError
from raychains.sample import tensors_sha256

FORMAT = 1
KEY = "raychains"
"""Entry of the safetensors metadata that holds our JSON."""


class Corrupt(RaychainsError):
    """A stored file is torn, altered or of a newer format."""


def encode(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> bytes:
    """A safetensors file of ``tensors`` whose metadata holds ``description``, a format number and the tensors' sha256.

    ``model.load_state_dict(safetensors.torch.load_file(path))`` reads a network's sample without raychains.
    """
    own = {"format": FORMAT, "sha256": tensors_sha256(tensors), **description}
    plain = {n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()}  # clone: safetensors refuses shared memory
    return save(plain, metadata={"format": "pt", KEY: json.dumps(own, sort_keys=True, allow_nan=False)})


def describe(header: bytes) -> dict[str, Any]:
    """The description in a file's first bytes (`header_length` says how many are needed).

    Raises:
        Corrupt: no such description, or one of a newer format.
    """
    try:
        own = json.loads(json.loads(header[8 : 8 + header_length(header)])["__metadata__"][KEY])
    except (ValueError, KeyError, TypeError):
        raise Corrupt("not a raychains tensor file, or a torn one") from None
    if not isinstance(own, dict) or not isinstance(own.get("format"), int) or own["format"] > FORMAT:
        raise Corrupt(f"format {own.get('format') if isinstance(own, dict) else own!r} is newer than this version reads ({FORMAT})")
    return own


def header_length(start: bytes) -> int:
    """Bytes of the JSON header behind the first eight."""
    return int.from_bytes(start[:8], "little")


def decode(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description of a file that `encode` made.

    Raises:
        Corrupt: the bytes are not what was written.
    """
    own = describe(data)
    try:
        tensors = load(data)
    except Exception as error:  # safetensors raises its own, undocumented classes
        raise Corrupt(f"a torn tensor file: {error}") from None
    if tensors_sha256(tensors) != own.get("sha256"):
        raise Corrupt("the tensors differ from the sha256 in their header")
    return tensors, own


def flatten(state: Any) -> tuple[dict[str, Tensor], Any]:
    """A nested state as (tensors by path, JSON with the tensors' places marked).

    Dicts may have text or integer keys, as torch's optimizer states do.
    """
    tensors: dict[str, Tensor] = {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            tensors[path] = value
            return {"$tensor": path}
        if isinstance(value, Mapping):
            return {"$dict": [[k, walk(v, f"{path}.{k}")] for k, v in value.items()]}
        if isinstance(value, list | tuple):
            return [walk(v, f"{path}.{i}") for i, v in enumerate(value)]
        return value

    return tensors, walk(state, "state")


def unflatten(tensors: Mapping[str, Tensor], tree: Any) -> Any:
    """The nested state that `flatten` took apart (tuples come back as lists)."""
    if isinstance(tree, dict):
        if "$tensor" in tree:
            return tensors[tree["$tensor"]]
        return {k: unflatten(tensors, v) for k, v in tree["$dict"]}
    if isinstance(tree, list):
        return [unflatten(tensors, v) for v in tree]
    return tree
