"""A Ray that is started here is this machine's alone: nothing that nobody asks runs, and nothing listens to the
network."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

import pytest
import ray
from ray._private import ray_constants as constants

from tests.jobs.keeper import descendants

LISTENING = "0A"
"""The state in /proc/net/tcp."""


def sockets(pids: set[int]) -> set[str]:
    """Inodes of the sockets that processes hold."""
    found = set()
    for pid in pids:
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                name = os.readlink(entry.path)
                if name.startswith("socket:["):
                    found.add(name[8:-1])
        except OSError:
            continue
    return found


def address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address in /proc/net/tcp's hexadecimal, whose words are in the machine's byte order."""
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(words))
    return getattr(found, "ipv4_mapped", None) or found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_local_ray_listens_to_this_machine_only(ray_session: None) -> None:
    @ray.remote(num_cpus=0)
    def nothing() -> int:
        return os.getpid()

    assert ray.get(nothing.remote()) != os.getpid()  # so that a worker process listens too
    node = ray._private.worker._global_node
    assert not node.webui_url
    unasked = (constants.PROCESS_TYPE_DASHBOARD, constants.PROCESS_TYPE_MONITOR, constants.PROCESS_TYPE_LOG_MONITOR)
    assert constants.PROCESS_TYPE_RAYLET in node.all_processes and not node.all_processes.keys() & set(unasked)
    assert type(node).start_monitor.__name__ == "start_monitor", "another Ray of this process would lack it"
    started = {info.process.pid for infos in node.all_processes.values() for info in infos} | {os.getpid()}
    mine = sockets({p for pid in started for p in (pid, *descendants(pid))})
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and words[9] in mine:
                listening.append(address(words[1].partition(":")[0]))
    assert len(listening) >= 3  # the driver, the raylet, the control store
    assert all(a.is_loopback for a in listening), listening
