"""Stores of others that would hang a reader, fill its memory or lead it elsewhere: one line each, at once."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from rich.table import Table
from rich.text import Text
from torch import Tensor

import raychains as rc
from raychains.core import bounded
from raychains.core.checksum import sealed
from raychains.core.errors import RaychainsError, StorageRefused, UserError
from raychains.data.formats import read_idx
from raychains.data.prepared import local_preparation
from raychains.data.prepared.plan import as_jpeg
from raychains.report.console import Console
from raychains.status.command import display
from raychains.status.reading import Reader
from raychains.store import ChainStore, RunStore, Storage, codec
from tests.checks import refused
from tests.fuzz import made
from tests.fuzz.rules import bounded as in_time
from tests.fuzz.rules import no_ray, say
from tests.fuzz.tally import tried
from tests.processes import outside

MOST = 6 * 10**6
"""Bytes of what a small run's files come to, many times over."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    made.make(folder)
    return folder


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(whole, tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        no_ray(patch)
        yield tmp_path / "store"


def sparse(file: Path, size: int = 40 * 10**9) -> None:
    """A file that claims a length and takes no room."""
    file.unlink(missing_ok=True)
    with file.open("wb") as f:
        f.truncate(size)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def table(file: Path, rows: int = 3_000_000) -> None:
    """A small file of many rows: the columns of the table that was there, whose values repeat."""
    there = pq.read_table(file)
    pq.write_table(there.take(pa.array(np.zeros(rows, np.int8))), file)
    assert file.stat().st_size < MOST


SAMPLE, INDEX, PROGRESS = "chains/*/samples/*", "chains/*/samples.parquet", "chains/*/progress.parquet"
CHECKPOINT, RESULTS, PLAN = "chains/*/checkpoints/*", "runs/small/results.parquet", "runs/small/plan.json"


FIRST = [(SAMPLE, pipe), (INDEX, table), (CHECKPOINT, sparse), (RESULTS, table), (PLAN, sparse), (PROGRESS, pipe)]
OTHERS = [(SAMPLE, sparse), (CHECKPOINT, pipe), (RESULTS, pipe), (RESULTS, sparse), (PLAN, pipe)]
OTHERS += [(INDEX, pipe), (INDEX, sparse), (PROGRESS, sparse), (PROGRESS, table)]


@pytest.mark.parametrize(
    ("kind", "harm"), [*FIRST, *(pytest.param(*other, marks=pytest.mark.long) for other in OTHERS)]
)
def test_no_file_is_waited_for_or_read_into_memory_whatever_it_claims(
    store: Path, kind: str, harm: Callable[[Path], None]
) -> None:
    files = list(store.glob(kind))
    assert files
    for file in files:
        harm(file)
    run = str(store / "runs" / "small")
    with tried("store"):  # in time, and in less memory than a table takes that is read whole
        for command in (["report", run], ["status", run], ["evaluate", run], ["export", run, "--to", f"{store}.x"]):
            said = say(command)
            if harm is table and kind == RESULTS and command[0] == "report":
                assert said.status == 2 and "at most 1,000,000 rows" in said.err
        for spec in made.comparison().chains().values():
            chain = ChainStore(Storage(store), spec.digest)
            for read in (chain.records, chain.newest_checkpoint, chain.progress):
                with in_time():
                    try:
                        read()
                    except UserError as error:
                        assert "\n" not in str(error)


def test_a_pipe_and_a_device_are_refused_by_name(store: Path) -> None:
    os.mkfifo(store / "pipe")
    (store / "zero").symlink_to("/dev/zero")
    for name, kind in (("pipe", "named pipe"), ("zero", "device"), ("chains", "folder")):
        with in_time(), refused("file", "regular", name, kind):
            Storage(store).read(name)
        with in_time(), refused("file", "regular", name, kind):
            Storage(store).read_range(name, 0, 10)


def test_an_object_store_has_the_same_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.storage.faults import faulty

    _, filesystem = faulty()  # any filesystem but the local one
    sparse(tmp_path / "x.json")
    sparse(tmp_path / "y.bin")
    root = Storage(tmp_path, filesystem)
    with refused("file", f"{bounded.LARGEST_TEXT:,}", "x.json", "40,000,000,000"):
        root.read("x.json")
    with refused("file", f"{bounded.LARGEST:,}", "y.bin"):
        root.read("y.bin")
    assert root.read_range("y.bin", 10**10, 5) == b"\0" * 5


# Samples that no chain of the run wrote, although their checksums are right


def rewritten(store: Path, change: Callable[[dict[str, Tensor]], object], **own: object) -> Path:
    """The first sample with other tensors or another description."""
    file = sorted(store.glob("chains/*/samples/*"))[0]
    tensors, said = codec.decode(file.read_bytes())
    change(tensors)
    file.write_bytes(codec.encode(tensors, {k: v for k, v in said.items() if k not in ("format", "sha256")} | own))
    for index in file.parent.parent.glob("*.parquet"):
        index.unlink()
    return file


CHANGES: dict[str, tuple[Callable[[dict[str, Tensor]], object], str]] = {
    "nan": (lambda t: t["layers.0.bias"].fill_(float("nan")), "finite"),
    "infinite": (lambda t: t["layers.0.bias"].fill_(float("inf")), "finite"),
    "missing": (lambda t: t.pop("layers.0.bias"), "layers.0.bias"),
    "more": (lambda t: t.update(more=torch.zeros(2)), "more"),
    "shape": (lambda t: t.update({"layers.0.bias": torch.zeros(5)}), "layers.0.bias"),
    "none": (lambda t: t.clear(), "layers.0.bias"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_samples_of_another_network_or_that_are_not_finite_are_not_used(store: Path, kind: str) -> None:
    change, word = CHANGES[kind]
    file = rewritten(store, change)
    run = rc.load(str(store / "runs" / "small"))
    for use in (lambda: run.predict(np.zeros((2, 64), np.float32)), lambda: run.export(str(store / "x.safetensors"))):
        with pytest.raises(RaychainsError) as caught:
            use()
        text = str(caught.value)
        assert caught.value.exit_status == 2 and word in text and file.name in text and "\n" not in text, text
    assert not (store / "x.safetensors").exists()


# Texts


CONTROLS = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e\r\x00"


def test_no_text_of_a_store_controls_a_terminal(store: Path) -> None:
    plan = store / "runs" / "small" / "plan.json"
    told = json.loads(plan.read_text())
    for arm in told["comparison"]["arms"]:
        arm["label"] = f"arm {CONTROLS}"
    told |= {"command": CONTROLS, "notes": [f"warning: {CONTROLS}"]}
    plan.write_text(json.dumps(sealed(told)))
    run = str(plan.parent)
    shown = [said.out + said.err for said in (say(["status", run]), say(["report", run]))]
    shown.append(repr(rc.load(run)))
    shown.append((plan.parent / "report.html").read_text())
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, color_system=None, width=200)
    terminal.print(Text(CONTROLS), CONTROLS, Table(CONTROLS))
    display(terminal, Reader(run).read(), 5)
    shown.append(out.getvalue())
    assert "arm \\x1b[31mred" in shown[0] + shown[2]
    for text in shown:
        assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t"], text


def test_the_log_of_a_command_controls_no_terminal() -> None:
    code = "import sys, logging; from raychains.cli import main; main(['--version']); logging.warning(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, "\x1b[31m"], capture_output=True, text=True, env=outside())
    assert "\\x1b[31m" in done.stderr and "\x1b" not in done.stderr


# Links


@pytest.mark.parametrize("inner", ["runs/small", "runs", "chains", "drivers"])
def test_nothing_is_written_behind_a_link_that_leads_out_of_the_store(store: Path, tmp_path: Path, inner: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.json").write_text("{}")
    if (store / inner).exists():
        (store / inner).rename(tmp_path / "moved")
        shutil.copytree(tmp_path / "moved", outside, dirs_exist_ok=True)
    (store / inner).symlink_to(outside)
    before = {p: p.read_bytes() for p in outside.rglob("*") if p.is_file()}
    root = Storage(store)
    name = f"{inner}/kept.json" if "/" in inner or inner == "drivers" else f"{inner}/x/kept.json"
    for act in (lambda: root.publish(name, b"new"), lambda: root.create(f"{name}.new", b""), lambda: root.delete(name)):
        with pytest.raises(StorageRefused, match="link"):
            act()
    with pytest.raises(StorageRefused, match="link"):
        root.folder(f"{inner}/x")
    if inner.startswith("runs"):
        assert say(["report", str(store / "runs" / "small")]).status == 2
    assert {p: p.read_bytes() for p in outside.rglob("*") if p.is_file()} == before


def test_the_store_may_be_a_link_itself_and_may_have_links_within(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store)
    (store / "runs" / "again").symlink_to(store / "runs" / "small")
    root = Storage(tmp_path / "link")
    root.publish("runs/again/x", b"1")
    assert (store / "runs" / "small" / "x").read_bytes() == b"1"
    assert root.folder("runs/again/tensorboard") == tmp_path / "link" / "runs" / "again" / "tensorboard"
    assert say(["report", str(tmp_path / "link" / "runs" / "small")]).status == 0


# Data


def test_what_is_packed_is_not_unpacked_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LARGEST", 1_000_000)
    with refused("file", "1,000,000", "images"):
        read_idx(gzip.compress(bytes(2_000_000)), "images")


def test_a_picture_of_too_many_pixels_is_a_damaged_one() -> None:
    out = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(out, "PNG")
    with pytest.raises(OSError, match="pixels"):
        as_jpeg(out.getvalue())


def test_a_pipe_among_pictures(tmp_path: Path) -> None:
    """One that takes a picture's place between the listing and the reading."""
    folder = tmp_path / "pictures" / "train" / "a"
    folder.mkdir(parents=True)
    for name in "xy":
        Image.new("RGB", (8, 8)).save(folder / f"{name}.jpg")
    from raychains.data.prepared import sources
    from raychains.data.prepared.plan import Plan, encode

    plan = Plan(name="p", source=sources.find(tmp_path / "pictures"))
    (folder / "x.jpg").unlink()
    os.mkfifo(folder / "x.jpg")
    with in_time(), refused("file", "regular", "x.jpg"):
        encode(plan.works[0].items, "shard")
    with in_time():
        assert local_preparation.prepare(tmp_path / "pictures", tmp_path / "set").splits["train"].images == 1


def pictures(folder: Path, name: bytes = b"c/a.jpg") -> Path:
    file = os.fsencode(folder / "train") + b"/" + name
    os.makedirs(os.path.dirname(file))
    Image.new("RGB", (8, 8)).save(os.fsdecode(file), "JPEG")
    return folder


def test_prepare_says_in_one_line_what_is_wrong_with_names_and_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_ray(monkeypatch)
    good, long = pictures(tmp_path / "good"), tmp_path / ("y" * 300)
    for number, name in enumerate((b"c/a\xff.jpg", b"c\xff/a.jpg")):
        said = say(
            ["prepare", "n", "--from", str(pictures(tmp_path / str(number), name)), "--to", str(tmp_path / "to")]
        )
        assert said.status == 2 and "UTF-8" in said.err and "\\udcff" in said.err
    for source, target in ((long, tmp_path / "to"), (long.joinpath(*["y" * 200] * 30), tmp_path / "to"), (good, long)):
        said = say(["prepare", "n", "--from", str(source), "--to", str(target)])
        assert said.status == 2 and ("--from must" in said.err or "--to must" in said.err)
    for content in (b"{", b"[1]", b"\xff", b"[" * 100_000):
        (tmp_path / "to").mkdir(exist_ok=True)
        (tmp_path / "to" / "plan.json").write_bytes(content)
        assert "--to must be empty" in say(["prepare", "n", "--from", str(good), "--to", str(tmp_path / "to")]).err


def test_a_folder_where_the_report_belongs(store: Path) -> None:
    (store / "runs" / "small" / "report.html").mkdir()
    said = say(["report", str(store / "runs" / "small")])
    assert said.status == 2 and "report.html" in said.err and "directory" in said.err


def test_reading_leaves_no_thread_and_no_open_file(store: Path) -> None:
    run = rc.load(str(store / "runs" / "small"))
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run.predict(np.zeros((1, 64), np.float32))
        RunStore(Storage(store), "small").table("results")
    assert threading.active_count() <= before[0] and len(os.listdir("/proc/self/fd")) <= before[1]
