"""Which of a task's splits of one family (``ood:``, ``corrupted:``) can be evaluated: those whose data are there."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from raychains.analyses.base import Context
from raychains.data.fetch import without_downloads
from raychains.errors import UserError

log = logging.getLogger(__name__)


def offered(context: Context, prefix: str) -> list[str]:
    """Names of the task's splits that begin so; their data are not looked for."""
    return [name for name in context.task.splits() if name.startswith(prefix)]


def present(context: Context, names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Those of the splits whose data are there, and of the others why they are left out: nothing is downloaded."""
    there: list[str] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            with without_downloads():
                context.task.splits()[name]
            there.append(name)
        except UserError as error:
            missing[name] = str(error)
            log.warning("split %s is left out: %s", name, error)
    return there, missing
