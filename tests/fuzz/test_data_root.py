"""Data roots whose files are torn, replaced or written anew: one line, or the data; nothing is changed, and no file is
run.

Stand-ins of all published sets lie in their own formats (idx, CIFAR's batches, MATLAB, .npy, tables of text, pictures),
with prepared sets in parquet beside them; the md5s that the root declares are mostly written anew, so that readers see
the harm.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, reject
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from raychains import tasks
from raychains.data import cifar10_c, sets, standins, tabular
from raychains.data.catalogue import SETS
from raychains.data.prepared import local_preparation, manifest, sources
from raychains.data.prepared.pictures import central
from raychains.data.standin_manifest import FILE
from tests.fuzz.rules import comes_to_one_line, examples, no_ray, say, tree
from tests.fuzz.tally import tried
from tests.fuzz.test_damaged_stores import REPLACEMENTS, changed, paths

KINDS = ("idx", "cifar", "mat", "npy", "table", "picture", "shard", "manifest", "declaration")
"""Formats of files in a data root."""


@dataclass
class Root:
    """A data root and what its files held at first."""

    folder: Path
    files: dict[str, bytes]
    kinds: dict[str, list[str]]

    def restore(self, names: list[str]) -> None:
        for name in names:
            (self.folder / name).write_bytes(self.files[name])


def kind_of(name: str) -> str | None:
    """Return the format of a file of the data root."""
    if name == FILE:
        return "declaration"
    if name.startswith(standins.PICTURES):
        return "picture"
    if name.startswith(f"{tabular.FOLDER}/"):
        return "table"
    if "cifar-10" in name and "CIFAR-10-C" not in name:
        return "cifar"
    endings = {".gz": "idx", ".mat": "mat", ".npy": "npy", ".parquet": "shard", ".json": "manifest"}
    return endings.get(Path(name).suffix)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    folder = standins.make(tmp_path_factory.mktemp("data") / "root", train=20, test=20, corruptions=1)
    local_preparation.prepare(folder / standins.PICTURES, folder / "imagenet", row_group=8)
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    kinds: dict[str, list[str]] = {}
    for name in files:
        if (kind := kind_of(name)) is not None:
            kinds.setdefault(kind, []).append(name)
    assert sorted(kinds) == sorted(KINDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYCHAINS_DATA", str(folder))
        no_ray(patch)

        def refuse(*_: Any, **__: Any) -> Any:
            raise OSError("no network here")

        patch.setattr("raychains.data.fetch.fetch", refuse)
        yield Root(folder, files, kinds)


# Harm


def bits(data: bytes, chance: random.Random) -> bytes:
    """Return bytes that are cut, flipped, doubled, or others."""
    match chance.randrange(6):
        case 0:
            return data[: chance.randrange(len(data) + 1)]
        case 1 | 2:
            changed = bytearray(data)
            for _ in range(chance.choice([1, 1, 4, 40])):
                # What says how to read the rest stands at the ends.
                ends = min(64, len(data))
                place = chance.choice(
                    [chance.randrange(len(data)), chance.randrange(ends), -1 - chance.randrange(ends)]
                )
                changed[place] = chance.choice([0, 1, 127, 128, 255, changed[place] ^ 1 << chance.randrange(8)])
            return bytes(changed)
        case 3:
            return data + data
        case 4:
            return chance.choice([
                b"", b"\0", b"{}", b"[" * 5000, b"\x80\x04.", b"PK\x03\x04", b"\x1f\x8b", b"\xff\xd8", b"PAR1PAR1",
                b"\x93NUMPY", b"\n" * 100,
            ])  # fmt: skip
        case _:
            at = chance.randrange(len(data))
            return data[:at] + chance.randbytes(chance.choice([1, 8, 100])) + data[at:]


def array(chance: random.Random, like: np.ndarray) -> np.ndarray:
    """Return another array than a file should hold."""
    return chance.choice([
        lambda: like[:0], lambda: like[:1], lambda: like.astype(np.float64), lambda: like.astype(np.int64),
        lambda: like.reshape(-1), lambda: like[None], lambda: np.concatenate([like, like]), lambda: like * 0 + 255,
        lambda: like.astype(object), lambda: like.astype("U3"), lambda: np.array(3), lambda: like.T,
        lambda: np.zeros(like.shape, [("a", "u1")]), lambda: np.full(like.shape, np.nan), lambda: like.astype(">i8"),
        lambda: np.asfortranarray(like),
    ])()  # fmt: skip


def idx(data: bytes, chance: random.Random) -> bytes:
    raw = gzip.decompress(data)
    found = np.frombuffer(raw[4 + 4 * raw[3] :], np.uint8).reshape(struct.unpack_from(f">{raw[3]}I", raw, 4))
    other = array(chance, found) if chance.random() < 0.5 else found
    sizes = (
        [*other.shape]
        if chance.random() < 0.5
        else chance.choice([[2**32 - 1] * 3, [0, 28, 28], [], [1] * 60, [20, 28], [2**31, 2, 2]])
    )
    kind = chance.choice([8, 8, 8, 9, 11, 13, 14, 0, 255])
    body = (
        struct.pack(">HBB", 0, kind, len(sizes))
        + struct.pack(f">{len(sizes)}I", *sizes)
        + (b"" if other.dtype == object else other.tobytes())
    )
    return chance.choice([gzip.compress, lambda b: b, lambda b: gzip.compress(bits(b, chance)), zlib.compress])(body)


class Runs:
    """Writes a pickle that would run code."""

    def __reduce__(self) -> Any:
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


def cifar(data: bytes, chance: random.Random) -> bytes:
    found: Any = pickle.loads(data, encoding="latin1")
    key = chance.choice(sorted(found))
    junk = [
        None, [], [None], {}, "x", b"x", 3, 2**70, float("nan"), [2**70] * 20, [1.5] * 20, [True] * 20, [-1] * 20,
        [10**9] * 20, Runs(), np.arange(3), (1, 2),
    ]  # fmt: skip
    match chance.randrange(5):
        case 0:
            del found[key]
        case 1:
            found[key] = chance.choice(junk)
        case 2:
            found["data"] = array(chance, found["data"])
        case 3:
            return pickle.dumps(
                chance.choice([*junk, {b"data": found["data"]}, {1: 2}, [found], {None: found}]),
                protocol=chance.randrange(6),
            )
        case _:
            found = {str(k).encode(): v for k, v in found.items()}
    return pickle.dumps(found, protocol=chance.randrange(6))


def mat(data: bytes, chance: random.Random) -> bytes:
    from scipy.io import loadmat

    found = {k: v for k, v in loadmat(io.BytesIO(data)).items() if not k.startswith("__")}
    key = chance.choice(sorted(found))
    if chance.random() < 0.3:
        del found[key]
    else:
        other = array(chance, found[key])
        number = other * 1.0 if other.dtype.kind in "iuf" else other
        found[key] = chance.choice([other, "text", {"a": 1}, np.array([[1, 2]], dtype=object), number])
    out = io.BytesIO()
    savemat(out, found, do_compression=chance.random() < 0.5)
    return out.getvalue()


def npy(data: bytes, chance: random.Random) -> bytes:
    other, out = array(chance, np.load(io.BytesIO(data))), io.BytesIO()
    np.save(out, other, allow_pickle=True)
    made = out.getvalue()
    if chance.random() < 0.3:  # a header that promises more
        made = made.replace(b"(", chance.choice([b"(9", b"(99999999999999999999", b"(-1, ", b"(["]), 1)
    return chance.choice([made, b"PK" + made, made[:-1]])


def table(data: bytes, chance: random.Random) -> bytes:
    rows = [line.split() for line in data.decode().splitlines()]
    row = chance.choice(rows)
    row[chance.randrange(len(row))] = chance.choice(
        ["nan", "inf", "-1e400", "x", "", "1,5", "½", "9" * 400, "0x1", "\0", "1_0", "1e308"]
    )
    text = "\n".join(
        " ".join(r) for r in chance.choice([rows, rows[1:], rows + rows, [r[:-1] for r in rows], [], rows])
    )
    return text.encode(chance.choice(["utf-8", "utf-8", "utf-16"]))


def picture(data: bytes, chance: random.Random) -> bytes:
    out = io.BytesIO()
    size = chance.choice([(1, 1), (3000, 1), (1, 3000), (32, 32), (0, 0)])
    mode = chance.choice(["RGB", "L", "CMYK", "RGBA", "1", "P", "I;16", "F", "LA"])
    try:
        Image.new(mode, size).save(out, chance.choice(["JPEG", "PNG", "TIFF", "GIF", "BMP", "WEBP", "PPM"]))
    except (OSError, ValueError, SystemError, KeyError, MemoryError):  # the format cannot hold it
        return bits(data, chance)
    return bits(out.getvalue(), chance) if chance.random() < 0.5 else out.getvalue()


def shard(data: bytes, chance: random.Random) -> bytes:
    found = pq.read_table(io.BytesIO(data))
    name = chance.choice(found.column_names)
    at = found.column_names.index(name)
    values: list[Any] = [None, [None] * 3, -1, 10**9, 2**62, 1.5, float("nan"), "x", b"", b"\xff\xd8\xff", True, [1, 2]]
    match chance.randrange(5):
        case 0:
            found = found.drop_columns([name])
        case 1:
            found = found.set_column(at, name, pa.array([chance.choice(values)] * len(found)))
        case 2:
            found = chance.choice([found.slice(0, 0), found.slice(1), pa.concat_tables([found] * 3)])
        case 3:
            jpegs = [picture(b"\xff\xd8" * 40, chance) for _ in range(len(found))]
            found = (
                found.set_column(found.column_names.index("image"), "image", pa.array(jpegs, pa.binary()))
                if "image" in found.column_names
                else found
            )
        case _:
            found = found.rename_columns([*found.column_names[:at], "other", *found.column_names[at + 1 :]])
    out = io.BytesIO()
    pq.write_table(
        found, out, row_group_size=chance.choice([8, 8, 8, 3, 1000]), write_page_checksum=chance.random() < 0.8
    )
    return out.getvalue()


def text(data: bytes, chance: random.Random) -> bytes:
    value = json.loads(data)
    given = repr(value)
    for _ in range(chance.choice([1, 1, 2, 3])):
        how = chance.choice(["replace", "replace", "remove", "extra"])
        value = changed(
            value, chance.choice(list(paths(value))), how, chance.choice([*REPLACEMENTS, 2**62, "/dev/zero", [10**9]])
        )
    assume(repr(value) != given)
    return json.dumps(value).encode(errors="surrogatepass")


WRITERS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "idx": idx, "cifar": cifar, "mat": mat, "npy": npy, "table": table, "picture": picture, "shard": shard,
    "manifest": text, "declaration": text,
}  # fmt: skip


def declared(root: Root, name: str, data: bytes) -> None:
    """Have the root declare a file's new md5."""
    told = json.loads(root.files[FILE])
    if name in told["md5"]:
        told["md5"][name] = hashlib.md5(data, usedforsecurity=False).hexdigest()
        (root.folder / FILE).write_text(json.dumps(told))


