"""A sampler's settings, each declared once as an annotated attribute of its class.

The constructor, the ``Args`` of the docstring, the checks, and the settings in which chains of a pack may differ are
made of the declarations:

    class Mine(Sampler):
        beta: float = setting("β in [0, 1), how slowly the average forgets.", default=0.9, check=fraction)
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar, dataclass_transform

import torch

REQUIRED = inspect.Parameter.empty
LAST = ("seed", "lanes")
"""Arguments behind all others."""
Check = Callable[[str, Any], object]


def setting(
    doc: str = "",
    *,
    default: Any = REQUIRED,
    check: Check | None = None,
    column: bool | None = None,
    group: bool | None = None,
    init: bool | None = None,
    kw_only: bool | None = None,
) -> Any:
    """Declare a setting of a sampler. Of one that a base declares, too, what is left out here is the base's.

    Args:
        doc: its line in the docstring's ``Args``.
        default: its value where the caller gives none; without one the setting is required.
        check: called with the setting's name and a value; raises where the value is refused.
        column: True if the chains of a pack may differ in it: `Sampler.coefficients` makes numbers of it.
        group: False for a setting of the whole sampler; others are in every parameter group.
        init: False for a setting that always has its default, and is no argument of the constructor.
        kw_only: False for an argument that may be given without its name.
    """
    facts = {"check": check, "column": column, "group": group, "init": init, "kw_only": kw_only}
    given = {name: fact for name, fact in facts.items() if fact is not None}
    return Setting({"doc": doc} | given | ({} if default is REQUIRED else {"default": default}))


class Setting:
    """A declaration, by `setting`."""

    doc = ""
    default: Any = REQUIRED
    check: Check | None = None
    column = False
    group = init = kw_only = True
    annotation: Any = Any

    def __init__(self, given: Mapping[str, Any]) -> None:
        vars(self).update(given)

    def __set_name__(self, owner: Any, name: str) -> None:
        """Note it among its class's settings, in place of the attribute: the values are in the parameter groups."""
        known: Mapping[str, Setting] = getattr(owner, "_settings", {})
        annotated = {"annotation": owner.__annotations__[name]} if name in owner.__annotations__ else {}
        vars(self).update({**vars(known.get(name, self)), **vars(self), **annotated})
        owner._settings = {**known, name: self}
        delattr(owner, name)


@dataclass_transform(kw_only_default=True, field_specifiers=(setting,))
class Declaring(torch.optim.Optimizer):
    """An optimizer below which type checkers take declared settings for arguments of the constructor."""

    _settings: ClassVar[Mapping[str, Setting]]


def unless_none(check: Check) -> Check:
    """Return a check that lets None pass."""
    return lambda name, value: None if value is None else check(name, value)


def construct(kind: Any) -> None:
    """Give a class an ``__init__`` that takes its settings, and hands them to its bases' nearest hand-written one.

    Its docstring gets their lines, before its ``Raises``.
    """
    written = next(c.__init__ for c in kind.__mro__[1:] if "__init__" in vars(c) and not generated(c))
    settings: Mapping[str, Setting] = kind._settings
    taken = {name: settings[name] for name in sorted(settings, key=LAST.__contains__) if settings[name].init}
    fixed = {name: one.default for name, one in settings.items() if not one.init}
    fields: list[Any] = []
    for name, one in taken.items():
        default = {} if one.default is REQUIRED else {"default": one.default}
        fields.append((name, one.annotation, dataclasses.field(kw_only=one.kw_only, **default)))
    # A dataclass has the signature, and lets Python itself name what is missing or unknown.
    given: Any = dataclasses.make_dataclass(kind.__name__, fields, namespace={"__qualname__": kind.__qualname__})

    @wraps(given.__init__)
    def made(self: Any, *args: Any, **more: Any) -> None:
        values = vars(given(*args, **more))
        written(self, values.pop("params"), **values, **fixed)

    vars(made).update(generated=True)
    made.__module__ = kind.__module__
    kind.__init__ = made
    if kind.__doc__ and "Args:\n" not in kind.__doc__:
        before, raises, after = inspect.cleandoc(kind.__doc__).partition("Raises:\n")
        lines = [f"{name}: {one.doc}" for name, one in taken.items() if one.doc]
        indented = [textwrap.fill(x, 112, subsequent_indent="    ", break_on_hyphens=False) for x in lines]
        arguments = textwrap.indent("\n".join(indented), "    ")
        kind.__doc__ = f"{before.rstrip()}\n\nArgs:\n{arguments}\n\n{raises}{after}".rstrip()


def generated(kind: type[Any]) -> bool:
    """Return whether a class's ``__init__``, its own or a base's, is one that `construct` made."""
    return hasattr(kind.__init__, "generated")
