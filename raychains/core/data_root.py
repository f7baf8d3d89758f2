"""The folder of the data sets: `--data-root`, else RAYCHAINS_DATA, else a folder of the user's cache.

A folder; or, for prepared sets alone (`raychains prepare`), any URI that pyarrow knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raychains.core.errors import UserError

VARIABLE = "RAYCHAINS_DATA"


def data_root(given: str | None = None) -> Path:
    """Return the data root as an absolute path.

    Raises:
        UserError: a root that was given, by argument or variable, does not exist or is not a folder.
    """
    value, source = (given, "data_root") if given is not None else (os.environ.get(VARIABLE), VARIABLE)
    if not value:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raychains"
    if "://" in value:
        raise UserError(f"{source} must be a folder for sets that are not prepared ones, got {value!r}")
    try:
        path = Path(value).expanduser().absolute()
        found = path.is_dir()
    except (RuntimeError, ValueError, OSError):  # the home of no user; a NUL or half a surrogate pair; a name too long
        path, found = Path(value), False
    if not found:
        raise UserError(f"{source} must be an existing folder, got {str(path)!r}")
    return path


def root_of(given: str | None = None) -> str:
    """Return the data root as workers get it: an absolute path, or the URI that was given.

    Raises:
        UserError: as `data_root`.
    """
    value = given if given is not None else os.environ.get(VARIABLE, "")
    return value.rstrip("/") if "://" in value else str(data_root(given))


@contextmanager
def rooted(given: str | None) -> Iterator[None]:
    """Load from the data root ``given`` in the body; None leaves the choice as it is.

    Raises:
        UserError: it does not exist or is not a folder.
    """
    if given is None:
        yield
        return
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = root_of(given)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
