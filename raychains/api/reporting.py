"""`draw_report`: a run's page again, from what is stored."""

from __future__ import annotations

from collections.abc import Sequence

from raychains.api.result import Result, load
from raychains.errors import UserError


def draw_report(path: str, compare: Sequence[str] = ()) -> Result:
    """Draw a run's report again from its stored results.

    Args:
        path: STORE/runs/NAME.
        compare: further runs that it is laid beside, on a page in the run's folder: `raychains.report.comparing`.

    Raises:
        UserError: no such run, or one without results; or runs that cannot be compared.
    """
    from raychains.report import comparing, page

    result = load(path)
    if result.store.table("results") is None:
        raise UserError(f"run must have results, got {path!r}: continue it with --resume, or evaluate it")
    others = [load(other) for other in compare]
    if others:
        comparing.check([result, *others])  # before anything is drawn
    page.write(result.store, result.comparison)
    if others:
        comparing.write([result, *others])
    return result


def compared(path: str, compare: Sequence[str]) -> str:
    """Where the page lies that lays a run beside others, once `draw_report` has drawn it."""
    from raychains.report import comparing

    runs = [load(each) for each in (path, *compare)]
    return runs[0].store.location(comparing.file_name(runs))
