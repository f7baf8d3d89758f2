"""The commands that docs/how-to/cluster.md tells people to type."""

from __future__ import annotations

import re

from tests.launcher.constraints import ROOT


def section(heading: str) -> list[str]:
    """The commands of one section."""
    return typed(page().partition(f"\n## {heading}\n")[2].partition("\n## ")[0])


def typed(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", text, flags=re.M)


def page() -> str:
    return (ROOT / "docs/how-to/cluster.md").read_text()


def batch_script() -> str:
    (script,) = re.findall(r"```bash\n(.*?)```", page(), flags=re.S)
    return script
