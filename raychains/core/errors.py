"""The exceptions that users see; a user's mistake is one line that says what to do."""

from __future__ import annotations

import contextlib
import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")
LONGEST = 300
"""Characters of a value in a message."""
MOST_NAMES = 40
"""Names that a message lists beside the one that was meant."""
OTHER_NAMES = {"beta": "exploration", "M": "cycles", "T": "temperature", "num_chains": "chains"}
OTHER_NAMES |= {"learning_rate": "lr", "step_size": "lr"}
"""Names that people try, which no spelling is near."""
GONE = {
    ("sampler", "smile"): "mclmc or mile",
    ("sampler", "psmile"): "mclmc or mile",
    ("plan", "gpu"): "--images-per-second with a speed that you measured",
    ("plan", "prices"): "--price with your price of an hour",
    ("status", "web"): "--watch or, in the command of the run, --callback tensorboard",
    ("run", "budget"): "raychains fit --budget",
    ("sweep", "budget"): "--epochs",
    ("serve", "refresh"): "a new server for newer samples",
}
"""Names that older versions knew, and what to use instead."""


class RaychainsError(Exception):
    """Base class of raychains' own exceptions."""

    exit_status = 1


class UserError(RaychainsError, ValueError):
    """A user's mistake: one line with the field, the value and the allowed range."""

    exit_status = 2


class StorageRefused(UserError):
    """The store has no room left, or takes no files: read-only, no rights. Earlier files are intact; the run can be
    resumed later."""


class StorageAway(UserError):
    """The store could not be reached, after many attempts. Earlier files are intact."""


class ChainsFailed(RaychainsError):
    """A run finished but some of its chains failed; the samples of the others are in the store."""

    exit_status = 3


class RayLost(RaychainsError):
    """The Ray that the call works on is gone: its processes died, or the cluster does not answer. The store is
    intact."""

    exit_status = 4


class Interrupted(RaychainsError):
    """The user stopped the run; its files stay, and the message says how to resume."""

    exit_status = 130


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raise `UserError` unless ``condition`` holds.

    ``allowed`` completes the sentence "``field`` must …", e.g. "lie in [0, 1)"; what follows a ": " in it says why and
    comes last.
    """
    if not condition:
        range_, colon, why = allowed.partition(": ")
        raise UserError(f"{field} must {range_}, got {shown(value)}{colon}{why}")


def shown(value: object) -> str:
    """Return ``repr(value)`` as a message shows it: one short line, whatever a user's object is."""
    try:
        text = repr(value)
    except Exception:  # of the user's class; or an integer of thousands of digits, or lists nested as deeply
        return f"{type(value).__name__}(…)"
    text = printable(" ".join(text[: 4 * LONGEST].split()), lines=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def unknown_name(field: str, value: object, known: Iterable[str]) -> UserError:
    """Return the error for a name that does not exist, with the nearest known name or what replaces it."""
    if isinstance(value, str) and (instead := GONE.get((field, value))):
        return UserError(f"{field} {value} was removed in this version: use {instead}")
    names = sorted(known)
    hint = near_miss(value, names)
    listed = f"{len(names)} names" if hint and len(names) > MOST_NAMES else ", ".join(names)
    return UserError(f"{field} must be one of {listed}, got {shown(value)}{hint}")


def check_gone(command: str, name: str) -> None:
    """Refuse a command's option that older versions knew, named as the caller wrote it."""
    if instead := GONE.get((command, name.lstrip("-"))):
        raise UserError(f"{name} was removed in this version: use {instead}")


@contextlib.contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Let the body's messages that begin with one of the names begin with the argument that the user gave instead."""
    try:
        yield
    except UserError as error:
        first, _, rest = str(error).partition(" ")
        if first not in names:
            raise
        raise type(error)(f"{names[first]} {rest}") from None


def near_miss(value: object, known: Iterable[str], share: float = 0.25) -> str:
    """Return ``; did you mean 'sgld'?`` with the known name that is meant, or nothing where none is near.

    Near is a name with at most ``share`` of its letters wrong, one that begins alike for half of its length, and one
    that has the same words and more.
    """
    if not isinstance(value, str) or len(value) > LONGEST:
        return ""
    names = list(known)
    if (other := OTHER_NAMES.get(value)) in names:
        return f"; did you mean {other!r}?"
    near = [name for name in names if _is_near(value.casefold(), name.casefold(), share)]
    close = difflib.get_close_matches(value, near, n=1, cutoff=0.0)
    return f"; did you mean {close[0]!r}?" if close else ""


def _is_near(a: str, b: str, share: float) -> bool:
    longest = max(len(a), len(b))
    common = sum(block.size for block in difflib.SequenceMatcher(None, a, b).get_matching_blocks())
    one, other = ({*re.split(r"\W|_", name)} for name in (a, b))
    half = max(3, (longest + 1) // 2)
    wrong = longest - common
    return common > 0 and (wrong <= max(1, share * longest) or one <= other or other <= one or a[:half] == b[:half])


def format_error(error: BaseException, *, kind: bool = False) -> str:
    """An exception in one line: the first line of its message, or with ``kind`` its class and its whole message."""
    try:
        text = str(error)
    except Exception:  # of a user's class
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [printable(line, lines=False) for line in lines]
    name = type(error).__name__
    return ": ".join([name, *([" ".join(lines)] if lines else [])]) if kind else (lines or [name])[0]


def reason(error: BaseException) -> str:
    """`format_error` for a message that names the file already: of the system's errors without its number and the
    file."""
    return getattr(error, "strerror", None) or format_error(error)


def printable(text: str, *, lines: bool = True) -> str:
    """Return ``text`` as a terminal may show it: what controls a terminal or turns text around is written out.

    With ``lines`` its ends of lines, tabs and wide spaces stay; else it is one line.
    """

    def shown(found: re.Match[str]) -> str:
        c = found[0]
        if c.isprintable() or (lines and (c in "\n\t" or unicodedata.category(c) == "Zs")):
            return c
        return c.encode("unicode_escape").decode()

    return _NOT_PLAIN.sub(shown, text)


def trial_error(error: BaseException) -> str:
    """The line of an error of a trial of Ray Tune that says what its own code raised."""
    cause = getattr(error, "cause", None)
    return format_error(cause, kind=True) if cause is not None else last_line(str(error).strip())


def last_line(reason: str) -> str:
    """The last line of a traceback, which names the exception."""
    return (reason.splitlines() or ["no reason given"])[-1]
