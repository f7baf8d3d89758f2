"""A local disk without room: real limits of the operating system where there are some, in processes of their own."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raychains.core.errors import StorageRefused
from raychains.store import Storage, filesystem
from tests.processes import SECONDS

REPOSITORY = Path(__file__).parents[2]
SMALL = 1_000_000
"""Bytes of the small filesystem."""


FILL = """
import os, sys
from raychains.core.errors import StorageRefused
from raychains.store import Storage
root = Storage(sys.argv[1])
root.publish("a/before", b"intact")
written = 0
try:
    for number in range(100):
        root.publish(f"a/{number:03d}", os.urandom(100_000))
        written += 1
except StorageRefused as error:
    print(written, error.exit_status, str(error))
assert root.read("a/before") == b"intact"
there = os.listdir(root.uri + "/a")
assert len(root.names("a")) == written + 1 and len(there) == written + 1, there
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
        probe = subprocess.run([*command[:4], "sh", "-c", mount], capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if probe.returncode:
        pytest.skip(f"this machine lets nobody mount a small filesystem: {probe.stderr.strip()}")
    environment = {**os.environ, "FILL": FILL}
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stderr
    written, status, message = done.stdout.strip().split(" ", 2)
    assert 5 <= int(written) < 10 and status == "2"
    assert "full" in message and "intact" in message and "`resume=True`" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_the_kernels_own_full_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes to /dev/full fail with ENOSPC as they do on a full disk."""
    root = Storage(tmp_path)
    root.publish("a/x", b"the version before")
    monkeypatch.setattr(filesystem, "open", lambda _, mode: Path("/dev/full").open(mode), raising=False)  # noqa: SIM115
    with pytest.raises(StorageRefused, match=r"full.*a/x.*intact.*`resume=True`") as caught:
        root.publish("a/x", b"data")
    monkeypatch.undo()
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOSPC
    assert root.read("a/x") == b"the version before" and os.listdir(tmp_path / "a") == ["x"]
