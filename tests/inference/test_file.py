"""The exported file: whole or not there, read without us, refused when it is torn, altered, newer or something else."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from raychains.core.errors import StorageRefused
from raychains.inference import file
from raychains.store import codec
from tests.checks import refused

SHARED = {"first.weight": torch.randn(5, 4, generator=torch.Generator().manual_seed(9))}


def samples(size: int = 3) -> list[dict[str, Tensor]]:
    """Several dtypes, a scalar, an empty tensor, and a transposed one."""
    g = torch.Generator().manual_seed(0)
    return [
        {
            "fc.weight": torch.randn(4, 3, generator=g).T,
            "fc.bias": torch.randn(3, generator=g, dtype=torch.float64),
            "norm.num_batches_tracked": torch.tensor(s),
            "mask": torch.tensor([True, s > 1]),
            "angle": torch.polar(torch.ones(3), torch.randn(3, generator=g)),
            "half": torch.randn(5, generator=g).bfloat16(),
            "nothing": torch.zeros(0, 2),
        }
        for s in range(size)
    ]


def written(target: Path, dtype: torch.dtype | None = None, **about: Any) -> Path:
    length = file.write(target, iter(samples()), 3, shared=SHARED, dtype=dtype, about={"shared": [*SHARED], **about})
    assert length == target.stat().st_size
    return target


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, t in a.items():
        assert t.dtype == b[name].dtype and torch.equal(t, b[name]), name


def test_what_is_written_is_read_with_us_and_without(tmp_path: Path) -> None:
    path = written(tmp_path / "p.safetensors", run="r")
    about = file.describe(path)
    stacked, shared = file.tensors(path, about, "cpu")
    wanted = {name: torch.stack([s[name] for s in samples()]) for name in samples()[0]}
    same(stacked, wanted)
    same(shared, SHARED)
    same(load_file(path), {**wanted, **SHARED})
    assert about["run"] == "r" and about["posterior"] == 1
    data = path.read_bytes()
    for tensor in json.loads(data[8 : 8 + codec.header_length(data)]).items():
        if tensor[0] != "__metadata__":
            assert tensor[1]["data_offsets"][0] % {"BOOL": 1, "BF16": 2, "F32": 4}.get(tensor[1]["dtype"], 8) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["p.safetensors"]


def test_equal_samples_make_equal_bytes(tmp_path: Path) -> None:
    assert written(tmp_path / "a").read_bytes() == written(tmp_path / "b").read_bytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_floating_tensors_are_rounded_and_others_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    found = load_file(written(tmp_path / "p", dtype))
    for name in samples()[0]:
        t = torch.stack([s[name] for s in samples()])
        same({name: found[name]}, {name: t.to(dtype) if t.is_floating_point() else t})
    same({"w": found["first.weight"]}, {"w": SHARED["first.weight"].to(dtype)})


def test_a_value_that_the_dtype_cannot_hold_is_refused(tmp_path: Path) -> None:
    large = [{"norm.running_var": torch.tensor([1.0, 7e4])}]
    with refused("dtype", "float16", "norm.running_var", "7e+04"):
        file.write(tmp_path / "p", large, 1, shared={}, dtype=torch.float16, about={})
    assert not list(tmp_path.iterdir())
    file.write(tmp_path / "p", large, 1, shared={}, dtype=torch.bfloat16, about={})


def test_memory_holds_two_samples_at_most(tmp_path: Path) -> None:
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most = 0

    def drawn() -> Iterator[dict[str, Tensor]]:
        nonlocal most
        for _ in range(20):
            t = torch.randn(7)
            alive.add(t)
            most = max(most, len(alive))
            yield {"w": t}
            del t

    file.write(tmp_path / "p", drawn(), 20, shared={}, dtype=None, about={})
    assert most <= 2


# What cannot be written


def test_a_taken_name_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("p", "dangling"):
        with refused("to", "new", name, "exists"):
            written(tmp_path / name)
    with refused("to", "folder"):
        written(tmp_path / "missing" / "p")
    assert (tmp_path / "p").read_text() == "mine" and sorted(os.listdir(tmp_path)) == ["dangling", "p"]


@pytest.mark.parametrize("links", [True, False])
def test_a_name_taken_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    target = tmp_path / "p"
    if not links:

        def unable(*_: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", unable)

    def slow() -> Iterator[dict[str, Tensor]]:
        yield {"w": torch.zeros(1)}
        target.write_text("theirs")

    with refused("to", "new", "exists"):
        file.write(target, slow(), 1, shared={}, dtype=None, about={})
    assert target.read_text() == "theirs" and os.listdir(tmp_path) == ["p"]
    target.unlink()
    written(target)
    file.describe(target)


def test_a_full_disk_and_other_trouble_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, kind in ((errno.ENOSPC, StorageRefused), (errno.EIO, ValueError)):

        def fails(_: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(kind, match=rf"to must .*{os.strerror(number)}\Z"):
            written(tmp_path / "p")
        assert not list(tmp_path.iterdir())


def test_samples_of_several_networks_are_refused(tmp_path: Path) -> None:
    one, other = {"w": torch.zeros(2)}, {"w": torch.zeros(3)}
    for wrong, size in (([one, other], 2), ([one, {"v": torch.zeros(2)}], 2), ([one, {"w": torch.zeros(2).int()}], 2)):
        with refused("samples", "2"):
            file.write(tmp_path / "p", wrong, size, shared={}, dtype=None, about={})
    with refused("samples", "1", "2"):
        file.write(tmp_path / "p", [one], 2, shared={}, dtype=None, about={})
    with refused("samples", "complex128"):
        file.write(tmp_path / "p", [{"w": torch.zeros(2, dtype=torch.complex128)}], 1, shared={}, dtype=None, about={})
    assert not list(tmp_path.iterdir())


KILLED = """
import sys, time, torch
from pathlib import Path
from raychains.inference import file

