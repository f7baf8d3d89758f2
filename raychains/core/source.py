"""The identity of a user's class by its source: chains of a changed sampler or schedule are other chains."""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import sys
import textwrap
from pathlib import Path
from typing import Any

from raychains.core.errors import UserError

_ATTRIBUTE = "_source_sha256"
"""Holds a class's hash once it is known: it goes along with a class that travels to other processes by value."""


def source_of(part: type[Any]) -> str | None:
    """Return the sha256 of the source of a user's class and of its bases; None of raychains' own classes.

    Bases in raychains, the standard library and installed packages are left out, and so is all that the class calls or
    reads elsewhere. Comments, docstrings and layout do not count.

    Raises:
        UserError: the source cannot be found, as of a class that was typed at Python's prompt.
    """
    if is_ours(part.__module__):
        return None
    if _ATTRIBUTE not in vars(part):
        bases = [base for base in part.__mro__[1:] if not is_ours(base.__module__) and not _is_installed(base)]
        text = repr([_plain(_definition(each)) for each in (part, *bases)])
        setattr(part, _ATTRIBUTE, hashlib.sha256(text.encode()).hexdigest())
    found: str = vars(part)[_ATTRIBUTE]
    return found


def is_ours(module: str) -> bool:
    """Return whether a module is raychains' own."""
    return module.partition(".")[0] == "raychains"


def _is_installed(part: type[Any]) -> bool:
    """Return whether a class is of the standard library or an installed package."""
    file = getattr(sys.modules.get(part.__module__), "__file__", None) or ""
    folders = Path(file).parts
    top = part.__module__.partition(".")[0]
    return top in sys.stdlib_module_names or "site-packages" in folders or "dist-packages" in folders


def _definition(part: type[Any]) -> ast.AST:
    """Return the syntax tree of a class's definition."""
    # By a method's file: a notebook's cells have one, while `inspect` finds no classes in them.
    for value in vars(part).values():
        code = getattr(getattr(value, "__func__", getattr(value, "fget", value)), "__code__", None)
        if code is None or not (lines := linecache.getlines(code.co_filename)):
            continue
        for node in ast.walk(ast.parse("".join(lines))):
            if not isinstance(node, ast.ClassDef) or node.name != part.__name__:
                continue
            if node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
                return node
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        raise UserError(
            f"{part.__qualname__} must be a class of a file or a notebook's cell: its source, which identifies its chains, "
            f"cannot be found in {part.__module__!r}"
        ) from None


def _plain(node: Any) -> Any:
    """Return a syntax tree as lists of names and values, without docstrings and without what this Python may have added."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
        fields["body"] = fields["body"][1:]
    return [type(node).__name__, *([name, _plain(value)] for name, value in fields.items() if value not in (None, []))]
