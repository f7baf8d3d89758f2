"""Stores that refuse: read-only, without rights, under names that cannot be. One line at once, in place of waits and
warnings."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raychains.core.errors import StorageRefused
from raychains.orchestration import lease
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.store import Storage
from raychains.tasks.mixture import Mixture25
from tests.fuzz.rules import no_ray, say
from tests.orchestration.threads import ThreadWorkers, keep_this_process
from tests.orchestration.worlds import Diary, comparison, root
from tests.processes import SECONDS, outside, until

NOBODY = 65534


def mounted(folder: Path) -> None:
    """A filesystem of its own at ``folder``; where nobody may mount one, the test is skipped with the system's
    reason."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine lets nobody mount a filesystem: {done.stderr.strip()}")


def remount(folder: Path, how: str) -> None:
    """As `mount -o remount` does; busy while somebody writes."""
    until(lambda: not subprocess.run(["mount", "-o", f"remount,{how}", str(folder)]).returncode, "a remount", 60)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "store"
    mounted(folder)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> ThreadWorkers:
    keep_this_process(monkeypatch)
    return ThreadWorkers()


def said_at_once(act: Callable[[], object], *words: str) -> None:
    with pytest.raises(StorageRefused) as caught:
        act()
    text = str(caught.value)
    assert caught.value.exit_status == 2 and "\n" not in text and all(word in text for word in words), text


def impatient(folder: Path) -> Storage:
    return Storage(folder).retrying(lambda reason: pytest.fail(f"it waits: {reason}"))


# One call


def test_a_name_below_a_file(tmp_path: Path) -> None:
    store = impatient(tmp_path / "store")
    store.publish("chains", b"a file where a folder belongs")
    for act in (lambda: store.publish("chains/x/y", b""), lambda: store.names("chains")):
        said_at_once(act, str(tmp_path), "store must exist")
    said_at_once(lambda: store.read("chains/x"), "chains/x", "Not a directory")


def test_a_folder_where_a_file_belongs(tmp_path: Path) -> None:
    store = impatient(tmp_path)
    store.publish("runs/a/report.html/x", b"")
    said_at_once(lambda: store.publish("runs/a/report.html", b""), "report.html", "Is a directory")
    assert store.names("runs/a") == ["report.html"], "no temporary file is left"


def test_a_path_too_long_for_the_system(tmp_path: Path) -> None:
    store = impatient(tmp_path)
    said_at_once(lambda: store.publish("/".join(["x" * 200] * 30), b""), "too long")
    with pytest.MonkeyPatch.context() as patch:
        no_ray(patch)
        for path in (tmp_path / ("y" * 300), tmp_path.joinpath(*["y" * 200] * 30), tmp_path / "file" / "x"):
            (tmp_path / "file").write_text("")
            for command in (["run", "--task", "mixture25", "--store"], ["status"], ["report"]):
                said = say([*command, str(path)])
                assert said.status == 2, said


def test_a_read_only_filesystem(disk: Path) -> None:
    store = impatient(disk)
    store.publish("a/x", b"before")
    remount(disk, "ro")
    for act in (lambda: store.publish("a/y", b""), lambda: store.create("a/z", b""), lambda: store.delete("a/x")):
        said_at_once(act, str(disk), "Read-only file system")
    assert store.read("a/x") == b"before"


FORBIDDEN = """
import os, sys
from raychains.store import Storage
from raychains.core.errors import StorageRefused
root = Storage(sys.argv[1])
if not os.geteuid():
    os.setuid(int(sys.argv[2]))  # root has all rights
for act in (lambda: root.publish("a/x", b""), lambda: root.names("a"), lambda: root.read("a/y")):
    try:
        act()
    except StorageRefused as error:
        print(error.exit_status, error)
"""


def test_a_folder_without_rights() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "a").mkdir(mode=0)
        command = [sys.executable, "-c", FORBIDDEN, folder, str(NOBODY)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=outside())
        (Path(folder) / "a").chmod(0o700)
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    assert all(line.startswith("2 store must exist") and "Permission denied" in line for line in said), said


# Runs


def sampled(folder: Path, threads: ThreadWorkers, refuse: Callable[[], None]) -> None:
    """A run under whose feet the store begins to refuse once it has samples: it must end with one line."""
    store = folder / "store"

    def later() -> None:
        until(lambda: any(store.glob("chains/*/samples/*.safetensors")), "a sample")
        refuse()

    breaking = threading.Thread(target=later, daemon=True)
    breaking.start()
    plan = comparison(Mixture25(), chains=4, steps=40_000, block=50)
    resources, own = ResourceConfig(checkpoint_every=0.2), root(folder)
    said_at_once(
        lambda: run_chains(plan, own, resources, Diary(), lease=Lease(own), workers=threads),
        str(store),
    )
    breaking.join()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("raychains") and r.levelno > 20]


def test_a_run_whose_store_becomes_read_only(
    disk: Path, threads: ThreadWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    sampled(disk.parent, threads, lambda: remount(disk, "ro"))
    assert len(warnings(caplog)) <= 2


def test_a_run_whose_chains_folder_is_gone(
    tmp_path: Path, threads: ThreadWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    """The same on any machine: a file is where the folder was."""

    def refuse() -> None:
        chains = tmp_path / "store" / "chains"
        chains.rename(tmp_path / "moved")
        while not chains.is_file():
            with contextlib.suppress(IsADirectoryError):  # a writer made it anew
                shutil.rmtree(chains, ignore_errors=True)
                chains.write_text("")

    sampled(tmp_path, threads, refuse)
    assert len(warnings(caplog)) <= 2


def test_a_lease_that_cannot_be_renewed_ends_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease, "FIRST_RENEWALS", (0.05,))
    with Lease(Storage(tmp_path), "a") as held:
        drivers = tmp_path / "drivers"
        shutil.rmtree(drivers)
        drivers.write_text("")
        until(lambda: held.lost, "the renewal", 30)
        assert held.lost is not None and "drivers" in held.lost and not warnings(caplog)
