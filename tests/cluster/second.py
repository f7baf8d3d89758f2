"""A run of another process on a cluster that is in use: writes a file when it waits, prints as JSON what it was told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from raychains.orchestration import session, shortage
from raychains.orchestration.driver import Driver, Placement
from raychains.orchestration.lease import Lease
from raychains.planning import listener as told
from raychains.tasks.mixture import Mixture25
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes


class Waits(Diary):
    """Touches a file when the run says that it waits."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def on(self, happening: told.Happening) -> None:
        super().on(happening)
        if isinstance(happening, told.Waiting):
            self._file.touch()


def main(address: str, folder: Path, run: str) -> None:
    folder.mkdir()
    shortage.HELD_AFTER = 1.0
    connected = session.connect(address)
    plan, diary = comparison(Mixture25(), chains=2, steps=300), Waits(folder / "waits")
    with Lease(root(folder), run) as lease:
        outcome = Driver(plan, root(folder), Placement(), diary, lease=lease).run()
    connected.close()
    same = stored_hashes(root(folder), plan) == undisturbed_hashes(plan, Mixture25())
    kinds = [type(h).__name__ for h in diary.happenings]
    found = {
        "same": same, "samples": outcome.samples, "reasons": [h.reason for h in diary.of(told.Waiting)],
        "waiting": kinds.count("Waiting"), "goes on": kinds.count("GoesOn"),
        "lost": [h.reason for h in diary.of(told.SlotGone)],
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
