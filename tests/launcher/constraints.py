"""The versions of constraints.txt, and whether `pip install` lines hold to them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.M))
RAY = VERSIONS["ray"]

FOREIGN = re.compile(r"https?://|git\+|--(extra-)?index-url|\s-i\s|--find-links|\.whl")
"""What would fetch packages from a place of our choice instead of the reader's."""


def problems(command: str, constraints: str, local: str) -> list[str]:
    """What is wrong with the pip calls of a shell command.

    Args:
        command: any shell command.
        constraints: where constraints.txt lies for it.
        local: the path that installs this package itself.
    """
    found = []
    for call in re.findall(r"pip install ([^&|;)]*)", command):
        words = shlex.split(call)
        if "-c" not in words or words[words.index("-c") + 1] != constraints:
            found.append(f"pip install without -c {constraints}: {call}")
            continue
        names = [w for i, w in enumerate(words) if not w.startswith("-") and words[i - 1] != "-c"]
        loose = [n for n in names if n != local and "==" not in n and n not in VERSIONS]
        found += [f"pip install leaves {n}'s version open" for n in loose]
        found += [f"{n} is not what constraints.txt says" for n in names if _differs(n)]
    return found + [f"packages from a place of its own: {command}" for _ in FOREIGN.findall(command)]


def _differs(requirement: str) -> bool:
    name, pinned, version = requirement.partition("==")
    return bool(pinned) and VERSIONS.get(name, version) != version
