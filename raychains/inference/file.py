"""One safetensors file for all samples of a posterior: stacked tensors and their description as JSON. No pickle.

Tensors that samples have in common are stored once, the others as [S, …] under the network's own names. Samples are
written one by one into their places, so that memory holds one of them, and the file takes its name when it is whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import safe_open
from torch import Tensor

from raychains.core import bounded
from raychains.core.errors import StorageRefused, UserError, shown
from raychains.store import codec

FORMAT = 2
KEY = "posterior"
"""Entry of the description that holds the format's number."""
SECOND = ("class_axis",)
"""Entries that a reader of format 1 would pass over; a file without them is of format 1."""
BLOCK = 1 << 24
"""Bytes that are hashed at a time."""
_NO_HASH = "0" * 64
_DTYPES = "complex64=C64 float64=F64 float32=F32 float16=F16 bfloat16=BF16 "
_DTYPES += "int64=I64 int32=I32 int16=I16 int8=I8 uint8=U8 bool=BOOL"
_NAMES = {getattr(torch, ours): theirs for ours, theirs in (pair.split("=") for pair in _DTYPES.split())}
"""safetensors' names of torch's dtypes."""

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
"""Dtype and shape of each tensor, in the file's order."""


def write(
    target: Path,
    samples: Iterable[Mapping[str, Tensor]],
    size: int,
    *,
    shared: Mapping[str, Tensor],
    dtype: torch.dtype | None,
    kept: Collection[str] = (),
    about: Mapping[str, Any],
) -> int:
    """Write ``size`` samples to ``target``, which must be a new name; return the file's length in bytes.

    Samples have equal names and shapes and are read once, one at a time; floating tensors are rounded to ``dtype``,
    but for those named in ``kept``; ``about`` is JSON for the file's users.

    Raises:
        UserError: the name is taken or cannot be written, samples differ in shape, or a value is too large for
            ``dtype``.
        StorageRefused: no room.
    """
    from raychains.store import filesystem  # needs pyarrow, which reading does not

    check_free(target)
    try:
        with filesystem.temporary(target) as path:
            with open(path, "w+b") as f:
                length = _fill(f, samples, size, shared, lambda name: None if name in kept else dtype, about)
                filesystem.sync(f)
            if not filesystem.take_name(path, target):
                raise _taken(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageRefused(f"to must have room for the samples, got {str(target)!r}: {error.strerror}") from None
        why = error.strerror or error
        raise UserError(f"to must be a file that can be written, got {str(target)!r}: {why}") from None
    return length


def check_free(target: Path) -> None:
    """Refuse a name that is taken, or whose folder does not exist."""
    try:
        taken, there = target.exists() or target.is_symlink(), target.parent.is_dir()
    except OSError as error:  # a name that is too long
        raise UserError(f"to must be a file that can be written, got {shown(str(target))}: {error.strerror}") from None
    if taken:
        raise _taken(target)
    if not there:
        raise UserError(f"to must be a file in an existing folder, got {str(target)!r}")


def _taken(target: Path) -> UserError:
    return UserError(f"to must be a new file, got {str(target)!r}: it exists")


def _fill(
    f: IO[bytes],
    samples: Iterable[Mapping[str, Tensor]],
    size: int,
    shared: Mapping[str, Tensor],
    dtype: Callable[[str], torch.dtype | None],
    about: Mapping[str, Any],
) -> int:
    shared = {name: _rounded(name, t, dtype(name)) for name, t in shared.items()}
    layout: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    offsets: dict[str, int] = {}
    s = start = 0
    for s, sample in enumerate(samples, 1):
        rounded = {name: _rounded(name, t, dtype(name)) for name, t in sample.items()}
        if s == 1:
            layout = _layout(rounded, size, shared)
            start = len(_header(layout, about, _NO_HASH))
            places = _places(layout)
            offsets = {name: start + place["data_offsets"][0] for name, place in places.items()}
            f.truncate(start + max(place["data_offsets"][1] for place in places.values()))
            for name, t in shared.items():
                f.seek(offsets[name])
                f.write(_bytes(t))
        expected = {name: (kind, shape[1:]) for name, (kind, shape) in layout.items() if name not in shared}
        if {name: (t.dtype, tuple(t.shape)) for name, t in rounded.items()} != expected:
            raise UserError(f"samples must be of one network: sample {s} has other tensors than the first")
        for name, t in rounded.items():
            f.seek(offsets[name] + (s - 1) * t.numel() * t.element_size())
            f.write(_bytes(t))
    if s != size:
        raise UserError(f"samples must be {size}, got {s}")
    f.flush()
    header = _header(layout, about, _digest(f, start, _places(layout)))
    assert len(header) == start  # a digest is as long as its placeholder
    f.seek(0)
    f.write(header)
    return f.seek(0, os.SEEK_END)


def _layout(first: Mapping[str, Tensor], size: int, shared: Mapping[str, Tensor]) -> dict[str, Any]:
    """Wide dtypes first, so that every tensor is aligned."""
    found = {name: (t.dtype, (size, *t.shape)) for name, t in first.items()}
    found |= {name: (t.dtype, tuple(t.shape)) for name, t in shared.items()}
    if both := first.keys() & shared.keys():
        raise UserError(f"samples must lack what is shared, got {min(both)!r} in both")
    for name, (kind, _) in found.items():
        if kind not in _NAMES:
            raise UserError(f"samples must hold plain numbers, got {name} of {str(kind).removeprefix('torch.')}")
    return dict(sorted(found.items(), key=lambda item: (-item[1][0].itemsize, item[0])))


def _header(layout: Layout, about: Mapping[str, Any], digest: str) -> bytes:
    number = 2 if any(name in about for name in SECOND) else 1
    text = json.dumps({"format": codec.FORMAT, KEY: number, **about, "sha256": digest}, sort_keys=True, allow_nan=False)
    check = hashlib.sha256(text.encode()).hexdigest()
    header: dict[str, Any] = {"__metadata__": {"format": "pt", codec.KEY: text, codec.CHECK: check}}
    header |= _places(layout)
    data = json.dumps(header, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data


def _places(layout: Layout) -> dict[str, Any]:
    """safetensors' description of each tensor."""
    place, found = 0, {}
    for name, (kind, shape) in layout.items():
        length = math.prod(shape) * kind.itemsize
        found[name] = {"dtype": _NAMES[kind], "shape": list(shape), "data_offsets": [place, place + length]}
        place += length
    return found


def _rounded(name: str, t: Tensor, dtype: torch.dtype | None) -> Tensor:
    t = t.detach().cpu()
    if dtype is None or not t.is_floating_point() or t.dtype == dtype:
        return t
    out = t.to(dtype)
    if not torch.equal(out.isfinite(), t.isfinite()):
        largest = float(t[t.isfinite()].abs().max())
        kind = str(dtype).removeprefix("torch.")
        raise UserError(f"dtype must be one that holds all values, got {kind}: {name} has values up to {largest:.3g}")
    return out


def _bytes(t: Tensor) -> memoryview:
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _digest(f: IO[bytes], start: int, places: Mapping[str, Any]) -> str:
    """sha256 of the tensors and of what safetensors' header says about them."""
    h = hashlib.sha256(json.dumps(places, sort_keys=True).encode())
    f.seek(start)
    while block := f.read(BLOCK):
        h.update(block)
    return h.hexdigest()


def describe(file: str | Path) -> dict[str, Any]:
    """Return a file's description, its tensors checked against their sha256.

    Raises:
        UserError: no such file, one that `write` did not make, a torn or altered one, or one of a newer format.
    """
    try:
        with bounded.opened(file) as f:
            start = f.read(8)
            header = start + f.read(codec.header_length(start))
            about = codec.describe(header)
            if KEY not in about:
                raise UserError(f"file must be one of raychains export, got {str(file)!r}, a single sample")
            number = about[KEY]
            if not isinstance(number, int) or not 1 <= number <= FORMAT:
                raise UserError(
                    f"{file}: posterior format must be an integer from 1 to {FORMAT}, got {number!r}; newer files need "
                    "a newer raychains"
                )
            if not codec.is_whole(header, os.fstat(f.fileno()).st_size):
                raise codec.Corrupt("it is torn: other bytes than its header says")
            places = {name: place for name, place in json.loads(header[8:]).items() if name != "__metadata__"}
            if _digest(f, len(header), places) != about.get("sha256"):
                raise codec.Corrupt("its tensors differ from the sha256 in its header")
    except codec.Corrupt as error:
        raise UserError(f"file must be a whole one of raychains export, got {str(file)!r}: {error}") from None
    except OSError as error:
        raise UserError(f"file must be one of raychains export, got {str(file)!r}: {error.strerror or error}") from None
    return about


def tensors(
    file: str | Path, about: Mapping[str, Any], device: str | torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return stacked and shared tensors of a file that `describe` found whole."""
    shared = about.get("shared", [])
    if not isinstance(shared, list) or not all(isinstance(name, str) for name in shared):
        raise UserError(f"{file}: shared must be a list of names, got {shared!r}")
    stacked: dict[str, Tensor] = {}
    common: dict[str, Tensor] = {}
    for name, t in _read(file, device):
        (common if name in shared else stacked)[name] = t
    return stacked, common


def _read(file: str | Path, device: str | torch.device) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(file, framework="pt", device=str(device)) as f:
            for name in f.keys():  # noqa: SIM118  not a mapping
                yield name, f.get_tensor(name)
    except OSError as error:
        raise UserError(f"file must be one of raychains export, got {str(file)!r}: {error}") from None
    except Exception as error:  # safetensors raises its own, undocumented classes
        if isinstance(error, UserError | torch.OutOfMemoryError):
            raise
        raise UserError(f"file must be a whole one of raychains export, got {str(file)!r}: {error}") from None
