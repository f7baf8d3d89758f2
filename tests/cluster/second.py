"""A run of another process on a cluster that is in use: writes a file when it waits, prints as JSON what it was
events."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from raychains.orchestration.cluster import session
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run import resource_wait
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from raychains.tasks.mixture import Mixture25
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes


class Waits(Diary):
    """Touches a file when the run says that it waits."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.Waiting):
            self._file.touch()


def main(address: str, folder: Path, run: str) -> None:
    folder.mkdir()
    resource_wait.HELD_AFTER = 1.0
    connected = session.connect(address)
    plan, diary = comparison(Mixture25(), chains=2, steps=300), Waits(folder / "waits")
    with Lease(root(folder), run) as lease:
        outcome = run_chains(plan, root(folder), ResourceConfig(), diary, lease=lease)
    connected.close()
    same = stored_hashes(root(folder), plan) == undisturbed_hashes(plan, Mixture25())
    kinds = [type(h).__name__ for h in diary.happenings]
    found = {
        "same": same, "samples": outcome.samples, "reasons": [h.reason for h in diary.of(events.Waiting)],
        "waiting": kinds.count("Waiting"), "goes on": kinds.count("Resumed"),
        "lost": [h.reason for h in diary.of(events.WorkerLost)],
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
