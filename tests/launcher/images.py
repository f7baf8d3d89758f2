"""What the Dockerfile must be: one that builds this checkout with the tested versions, for pods that are not root."""

from __future__ import annotations

import fnmatch
import re
import shlex

from tests.launcher import constraints
from tests.launcher.constraints import RAY, ROOT


def instructions(text: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, arguments) of a Dockerfile, lines that go on joined, comments left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined)]


def problems(text: str, ignored: str) -> list[str]:
    """Everything that is wrong with it, in words; nothing for a good one.

    Args:
        text: the Dockerfile.
        ignored: its .dockerignore.
    """
    steps = instructions(text)
    found = []
    bases = [rest for word, rest in steps if word == "FROM"]
    if not bases or any(":" not in b or b.endswith(":latest") for b in bases):
        found.append("a base image without a version")
    copied: list[str] = []
    for word, rest in steps:
        if word in ("COPY", "ADD"):
            *sources, _ = [w for w in shlex.split(rest) if not w.startswith("--")]
            copied += sources
        if word == "RUN":
            found += constraints.problems(rest, "constraints.txt", ".")
            if "pip install" in rest and not {"constraints.txt", "pyproject.toml", "raychains"} <= set(copied):
                found.append("the package is installed before it is copied")
    found += [f"COPY of {s}, which does not exist" for s in copied if not (ROOT / s).exists()]
    found += [f".dockerignore keeps {s} out" for s in copied if not _sent(s, ignored)]
    found += [f"{f} is not copied" for f in ("jobs", "README.md", "LICENSE") if f not in copied]
    if not any(word == "RUN" and "pip install" in rest and " . " in f"{rest} " for word, rest in steps):
        found.append("raychains itself is not installed")
    versions = set(re.findall(r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", " ".join(r for w, r in steps if w == "RUN")))
    if versions != {RAY}:
        found.append(f"the version that is checked is not Ray {RAY}")
    users = [rest for word, rest in steps if word == "USER"]
    if not users or users[-1] in ("root", "0"):
        found.append("it runs as root")
    return found


def _sent(path: str, ignored: str) -> bool:
    """Whether the build's context has the path: the last pattern that fits decides."""
    sent = True
    for line in ignored.splitlines():
        pattern = line.strip().removeprefix("!")
        if pattern and not line.startswith("#") and fnmatch.fnmatch(path, pattern):
            sent = line.startswith("!")
    return sent
