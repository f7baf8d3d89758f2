"""Clients that come with extras: imported by name, or one line that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from raychains.errors import UserError


def client(name: str) -> Any:
    """The module ``name``, which the extra of the same name brings.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"listen: {name} needs the package of that name ({error}): pip install 'raychains[{name}]'"
        ) from None