# Use


def published(root: Root) -> None:
    """Read every published set and what is known of it."""
    for name, entry in SETS.items():
        for split in entry.splits:
            found = comes_to_one_line(lambda n=name, s=split: sets.load(n, s, root.folder))
            if found is not None:
                assert (
                    found.labels.min() >= 0 and found.labels.max() < found.classes and len(found) == len(found.images)
                )


def corruptions(root: Root) -> None:
    for severity in (1, cifar10_c.SEVERITIES):
        comes_to_one_line(lambda s=severity: cifar10_c.corrupted(cifar10_c.CORRUPTIONS[0], s, root.folder))


def tables(root: Root) -> None:
    for name in tabular.TABLES:
        found = comes_to_one_line(lambda n=name: tabular.load(n, root.folder))
        assert found is None or (np.isfinite(found.features).all() and {*found.targets.tolist()} <= {0.0, 1.0})


def pictures(root: Root) -> None:
    source = root.folder / standins.PICTURES
    comes_to_one_line(lambda: sources.find(source))
    comes_to_one_line(lambda: local_preparation.prepare(source, root.folder.parent / "prepared" / "set"))


def prepared(root: Root) -> None:
    uri = str(root.folder / "imagenet")
    found = comes_to_one_line(lambda: manifest.manifest_at(uri))
    task = comes_to_one_line(lambda: tasks.make("imagefolder-lenet", set="imagenet", size=32))
    comes_to_one_line(lambda: tasks.make("imagefolder-lenet", set="imagenet"))
    if found is not None and task is not None:
        model = task.build_model(seed=0, lanes=1).eval()
        for split in task.splits().values():
            comes_to_one_line(lambda s=split: s.predict(model.state_dict(), 0))


