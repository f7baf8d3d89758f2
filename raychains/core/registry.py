"""Registries without a list: built-in parts are found in their folder, the user's own by import path, ``module:name``.

A user's part is imported where the user names it, by an option, and in the workers of that user's run. A name that is only
read from a store is never imported.

An installed package gives its parts short names by entry points of the groups ``raychains.samplers``, ``raychains.schedules``,
``raychains.tasks``, ``raychains.measures`` and ``raychains.callbacks``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeVar

from raychains.core.errors import UserError, format_error, require, unknown_name
from raychains.core.source import is_ours, source_of
from raychains.core.spec import Part

T = TypeVar("T")

NAMES_WRITTEN = {
    "task": ("tasks", r'^    "([\w-]+)": "raychains\.tasks'),
    "sampler": ("samplers", r'"([\w-]+)": MethodPreset\('),
    "schedule": ("schedules", r'^    kind: ClassVar\[str\] = "([\w-]+)"'),
    "preset": ("planning/presets", r'Preset\(\s*name="([\w-]+)"'),
}
"""Folders of named parts, and how their modules write the names: commands know them before anything heavy is imported."""
_LOCAL: dict[str, type[Any]] = {}
"""Classes that no other process can import, by their import path: of a script, a notebook or a function."""


def modules_defining(folder: str, constant: str) -> tuple[str, ...]:
    """Return the names of a folder's modules that assign ``constant`` at their top level, ascending; none is imported.

    Help texts name them, and must load neither torch nor anything else that a module imports.
    """
    modules = [file for file in files("raychains").joinpath(folder).iterdir() if file.name.endswith(".py")]
    found = [m.name.removesuffix(".py") for m in modules if f"\n{constant} = " in m.read_text(encoding="utf-8")]
    return tuple(sorted(found))


@cache
def names_written(folder: str, pattern: str) -> tuple[str, ...]:
    """Return the names that a folder's modules write as ``pattern`` says, in the order of files; none is imported."""
    modules = sorted(files("raychains").joinpath(folder).iterdir(), key=lambda file: file.name)
    texts = [file.read_text(encoding="utf-8") for file in modules if file.name.endswith(".py")]
    return tuple(name for text in texts for name in re.findall(pattern, text, flags=re.M))


def known_names(option: str) -> tuple[str, ...]:
    """Return the short names that ``task``, ``sampler``, ``schedule`` or ``preset`` may be; nothing is imported."""
    return names_written(*NAMES_WRITTEN[option])


def check_name(option: str, name: str) -> None:
    """Raise if a part's name is neither one of `known_names` nor an import path.

    Raises:
        UserError: an unknown name.
    """
    known = {*known_names(option), *installed(f"{option}s")}
    if name not in known and not is_path(name):
        dotted = "; an import path has a colon, as in package.module:name" if "." in name else ""
        raise UserError(f"{unknown_name(option, name, known)}{dotted}")


class Kinds(dict[str, type[T]]):
    """Classes by kind: those of a folder's modules that state a ``kind``, and imported ones by their import path.

    Iteration gives the folder's only. `find` takes what a user names, and imports it; indexing takes what a spec names,
    and imports nothing.

    ``field`` is the option that names a class, in messages; modules in ``skip`` are not searched.
    """

    def __init__(self, field: str, base: Any, package: str, skip: Collection[str] = ()) -> None:
        self._field, self._base = field, base
        folder = importlib.import_module(package).__path__
        names = [module.name for module in pkgutil.iter_modules(folder) if module.name not in skip]
        found = [value for name in names for value in vars(importlib.import_module(f"{package}.{name}")).values()]
        built_in: list[Any] = [c for c in found if isinstance(c, type) and issubclass(c, base) and "kind" in vars(c)]
        super().__init__({c.kind: c for c in built_in})

    def __missing__(self, name: str) -> type[T]:
        if not is_path(name):
            raise KeyError(name)
        found = imported(name)
        if found is None:
            raise UserError(
                f"{self._field} {name} is code that this process has not imported, and a store's names are imported only "
                "with `trust=True`"
            )
        return self._checked(found, name)

    def find(self, name: str, known: Collection[str] = ()) -> type[T]:
        """Return the class of a built-in kind, an installed package's short name or an import path, which is imported.

        Raises:
            UserError: an unknown name, of which those of ``known`` are the built-in ones; or no such class at a path.
        """
        require(isinstance(name, str), self._field, name, "be a name or an import path 'module:Class'")
        if name in self:
            return self[name]
        path = path_of(f"{self._field}s", name)
        if not is_path(path):
            raise unknown_name(self._field, name, {*(known or self), *installed(f"{self._field}s")})
        return self._checked(load(self._field, path), path)

    def name_of(self, part: type[Any]) -> str:
        """Return the name under which `find` finds a class: its kind, or its import path.

        Raises:
            UserError: no subclass of the base.
        """
        return self._checked(part, f"the class {part.__qualname__}").kind  # type: ignore[attr-defined]

    def _checked(self, found: Any, name: str) -> type[T]:
        if not (isinstance(found, type) and issubclass(found, self._base) and hasattr(found, "kind")):
            raise UserError(f"{self._field} must name a subclass of raychains.{self._base.__name__}, got {name!r}")
        return found


