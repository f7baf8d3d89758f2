"""The commands that README.md and docs/cluster.md tell people to type."""

from __future__ import annotations

import re

from tests.launcher.constraints import ROOT


def readme() -> tuple[list[str], list[str]]:
    """Those of the README's section on clusters: on this machine, and in a cloud."""
    section = (ROOT / "README.md").read_text().partition("\n## Cluster\n")[2].partition("\n## ")[0]
    here, cloud = (typed(block) for block in re.findall(r"```console\n(.*?)```", section, flags=re.S))
    return here, cloud


def typed(text: str) -> list[str]:
    """The commands of a text, behind their prompts."""
    return re.findall(r"^\$ (.+)$", text, flags=re.M)


def page() -> str:
    """docs/cluster.md."""
    return (ROOT / "docs/cluster.md").read_text()


def batch_script() -> str:
    """Its script for Slurm."""
    (script,) = re.findall(r"```bash\n(.*?)```", page(), flags=re.S)
    return script
