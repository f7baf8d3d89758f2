"""Registries without a list: built-in parts are found in their folder, the user's own by import path (`user_code`)."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from raychains.core.errors import UserError, require, unknown_name
from raychains.core.spec import Part
from raychains.core.user_code import imported, installed, is_path, load, path_of, source_of

T = TypeVar("T")

NAMES_WRITTEN = {
    "task": ("tasks", r'^class (\w+)\(.*\n(?:    .*\n|\n)*?    name = "([\w-]+)"$'),
    "sampler": ("samplers", r'"([\w-]+)": MethodPreset\('),
    "schedule": ("schedules", r'^    kind: ClassVar\[str\] = "([\w-]+)"'),
    "callback": ("callbacks", r'^    "([\w-]+)": "'),
    "preset": ("planning/presets", r'Preset\(\s*name="([\w-]+)"'),
}
"""Folders of named parts, and how their modules write the names, of a task after its class: commands know them before
anything heavy is imported."""


def _texts(folder: str) -> dict[str, str]:
    """Return the source of a folder's modules by name, ascending; none is imported."""
    modules = sorted(files("raychains").joinpath(folder).iterdir(), key=lambda file: file.name)
    return {m.name[:-3]: m.read_text(encoding="utf-8") for m in modules if m.name.endswith(".py")}


def modules_defining(folder: str, constant: str) -> tuple[str, ...]:
    """Return the names of a folder's modules that assign ``constant`` at their top level, ascending; none is imported.

    Help texts name them, and must load neither torch nor anything else that a module imports.
    """
    return tuple(name for name, text in _texts(folder).items() if f"\n{constant} = " in text)


@cache
def names_written(option: str) -> tuple[tuple[str, ...], ...]:
    """Return (module, name) of every part that ``task``, … may be, of a task (module, class, name), in the order of
    files."""
    folder, pattern = NAMES_WRITTEN[option]
    texts = _texts(folder).items()
    return tuple((module, *found.groups()) for module, text in texts for found in re.finditer(pattern, text, re.M))


def known_names(option: str) -> tuple[str, ...]:
    """Return the short names that an option of `NAMES_WRITTEN` may be; nothing is imported."""
    return tuple(name for *_, name in names_written(option))


def check_name(option: str, name: str) -> None:
    """Raise if a part's name is neither one of `known_names` nor an import path.

    Raises:
        UserError: an unknown name.
    """
    if name in known_names(option) or is_path(name):
        return
    known = {*known_names(option), *installed(f"{option}s")}
    if name not in known:
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
                f"{self._field} {name} is code that this process has not imported, and a store's names are imported "
                "only with `trust=True`"
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
