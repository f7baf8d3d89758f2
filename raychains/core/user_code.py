"""How the user's own samplers, schedules, tasks, measures and callbacks are found and identified.

A class is found by its import path, ``module:name``, where an option names it, and in the workers of that user's run. A
name that is only read from a store is never imported. A class that is defined in a script, a notebook or a function has
such a path, too, by which no other process finds it: it is pickled (`raychains.orchestration.cluster.payload`). So is
a task that is an object (`raychains.tasks.passed_tasks`).

An installed package gives its parts short names by entry points of the groups ``raychains.samplers``,
``raychains.schedules``, ``raychains.tasks``, ``raychains.measures`` and ``raychains.callbacks``.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import inspect
import linecache
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from raychains.core.errors import UserError, format_error

LOCAL: dict[str, type[Any]] = {}
"""Classes that no other process can import, by their import path: of a script, a notebook or a function."""
_SOURCE = "_source_sha256"
"""Holds a class's hash once it is known: it goes along with a class that travels to other processes by value."""


# Find


def is_path(name: str) -> bool:
    """Return whether a name is an import path and no short name."""
    return ":" in name


def is_local(path: str) -> bool:
    """Return whether an import path is of a script, a notebook or a function, where other processes find nothing."""
    module, _, name = path.partition(":")
    return module == "__main__" or "<" in name


def installed(group: str) -> dict[str, str]:
    """Return the import paths of installed packages' parts of a group (``samplers``, …) by short name; none is
    imported."""
    return _entry_points(group, tuple(sys.path))


@lru_cache(maxsize=64)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import entry_points

    return {entry.name: f"{entry.module}:{entry.attr}" for entry in entry_points(group=f"raychains.{group}")}


def path_of(group: str, name: str) -> str:
    """Return the import path of an installed package's short name; any other name as it is."""
    return name if is_path(name) else installed(group).get(name, name)


def load(field: str, path: str) -> Any:
    """Return the object at ``module:name``, which is imported; the current folder is searched first.

    Raises:
        UserError: no such module or name, or a module that raises when it is imported.
    """
    if path in LOCAL:
        return LOCAL[path]
    module, _, name = path.partition(":")
    if "/" in module or module.endswith(".py"):
        shown = f"{module.rpartition('/')[2].removesuffix('.py')}:{name}"
        raise UserError(
            f"{field} must be an import path 'module:name', not a file's, got {path!r}: write {shown} in the file's "
            "folder"
        )
    try:
        with _folder_first(os.getcwd()):
            found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        raise UserError(
            f"{field} must be an import path 'module:name', got {path!r}: {format_error(error, kind=True)}"
        ) from None
    return found


def built(what: str, path: str, settings: Any, file: str) -> Any:
    """Return what the class or function at ``module:name`` makes of settings that a file states; it is imported.

    Raises:
        UserError: it cannot be built here.
    """
    try:
        return load(what, path)(**settings)
    except Exception as error:  # whatever a user's code raises
        raise UserError(f"{file}: the {what} {path!r} cannot be built here: {format_error(error)}") from None


def load_file(field: str, file: str) -> ModuleType:
    """Return the module of a file, which is imported once, with its folder searched first, as by ``python FILE``.

    Workers import its classes from that folder.

    Raises:
        UserError: no such file, one that raises when it is imported, or one with another module's name.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise UserError(f"{field} must be a file that exists, got {file!r}")
    try:
        with _folder_first(str(path.parent)):
            found = importlib.import_module(path.stem)
    except (Exception, SystemExit) as error:  # whatever a user's file raises
        raise UserError(
            f"{field} must be a file that can be imported, got {file!r}: {format_error(error, kind=True)}"
        ) from None
    if Path(found.__file__ or "").resolve() != path:
        raise UserError(
            f"{field} must be a file with a name of its own, got {file!r}: another module is called {path.stem}"
        )
    return found


@contextlib.contextmanager
def _folder_first(folder: str) -> Iterator[None]:
    """Make imports in the body search a folder first, as ``python -m`` does, and those after it last."""
    known = folder in sys.path or (folder == os.getcwd() and "" in sys.path)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        if not known:
            sys.path.append(folder)  # what a function imports when it is called


def imported(path: str) -> Any:
    """Return the object at ``module:name`` if this process has imported the module already, else None."""
    if path in LOCAL:
        return LOCAL[path]
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # a module's own __getattr__ may import
    return found


def own_kind(part: type[Any]) -> None:
    """Give a user's class its import path as ``kind``, whatever it states: the same wherever it is imported."""
    if not is_ours(part.__module__):
        part.kind = f"{part.__module__}:{part.__qualname__}"
        if is_local(part.kind):
            LOCAL[part.kind] = part


# Identify


def source_of(part: type[Any]) -> str | None:
    """Return the sha256 of the source of a user's class and of its bases; None of raychains' own classes.

    Bases in raychains, the standard library and installed packages are left out, and so is all that the class calls or
    reads elsewhere. Comments, docstrings and layout do not count.

    Raises:
        UserError: the source cannot be found, as of a class that was typed at Python's prompt.
    """
    if is_ours(part.__module__):
        return None
    if _SOURCE not in vars(part):
        bases = [base for base in part.__mro__[1:] if not is_ours(base.__module__) and not _is_installed(base)]
        text = repr([_plain(_definition(each)) for each in (part, *bases)])
        setattr(part, _SOURCE, hashlib.sha256(text.encode()).hexdigest())
    found: str = vars(part)[_SOURCE]
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
            f"{part.__qualname__} must be a class of a file or a notebook's cell: its source, which identifies its "
            f"chains, cannot be found in {part.__module__!r}"
        ) from None


def _plain(node: Any) -> Any:
    """Return a syntax tree as lists of names and values, without docstrings and without what this Python may have
    added."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
        fields["body"] = fields["body"][1:]
    return [type(node).__name__, *([name, _plain(value)] for name, value in fields.items() if value not in (None, []))]


# The folders to import from


def import_folders() -> tuple[str, ...]:
    """Return the folders that this process imports from, for processes with other working folders."""
    return tuple(dict.fromkeys(os.path.abspath(folder) for folder in [os.getcwd(), *sys.path]))


def import_from(folders: Iterable[str]) -> None:
    """Import from these folders, too."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
