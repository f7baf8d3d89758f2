"""For the page of the API: keywords and docstrings that `rc.run`, `rc.compare`, `rc.sweep` and samplers have only at
run time."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

import raychains

FUNCTIONS = {
    f"{function.__module__}.{name}": function
    for name in ("run", "compare", "sweep")
    if (function := getattr(raychains, name))
}
SAMPLERS = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in raychains.samplers.KINDS.values()}


class Keywords(griffe.Extension):
    """Give those the signature and the docstring that `help` shows."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.path in FUNCTIONS:
            explain(func, FUNCTIONS[func.path])
            func.parameters = parameters(FUNCTIONS[func.path])

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.path in SAMPLERS:
            explain(cls, SAMPLERS[cls.path])
            cls.set_member("__init__", griffe.Function("__init__", parameters=parameters(SAMPLERS[cls.path].__init__)))


def explain(shown: griffe.Function | griffe.Class, known: Any) -> None:
    """Give it the docstring of what it shows."""
    assert shown.docstring is not None
    shown.docstring.value = inspect.getdoc(known) or ""


def parameters(known: Any) -> griffe.Parameters:
    """Return the parameters of a function."""
    return griffe.Parameters(*map(parameter, inspect.signature(known).parameters.values()))


def parameter(known: inspect.Parameter) -> griffe.Parameter:
    """The same for griffe, with the names of types without their modules."""
    given: dict[str, str] = {}
    if known.annotation is not known.empty:
        given["annotation"] = re.sub(r"\b\w+\.", "", inspect.formatannotation(known.annotation).strip("'"))
    if known.default is not known.empty:
        given["default"] = repr(known.default)
    return griffe.Parameter(known.name, kind=griffe.ParameterKind(known.kind.description), **given)
