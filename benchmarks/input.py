"""Images a second from prepared shards over torchvision's DataLoader on the same pictures, with the same transforms.

Two sets: the Tiny-ImageNet sample as it is (64×64), and pictures of 500×375 made by enlarging them. Random crop,
mirror, resize to 56 or 224 pixels, bytes out; 1 and 2 processes. The ways take turns. *Decoding alone* is one process
that decodes, crops and resizes what is in memory: the limit of any loader per process.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import torch  # noqa: E402
from PIL import Image  # noqa: E402

from benchmarks.machine import facts, ratio  # noqa: E402
from raychains.data.prepared import plan, sources  # noqa: E402
from raychains.data.prepared.feed import Cutting, Feed  # noqa: E402
from raychains.data.prepared.manifest import NAME, Manifest, Rows, Split, fingerprint  # noqa: E402
from raychains.data.prepared.pictures import augmented  # noqa: E402

BATCH, WINDOW = 128, 16


def enlarged(folder: Path, to: Path, count: int, size: tuple[int, int] = (500, 375)) -> Path:
    """``count`` pictures of a folder of classes, enlarged, in the same layout."""
    files = sorted((folder / "train").rglob("*.JPEG"))[:count]
    for file in files:
        target = to / "train" / file.parent.name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.open(file).convert("RGB").resize(size, Image.Resampling.BICUBIC).save(target, quality=90)
    return to


def prepared(folder: Path, to: Path, row_group: int = 64) -> Rows:
    """The train pictures of a folder of classes as shards, without Ray."""
    items = plan.stored_order(sources._folder_of_classes(folder / "train"), 0)
    labels = sources.labels_of({i.label for i in items})
    to.mkdir()
    written = []
    for number, places in enumerate(plan.divided(len(items), 4)):
        name = f"train-{number}.parquet"
        data, one = plan.encode([(i, items[i], labels[items[i].label]) for i in places], name, row_group)
        (to / name).write_bytes(data)
        written.append(one)
    split = Split(
        shards=tuple(w.shard for w in written), fingerprint=fingerprint([i for w in written for i in w.images])
    )
    manifest = Manifest(
        name="benchmark",
        classes=tuple(sorted(labels)),
        words=(),
        seed=0,
        splits={"train": split},
        converted=0,
        skipped=(),
    )
    (to / NAME).write_bytes(manifest.dumps())
    return Rows(str(to), manifest, "train")


class Loader:
    """torchvision's ImageFolder under a DataLoader, epoch after epoch with the same processes."""

    def __init__(self, folder: Path, size: int, processes: int) -> None:
        from torchvision import datasets, transforms

        cut = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
        dataset = datasets.ImageFolder(str(folder / "train"), transforms.Compose(cut))
        self._loader = torch.utils.data.DataLoader(
            dataset, BATCH, shuffle=True, num_workers=processes, persistent_workers=True, prefetch_factor=4
        )

    def epoch(self, _: int) -> Any:
        return iter(self._loader)


class Ours:
    """Shards, row groups by plan, long-lived decoder processes beside this one."""

    def __init__(self, rows: Rows, uri: str, size: int, processes: int) -> None:
        cutting = Cutting(uri=uri, split="train", size=size, batch_size=BATCH, window=WINDOW)
        self._feed = Feed(cutting, rows, decoders=processes)

    def epoch(self, seed: int) -> Any:
        return self._feed.epoch(seed)


def measured(make: Callable[[], Any], rounds: int) -> Callable[[int], tuple[float, float, int]]:
    """A way to run one epoch: images a second, seconds to the first batch, images."""
    way = make()

    def run(seed: int) -> tuple[float, float, int]:
        start, first, images = time.perf_counter(), 0.0, 0
        for pixels, labels in way.epoch(seed):
            first = first or time.perf_counter() - start
            images += len(labels)
            assert len(pixels) == len(labels)
        return images / (time.perf_counter() - start), first, images

    return run


def memory() -> float:
    """Resident megabytes of this process and its children."""
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in told.splitlines()]
    mine = {os.getpid()}
    while more := {pid for pid, parent, _ in rows if parent in mine} - mine:
        mine |= more
    return sum(kilobytes for pid, _, kilobytes in rows if pid in mine) / 1e3


def decoding_alone(rows: Rows, size: int, count: int) -> float:
    """Images a second of one process that has the bytes in memory."""
    jpegs = [j for g in range(len(rows.counts)) for j in rows.read(g)][:count]
    start = time.perf_counter()
    for i, jpeg in enumerate(jpegs):
        augmented(jpeg, size, 1, i)
    return len(jpegs) / (time.perf_counter() - start)


def compare(title: str, folder: Path, rows: Rows, uri: str, size: int, rounds: int) -> None:
    """Print one set's figures."""
    print(f"\n{title}: {len(rows)} pictures, cut to {size}×{size}")
    print(f"  decoding alone, one process  {decoding_alone(rows, size, 500):7.0f} images/s")
    for processes in (1, 2):
        base = memory()
        ways: dict[str, Any] = {
            "DataLoader": measured(lambda p=processes: Loader(folder, size, p), rounds),
            "ours": measured(lambda p=processes: Ours(rows, uri, size, p), rounds),
        }
        found: dict[str, list[float]] = {n: [] for n in ways}
        first: dict[str, list[float]] = {n: [] for n in ways}
        peak = 0.0
        for seed in range(rounds + 1):
            for name, way in ways.items():
                speed, waited, _ = way(seed)
                peak = max(peak, memory())
                if seed:  # the first epoch starts processes
                    found[name].append(speed)
                    first[name].append(waited)
        for name in ways:
            print(
                f"  {processes} process{'es' * (processes > 1)}, {name:10} {median(found[name]):7.0f} images/s, "
                f"first batch after {median(first[name]):.2f} s"
            )
        print(f"  ours / DataLoader: {ratio(found['ours'], found['DataLoader'])}")
        print(f"  memory with all ways' processes: {peak:.0f} MB, {base:.0f} MB before")
        del ways, way  # their processes end with them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--enlarged", type=int, default=2000, help="pictures of 500×375")
    parser.add_argument("--folder", help="a folder of classes; default tiny-imagenet-50 of RAYCHAINS_DATA")
    parser.add_argument("--smoke", action="store_true", help="a few made pictures: shows that it runs")
    given = parser.parse_args()
    print(facts())
    torch.set_num_threads(1)
    work = Path(tempfile.mkdtemp(prefix="rc", dir="/tmp"))
    try:
        if given.smoke:
            given.rounds, given.enlarged = 1, 20
            source = _made(work / "made")
        else:
            source = Path(given.folder or Path(os.environ["RAYCHAINS_DATA"]) / "tiny-imagenet-50")
        compare("64×64", source, prepared(source, work / "small"), str(work / "small"), 56, given.rounds)
        large = enlarged(source, work / "large-raw", given.enlarged)
        compare("500×375", large, prepared(large, work / "large"), str(work / "large"), 224, given.rounds)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _made(folder: Path) -> Path:
    for i in range(40):
        target = folder / "train" / f"n{i % 4}" / f"{i}.JPEG"
        target.parent.mkdir(parents=True, exist_ok=True)
        out = io.BytesIO()
        Image.effect_noise((64, 64), 40).convert("RGB").save(out, "JPEG")
        target.write_bytes(out.getvalue())
    return folder


if __name__ == "__main__":
    main()