USES: dict[str, tuple[Callable[[Root], None], ...]] = {
    "idx": (published,),
    "cifar": (published,),
    "mat": (published,),
    "npy": (corruptions,),
    "table": (tables,),
    "picture": (pictures,),
    "shard": (prepared,),
    "manifest": (prepared,),
    "declaration": (published, corruptions, tables),
}
TASKS = {
    "idx": "mnist-mlp",
    "cifar": "cifar10-lenet",
    "table": "blr-heart",
    "shard": "imagefolder-lenet",
    "manifest": "imagefolder-lenet",
}


@examples(100, "data root")
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32), writes=st.booleans(), knows=st.booleans())
@example(kind="shard", seed=903, writes=False, knows=False)
@example(kind="declaration", seed=2252, writes=False, knows=False)
@example(kind="declaration", seed=2252, writes=True, knows=True)
@example(kind="manifest", seed=1000004, writes=True, knows=True)
@example(kind="declaration", seed=1000011, writes=False, knows=True)
@example(kind="shard", seed=1000012, writes=False, knows=True)
@example(kind="manifest", seed=1000020, writes=True, knows=True)
@example(kind="mat", seed=1000028, writes=True, knows=True)
@example(kind="npy", seed=1000034, writes=True, knows=True)
@example(kind="npy", seed=1000051, writes=True, knows=True)
@example(kind="shard", seed=1000054, writes=True, knows=True)
@example(kind="manifest", seed=1000129, writes=True, knows=True)
@example(kind="manifest", seed=1000174, writes=True, knows=True)
@example(kind="shard", seed=1000176, writes=True, knows=True)
@example(kind="manifest", seed=1000202, writes=True, knows=False)
@example(kind="npy", seed=1000246, writes=False, knows=True)
@example(kind="shard", seed=1000266, writes=False, knows=True)
@example(kind="declaration", seed=1000369, writes=True, knows=True)
@example(kind="manifest", seed=1000434, writes=True, knows=True)
@example(kind="manifest", seed=1000582, writes=True, knows=False)
@example(kind="mat", seed=1000619, writes=True, knows=True)
@example(kind="declaration", seed=1000622, writes=True, knows=True)
@example(kind="shard", seed=2000079, writes=True, knows=True)
def test_any_file_of_a_data_root(root: Root, kind: str, seed: int, writes: bool, knows: bool) -> None:
    chance = random.Random(seed)
    name = chance.choice(root.kinds[kind])
    assume(not name.endswith((".txt", ".meta")))  # files that nobody reads
    try:
        data = (WRITERS[kind] if writes else bits)(root.files[name], chance)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError, IndexError, struct.error):
        reject()  # the format cannot hold it
    assume(data != root.files[name])
    (root.folder / name).write_bytes(data)
    if knows and kind != "declaration":
        declared(root, name, data)
    before = tree(root.folder)
    try:
        for use in USES[kind]:
            use(root)
        if kind in TASKS:
            length = ["--epochs", "1"] if kind != "table" else ["--steps", "10"]
            asked = ["run", "--task", TASKS[kind], "--data-root", str(root.folder), "--chains", "1", *length]
            said = say([*asked, "--store", str(root.folder.parent / "store")])
            assert said.status in (None, 2)
        assert tree(root.folder) == before and not Path("ran").exists()
    finally:
        root.restore([name, FILE])


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1)])
def test_a_very_long_picture_is_not_scaled_beyond_memory(size: tuple[int, int]) -> None:
    out = io.BytesIO()
    Image.new("RGB", size, (9, 90, 200)).save(out, "JPEG")
    with tried("data root"):
        pixels = central(out.getvalue(), 224)
    assert pixels.shape == (224, 224, 3) and np.ptp(pixels, axis=(0, 1)).max() <= 1


def test_the_root_itself_is_whole(root: Root) -> None:
    """What the property above is compared with."""
    for name, entry in SETS.items():
        for split in entry.splits:
            assert len(sets.load(name, split, root.folder))
    assert all(len(tabular.load(name, root.folder).targets) for name in tabular.TABLES)
    assert len(cifar10_c.corrupted(cifar10_c.CORRUPTIONS[0], 1, root.folder))
    task = tasks.make("imagefolder-lenet", set="imagenet")
    assert len(task.splits()["test"].predict(task.build_model(seed=0, lanes=1).state_dict(), 0))
