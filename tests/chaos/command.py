"""`raychains` as it is, but that its linear regression is mortal and is stored in small blocks.

`python -m tests.chaos.command FOLDER ARGUMENTS …` is `raychains ARGUMENTS …`; FOLDER holds the plan of deaths.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from raychains import cli, tasks
from raychains.planning.methods import resolve
from tests.chaos import hooks, worlds


def main(folder: str, arguments: list[str]) -> int:
    tasks.NAMES["linear-regression"] = "tests.chaos.tasks:MortalRegression"
    sys.modules[resolve.__module__].BLOCK_DRAWS = worlds.BLOCK  # type: ignore[attr-defined]
    (Path(folder) / "driver").write_text(str(os.getpid()))
    hooks.arm(folder, "driver", anywhere=True)
    mortal = [f"folder={folder}", f"pause={worlds.PAUSE}"]
    return cli.main([*arguments, "--task", "linear-regression", "--task-settings", *mortal])


def forked(folder: str, arguments: list[str], told: str) -> None:
    """Be the command in a process that exists, whose words go to a file."""
    with open(told, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.pop("RAY_ADDRESS", None)
    sys.exit(main(folder, arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
