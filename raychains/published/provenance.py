"""Where results come from: the code's commit, and the Environment of every chain."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import raychains
from raychains.store import ChainStore, Root


def commit() -> str:
    """The commit of the checkout that this package belongs to, ``-dirty`` where it was changed; else the version."""
    # An environment may lie in somebody else's checkout, which does not know this file.
    known = _git("ls-files", "--error-unmatch", Path(raychains.__file__).name)
    found = _git("describe", "--always", "--abbrev=12", "--dirty") if known else ""
    return found or f"raychains {raychains.__version__}"


def _git(*command: str) -> str:
    """What git says of the package's folder; nothing where it knows nothing."""
    here = Path(raychains.__file__).resolve().parent
    try:
        said = subprocess.run(
            ["git", "-C", str(here), *command], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""


def environments(root: Root, digests: Iterable[str]) -> tuple[list[dict[str, Any]], dict[str, list[int]]]:
    """The different Environments that chains ran in, and by digest which of them those of its incarnations were."""
    known: list[dict[str, Any]] = []
    of: dict[str, list[int]] = {}
    for digest in digests:
        store = ChainStore(root, digest)
        for number in range(1, store.last_incarnation() + 1):
            found = store.incarnation(number).get("environment")
            if not isinstance(found, dict):
                continue
            if found not in known:
                known.append(found)
            mine = of.setdefault(digest, [])
            if known.index(found) not in mine:
                mine.append(known.index(found))
    return known, of
