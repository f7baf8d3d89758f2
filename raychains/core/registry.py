"""Registries without a list: built-in parts are found in their folder, the user's own by import path, ``module:name``."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from raychains.core.errors import UserError, format_error, unknown_name
from raychains.core.spec import Part

T = TypeVar("T")

NAMES_WRITTEN = {
    "task": ("tasks", r'^    "([\w-]+)": "raychains\.tasks'),
    "sampler": ("samplers", r'"([\w-]+)": MethodPreset\('),
    "schedule": ("schedules", r'^    kind: ClassVar\[str\] = "([\w-]+)"'),
    "preset": ("planning/presets", r'Preset\(\s*name="([\w-]+)"'),
}
"""Folders of named parts, and how their modules write the names: commands know them before anything heavy is imported."""


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
    modules = sorted((file for file in files("raychains").joinpath(folder).iterdir()), key=lambda file: file.name)
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
    if name not in known_names(option) and not is_path(name):
        dotted = "; an import path has a colon, as in package.module:name" if "." in name else ""
        raise UserError(f"{unknown_name(option, name, known_names(option))}{dotted}")


class Kinds(dict[str, type[T]]):
    """Classes by kind: those of a folder's modules that state a ``kind``, and any other class by its import path.

    Iteration gives the folder's only.

    ``field`` is the option that names a class, in messages; modules in ``skip`` are not searched.
    """

    def __init__(self, field: str, base: Any, package: str, skip: Collection[str] = ()) -> None:
        self._field, self._base = field, base
        folder = importlib.import_module(package).__path__
        names = [module.name for module in pkgutil.iter_modules(folder) if module.name not in skip]
        found = [value for name in names for value in vars(importlib.import_module(f"{package}.{name}")).values()]
        built_in: list[Any] = [c for c in found if isinstance(c, type) and issubclass(c, base) and "kind" in vars(c)]
        super().__init__({c.kind: c for c in built_in})

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and is_path(name))

    def __missing__(self, name: str) -> type[T]:
        if not is_path(name):
            raise KeyError(name)
        found = load(self._field, name)
        if not (isinstance(found, type) and issubclass(found, self._base)):
            raise UserError(f"{self._field} must name a subclass of raychains.{self._base.__name__}, got {name!r}")
        return found


def kind_of(field: str, kinds: Mapping[str, type[T]], part: Part) -> type[T]:
    """Return the class of a spec's part.

    Raises:
        UserError: an unknown kind.
    """
    if part.kind not in kinds:
        raise unknown_name(field, part.kind, kinds)
    return kinds[part.kind]


def build(field: str, kinds: Mapping[str, type[T]], part: Part, *args: Any, **more: Any) -> T:
    """Build what a spec's part describes, from its settings and ``more``.

    Raises:
        UserError: an unknown kind, another revision, or settings that the class lacks, misses or refuses.
    """
    kind: Any = kind_of(field, kinds, part)
    if part.revision != kind.revision:
        raise UserError(f"{field} {part.kind} revision must be {kind.revision} for this version, got {part.revision}")
    try:
        made: T = kind(*args, **more, **part.settings)
    except TypeError as error:
        raise UserError(f"{field} {part.kind}: {error}") from None
    return made


def own_kind(part: type[Any]) -> None:
    """Give a user's class its import path as ``kind``, which is the same from wherever the class is imported."""
    if not part.__module__.startswith("raychains.") and "kind" not in vars(part):
        part.kind = f"{part.__module__}:{part.__qualname__}"


def is_path(name: str) -> bool:
    """Return whether a name is an import path and no short name."""
    return ":" in name


def load(field: str, path: str) -> Any:
    """Return the object at ``module:name``; the current folder is searched first.

    Raises:
        UserError: no such module or name, or a module that raises when it is imported.
    """
    module, _, name = path.partition(":")
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
