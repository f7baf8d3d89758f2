"""docs/how-to/monitor.md and docs/reference/events.md name the callbacks, metrics and events that the code has, and no
others."""

from __future__ import annotations

import re
import typing
from pathlib import Path

from raychains import callbacks
from raychains.callbacks import NAMES
from raychains.planning.events import RunEvent
from tests.callbacks.events import METRICS

DOCS = Path(__file__).parents[2] / "docs"
MONITOR, EVENTS = ((DOCS / page).read_text(encoding="utf-8") for page in ("how-to/monitor.md", "reference/events.md"))


def test_every_callback_and_metric_is_on_the_page_and_no_other() -> None:
    table = MONITOR.partition("| name | writes | to |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, flags=re.M)) == set(NAMES)
    assert set(re.findall(r"`(raychains_\w+)`", MONITOR)) == METRICS


def test_every_event_is_on_the_page_and_no_other() -> None:
    kinds = {kind.__name__ for kind in typing.get_args(RunEvent)}
    table = EVENTS.partition("| event | when |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([A-Z]\w+)`", table)) == kinds | {"ChainStatus"}
    assert all(getattr(callbacks, kind) for kind in kinds)
