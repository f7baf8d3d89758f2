"""Names inside a store: '/'-separated and unable to leave their root, whatever they were made from."""

from __future__ import annotations

import unicodedata

from raychains.errors import UserError

LONGEST_PART = 200
"""Bytes of one part; filesystems take 255, of which a temporary name needs some."""


def check(name: str) -> str:
    """``name`` itself.

    Raises:
        UserError: it is empty or absolute, has an empty part, ``.``, ``..``, a backslash, a control character or half a
            surrogate pair, or a part longer than `LONGEST_PART`.
    """
    parts = name.split("/")
    if not all(map(_allowed, parts)):
        raise UserError(
            "a name in the store must be relative, its parts separated by single '/', none of them '.' or '..' or longer than "
            f"{LONGEST_PART} bytes, without backslashes and control characters, got {name!r}"
        )
    return name


def _allowed(part: str) -> bool:
    if part in ("", ".", "..") or "\\" in part:
        return False
    plain = part.isascii() and part.isprintable()  # most are, and thousands are checked
    if not plain and any(unicodedata.category(c) in ("Cc", "Cs") for c in part):
        return False
    return len(part.encode()) <= LONGEST_PART
