"""`raychains init-task` and `init-density`: commented modules that run as they are, as a start for one's own."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from raychains.core.errors import UserError, reason

_MODULE = re.compile(r"[A-Za-z][A-Za-z0-9_]*\.py")


def write(to: str, kind: str) -> str:
    """Write a template to a new file; the import path of the task in it, from the file's folder.

    Args:
        to: the file.
        kind: ``task`` or ``density``.

    Raises:
        UserError: a name that no module can have, a file that exists, or a folder that does not or cannot be written
            to.
    """
    path = Path(to)
    if not _MODULE.fullmatch(path.name):
        raise UserError(f"file must be called as a Python module, like my{kind}.py, got {to!r}")
    text = resources.files(__package__).joinpath(f"{kind}.py.txt").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("MODULE", path.stem))
    except FileExistsError:
        raise UserError(f"file must be a new one, got {to!r}: it exists") from None
    except (OSError, ValueError) as error:
        raise UserError(f"file must be in a folder that can be written to, got {to!r}: {reason(error)}") from None
    return f"{path.stem}:make_task"
