"""The few exceptions that people see; a user's mistake is one line that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RaychainsError(Exception):
    """Base class of everything that raychains raises on purpose."""

    exit_status = 1


class UserError(RaychainsError, ValueError):
    """A mistake in what was asked for: one line naming the field, the value and what is allowed."""

    exit_status = 2


class StorageFull(UserError):
    """The store has no room left. What was written before is intact; freed space and a resumed run go on from there."""


class StorageAway(UserError):
    """The store could not be reached, however often it was tried. What was written before is intact."""


class ChainsFailed(RaychainsError):
    """A run finished but some of its chains failed; what the others computed is in the store."""

    exit_status = 3


class Interrupted(RaychainsError):
    """The run was stopped by the person; what is written stays and the message says how to resume."""

    exit_status = 130


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raise `UserError` in the house's form unless ``condition`` holds.

    ``allowed`` completes the sentence "``field`` must …", e.g. "lie in [0, 1)"; what follows a ": " in it says why and
    comes last.
    """
    if not condition:
        range_, colon, why = allowed.partition(": ")
        raise UserError(f"{field} must {range_}, got {value!r}{colon}{why}")


def unknown_name(field: str, value: str, known: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest known name suggested."""
    names = sorted(known)
    close = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return UserError(f"{field} must be one of {', '.join(names)}, got {value!r}{hint}")


def said(error: BaseException) -> str:
    """Somebody else's exception in one line: its kind and its message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' * bool(text)}{text}"