def slow():
    for _ in range(3):
        yield {"w": torch.zeros(100_000)}
    print("two samples are written", flush=True)
    time.sleep(60)

file.write(Path(sys.argv[1]), slow(), 4, shared={}, dtype=None, about={})
"""


def test_an_export_that_is_killed_leaves_no_file(tmp_path: Path) -> None:
    target = tmp_path / "p"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().startswith("two samples")
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    left = os.listdir(tmp_path)
    assert len(left) == 1 and left[0].startswith(".p.")
    file.describe(written(target))


# What cannot be read


def test_every_damage_is_found(tmp_path: Path) -> None:
    data = written(tmp_path / "good").read_bytes()
    start = 8 + codec.header_length(data)
    cuts = [0, 3, 8, start // 2, start, start + 5, len(data) - 1]
    bad = {f"cut at {n}": data[:n] for n in cuts}
    bad["longer"] = data + b"x"
    for place in (4, 9, start // 2, start, len(data) - 1):
        bad[f"altered at {place}"] = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    for what, content in bad.items():
        (tmp_path / "bad").write_bytes(content)
        with refused("file", "bad"):
            file.describe(tmp_path / "bad")
            pytest.fail(what)


def test_newer_files_and_single_samples_are_told_apart(tmp_path: Path) -> None:
    with refused("format", str(file.FORMAT + 1), "newer raychains"):
        file.describe(written(tmp_path / "newer", posterior=file.FORMAT + 1))
    with refused("format", "newer raychains"):
        file.describe(written(tmp_path / "odd", posterior="x"))
    (tmp_path / "sample").write_bytes(codec.encode(samples()[0], {"index": 0}))
    with refused("file", "single sample"):
        file.describe(tmp_path / "sample")
    for missing in (tmp_path / "nowhere", tmp_path):
        with refused("file", str(missing)):
            file.describe(missing)
