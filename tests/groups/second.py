"""The command of another driver, which waits for a group's room: writes files when it says so, and when a chain
began."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from raychains.cli import main
from raychains.orchestration.run import resource_wait
from raychains.planning import events


class Notes:
    """Touches a file for each of two events."""

    def on(self, event: events.RunEvent) -> None:
        if isinstance(event, events.Waiting | events.ChainBegan):
            (Path(os.environ["NOTES"]) / type(event).__name__).touch()


if __name__ == "__main__":
    resource_wait.HELD_AFTER = 1.0
    sys.exit(main(sys.argv[1:]))
