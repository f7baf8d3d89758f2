"""The commands that docs/how-to/cluster.md tells people to type."""

from __future__ import annotations

import re

from tests.launcher.constraints import ROOT


def first_steps() -> tuple[list[str], list[str]]:
    """The commands of its first section: on this machine, and in a cloud."""
    section = page().partition("\n## First steps\n")[2].partition("\n## ")[0]
    here, cloud = (typed(block) for block in re.findall(r"```console\n(.*?)```", section, flags=re.S))
    return here, cloud


def typed(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", text, flags=re.M)


def page() -> str:
    return (ROOT / "docs/how-to/cluster.md").read_text()


def batch_script() -> str:
    (script,) = re.findall(r"```bash\n(.*?)```", page(), flags=re.S)
    return script
