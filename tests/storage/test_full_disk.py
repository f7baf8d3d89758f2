"""A local disk without room: real limits of the operating system where there are some, in processes of their own."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raychains.errors import StorageFull
from raychains.store import Root, local

REPOSITORY = Path(__file__).parents[2]
SMALL = 1_000_000
"""Bytes of the small filesystem, or that a process may write to a file."""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a fresh interpreter prints; ``folder`` is its first argument."""
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120)


FILL = """
import os, sys
from raychains.errors import StorageFull
from raychains.store import Root
root = Root(sys.argv[1])
root.publish("a/before", b"intact")
written = 0
try:
    for number in range(100):
        root.publish(f"a/{number:03d}", os.urandom(100_000))
        written += 1
except StorageFull as error:
    print(written, error.exit_status, str(error))
assert root.read("a/before") == b"intact"
assert len(root.names("a")) == written + 1 and len(os.listdir(root.uri + "/a")) == written + 1, os.listdir(root.uri + "/a")
assert all(root.size(f"a/{number:03d}") == 100_000 for number in range(written))
root.delete("a/000")
root.publish("a/again", os.urandom(100_000))
"""


def test_a_filesystem_that_is_really_full(tmp_path: Path) -> None:
    """A tmpfs of one megabyte, in a mount namespace of the process's own."""
    mount = f"mkdir -p {tmp_path}/disk && mount -t tmpfs -o size={SMALL} none {tmp_path}/disk"
    inside = f'{mount} && exec {sys.executable} -c "$FILL" {tmp_path}/disk'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside]
    try:
        probe = subprocess.run([*command[:4], "sh", "-c", mount], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if probe.returncode:
        pytest.skip(f"this machine lets nobody mount a small filesystem: {probe.stderr.strip()}")
    environment = {**os.environ, "FILL": FILL}
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    written, status, message = done.stdout.strip().split(" ", 2)
    assert 5 <= int(written) < 10 and status == "2"
    assert "full" in message and "intact" in message and "--resume" in message


def test_a_disk_that_fills_up_in_the_middle_of_a_write(tmp_path: Path) -> None:
    """The process's own file size limit stops a real write half-way; the number it gives is made a full disk's."""
    code = f"""
import errno, os, resource, signal, sys
import raychains.store.local as local
from raychains.errors import StorageFull
from raychains.store import Root
root = Root(sys.argv[1])
root.publish("a/x", b"the version before")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({SMALL}, {SMALL}))
try:
    root.publish("a/x", os.urandom(2 * {SMALL}), keep_trying=lambda reason: sys.exit("tried again: " + reason))
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    sys.exit("it was written")
assert root.read("a/x") == b"the version before" and os.listdir(root.uri + "/a") == ["x"]

real = open
class Full:
    def __init__(self, *arguments):
        self.file = real(*arguments)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def fileno(self):
        return self.file.fileno()
    def flush(self):
        self.file.flush()
    def write(self, data):
        try:
            self.file.write(data)
            self.file.flush()
        except OSError as error:
            assert error.errno == errno.EFBIG and os.fstat(self.fileno()).st_size == {SMALL}
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
local.open = Full
try:
    root.publish("a/x", os.urandom(2 * {SMALL}), keep_trying=lambda reason: sys.exit("tried again: " + reason))
except StorageFull as error:
    print(error)
assert root.read("a/x") == b"the version before" and os.listdir(root.uri + "/a") == ["x"]
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "full" in done.stdout and f"{tmp_path}/a/x" in done.stdout and "intact" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_the_kernels_own_full_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes to /dev/full fail with ENOSPC as they do on a full disk."""
    root = Root(tmp_path)
    root.publish("a/x", b"the version before")
    monkeypatch.setattr(local, "open", lambda _, mode: Path("/dev/full").open(mode), raising=False)  # noqa: SIM115
    with pytest.raises(StorageFull, match=r"full.*a/x.*intact.*--resume") as caught:
        root.publish("a/x", b"data")
    monkeypatch.undo()
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOSPC
    assert root.read("a/x") == b"the version before" and os.listdir(tmp_path / "a") == ["x"]
