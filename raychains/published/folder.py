"""An experiment's folder: its tables, its page and what is known of where they come from."""

from __future__ import annotations

import json
from typing import Any

from raychains.spec import check_format
from raychains.store import Root, RunStore

FORMAT = 1
ABOUT = "about.json"


class Folder(RunStore):
    """``<prefix>/<experiment>/`` of a store: cells.parquet and other tables, table.md, table.tex, index.html, about.json.

    Args:
        root: the store, or the folder that results are collected in.
        prefix: ``reproduce/cpu``; nothing where the experiments' folders lie in the root itself.
        name: the experiment's.
    """

    kind = "experiment"

    def __init__(self, root: Root, prefix: str, name: str) -> None:
        super().__init__(root, name)
        self.prefix = prefix

    def _name(self, name: str) -> str:
        return "/".join(part for part in (self.prefix, self.name, name) if part)

    def write_about(self, about: dict[str, Any]) -> None:
        """Publish what is known of the results."""
        text = json.dumps({"format": FORMAT, **about}, indent=1, sort_keys=True, allow_nan=False)
        self.root.publish(self._name(ABOUT), text.encode())

    def about(self) -> dict[str, Any] | None:
        """What `write_about` published; None before.

        Raises:
            UserError: the file is damaged, or of a newer format.
        """
        if not self.root.exists(self._name(ABOUT)):
            return None
        try:
            data = json.loads(self.root.read(self._name(ABOUT)))
        except (ValueError, RecursionError):
            raise self.damaged("about") from None
        return check_format(data, f"experiment {self.name}")
