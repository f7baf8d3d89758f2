"""Writes store_v0.tar.gz and store_v0.json beside this file, with the raychains that Python imports: see README.md."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from tests.compatibility.commands import DENSITY, FINISHED, INTERRUPTED, MEASURES, OWN, SWEEP
from tests.compatibility.reading import described, machine, tables_of
from tests.processes import kill_session

HERE = Path(__file__).parent
MADE = (
    f"{FINISHED} --repeats 2 --name finished --listen jsonl",
    f"evaluate store/runs/finished --views chains cycles --measures {' '.join(MEASURES)}",
    f"{DENSITY} --name density",
    f"{SWEEP} --name sweep",
    f"{OWN} --name own",
)
WRITTEN = 1_700_000_000
"""Modification time of every file in the archive: leases of drivers in it are old on any machine."""


def main() -> None:
    """Make the store in a temporary folder and pack it; then finish the interrupted run, and write what to expect."""
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as name:
        folder = Path(name)
        raychains("init-task mytask.py", folder)
        shutil.copy(folder / "mytask.py", HERE / "mytask.py.txt")
        for command in MADE:
            raychains(command if command.startswith("evaluate") else f"{command} --store store", folder)
        interrupt(folder)
        expected = {"tables": tables(folder), "pages": pages(folder)}
        pack(folder, HERE / "store_v0.tar.gz")
        raychains(f"{INTERRUPTED} --name interrupted --resume --store store", folder)
        expected |= {"interrupted": finished_chains(folder)}
        (HERE / "store_v0.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


def raychains(command: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "raychains.cli", *command.split()], cwd=folder, check=True, env=environment())


def environment() -> dict[str, str]:
    """The process's environment without a cluster to join."""
    return {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}


def interrupt(folder: Path) -> None:
    """Start the run and kill it, workers and driver, while its second chain has samples and a checkpoint but is not
    through."""
    process = subprocess.Popen(
        [sys.executable, "-m", "raychains.cli", *INTERRUPTED.split(), "--name", "interrupted", "--store", "store"],
        cwd=folder, start_new_session=True, env=environment(),
    )  # fmt: skip
    before = set((folder / "store" / "chains").iterdir())
    while True:
        assert process.poll() is None, "it was through before it was killed"
        chains = set((folder / "store" / "chains").iterdir()) - before
        through = [c for c in chains if (c / "samples.parquet").exists()]
        half = [c for c in chains if len(list(c.glob("samples/*"))) > 3 and list(c.glob("checkpoints/*"))]
        if len(through) == 1 and set(half) - set(through):
            break
        time.sleep(0.001)
    kill_session(process.pid)
    process.wait()


def tables(folder: Path) -> dict[str, object]:
    """What `raychains.load(…).table(full=True)` gives of each finished run, and the sweep's best point."""
    import raychains as rc

    os.chdir(folder)
    names = ("finished", "density", "own")
    shown = {
        name: json.loads(rc.load(f"store/runs/{name}").table(full=True).reset_index().to_json(orient="records"))
        for name in names
    }
    return {**shown, "best": json.loads((folder / "store/sweeps/sweep/best.json").read_text())}


def pages(folder: Path) -> dict[str, object]:
    found = sorted(folder.glob("store/*/*/report.html"))
    return {path.parent.name: tables_of(path.read_text(encoding="utf-8")) for path in found}


def finished_chains(folder: Path) -> dict[str, object]:
    """Of each chain of the interrupted run its samples: hashes, and some numbers for machines that give other bytes."""
    import raychains as rc

    chains = rc.load("store/runs/interrupted").comparison.chains()
    return {
        "machine": machine(folder / "store", list(chains)),
        "chains": {digest: described(folder / "store", digest) for digest in chains},
    }


def pack(folder: Path, to: Path) -> None:
    """Pack the store as a tar file, without pages and pictures: they are drawn again from the tables."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = WRITTEN, 0, 0, "", ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(p for p in folder.glob("store/**/*") if p.is_file()):
            if path.suffix not in (".html", ".svg", ".png"):
                tar.add(path, arcname=str(path.relative_to(folder)), filter=plain)
    to.write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))


if __name__ == "__main__":
    main()