def kind_of(field: str, kinds: Mapping[str, type[T]], part: Part) -> type[T]:
    """Return the class of a spec's part.

    Raises:
        UserError: an unknown kind, or a user's class that is not imported.
    """
    try:
        return kinds[part.kind]
    except KeyError:
        raise unknown_name(field, part.kind, kinds) from None


def build(field: str, kinds: Mapping[str, type[T]], part: Part, *args: Any, **more: Any) -> T:
    """Build what a spec's part describes, from its settings and ``more``.

    Raises:
        UserError: an unknown kind, another revision or source, or settings that the class lacks, misses or refuses.
    """
    kind: Any = kind_of(field, kinds, part)
    if problem := _differs(part, kind):
        raise UserError(f"{field} {part.kind} {problem}")
    try:
        made: T = kind(*args, **more, **part.settings)
    except TypeError as error:
        raise UserError(f"{field} {part.kind}: {error}") from None
    return made


def is_usable(kinds: Mapping[str, type[Any]], part: Part) -> bool:
    """Return whether a part's class is imported and is still the one that the part was made of."""
    found = kinds[part.kind] if not is_path(part.kind) or imported(part.kind) is not None else None
    return found is not None and not _differs(part, found)


def _differs(part: Part, kind: Any) -> str:
    """Return how a class differs from the one that a part was made of; empty if it is the same."""
    if part.revision != kind.revision:
        return f"revision must be {kind.revision} for this version, got {part.revision}"
    if part.source is not None and part.source != (here := source_of(kind)):
        return (
            f"must have the source that the chain was planned with, got another (sha256 {str(here)[:12]} here, "
            f"{part.source[:12]} there): a changed class makes new chains under a new `name`"
        )
    return ""


def own_kind(part: type[Any]) -> None:
    """Give a user's class its import path as ``kind``, whatever it states: the same wherever it is imported."""
    if not is_ours(part.__module__):
        part.kind = f"{part.__module__}:{part.__qualname__}"
        give([part])


def give(parts: Iterable[type[Any]]) -> None:
    """Make classes known by their kind that cannot be imported by it."""
    _LOCAL.update({part.kind: part for part in parts if is_local(part.kind)})


def is_local(path: str) -> bool:
    """Return whether an import path is of a script, a notebook or a function, where other processes find nothing."""
    module, _, name = path.partition(":")
    return module == "__main__" or "<" in name


def local(kinds: Iterable[str] | None = None) -> dict[str, type[Any]]:
    """Return those of some kinds, or of all, that are classes which other processes cannot import."""
    return {kind: _LOCAL[kind] for kind in (_LOCAL if kinds is None else dict.fromkeys(kinds)) if kind in _LOCAL}


def is_path(name: str) -> bool:
    """Return whether a name is an import path and no short name."""
    return ":" in name


def installed(group: str) -> dict[str, str]:
    """Return the import paths of installed packages' parts of a group (``samplers``, …) by short name; none is imported."""
    return _entry_points(group, tuple(sys.path))


@lru_cache(maxsize=64)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import entry_points

    return {entry.name: f"{entry.module}:{entry.attr}" for entry in entry_points(group=f"raychains.{group}")}


def path_of(group: str, name: str) -> str:
    """Return the import path of an installed package's short name; any other name as it is."""
    return name if is_path(name) else installed(group).get(name, name)


def imported(path: str) -> Any:
    """Return the object at ``module:name`` if this process has imported the module already, else None."""
    if path in _LOCAL:
        return _LOCAL[path]
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # a module's own __getattr__ may import
    return found


def load(field: str, path: str) -> Any:
    """Return the object at ``module:name``, which is imported; the current folder is searched first.

    Raises:
        UserError: no such module or name, or a module that raises when it is imported.
    """
    if path in _LOCAL:
        return _LOCAL[path]
    module, _, name = path.partition(":")
    if "/" in module or module.endswith(".py"):
        shown = f"{module.rpartition('/')[2].removesuffix('.py')}:{name}"
        raise UserError(
            f"{field} must be an import path 'module:name', not a file's, got {path!r}: write {shown} in the file's folder"
        )
    try:
        with _current_folder_first():
            found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        raise UserError(
            f"{field} must be an import path 'module:name', got {path!r}: {format_error(error, kind=True)}"
        ) from None
    return found


@contextlib.contextmanager
def _current_folder_first() -> Iterator[None]:
    """Make imports in the body search the current folder first, as ``python -m`` does, and those after it last."""
    folder = os.getcwd()
    known = folder in sys.path or "" in sys.path
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        if not known:
            sys.path.append(folder)  # what a function imports when it is called
