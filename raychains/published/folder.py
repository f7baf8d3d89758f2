"""An experiment's folder: its tables, its page and what is known of where they come from."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from raychains.errors import UserError
from raychains.spec import check_format
from raychains.store import Root, RunStore

log = logging.getLogger(__name__)

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
        """What `write_about` published; None before, and where the file is damaged: everything can be made again.

        Raises:
            UserError: a newer format.
        """
        if not self.root.exists(self._name(ABOUT)):
            return None
        try:
            data = json.loads(self.root.read(self._name(ABOUT)))
        except (ValueError, RecursionError):
            self._warn(ABOUT)
            return None
        return check_format(data, f"experiment {self.name}")

    def table(self, name: str) -> pa.Table | None:
        """The table of ``<name>.parquet``; None when it was never written, and where it is damaged."""
        try:
            return super().table(name)
        except UserError:
            self._warn(f"{name}.parquet")
            return None

    def keep_figures(self, names: Collection[str]) -> None:
        """Delete what an earlier call drew and this one did not: no page shows it any more."""
        for file in self.root.names(self._name("figures")):
            if file.rpartition(".")[0] not in names:
                self.root.delete(self._name(f"figures/{file}"))

    def _warn(self, file: str) -> None:
        log.warning("experiment %s: %s is damaged and counts as missing: reproduce it again", self.name, file)
