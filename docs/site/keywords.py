"""For the page of the API: `rc.run`, `rc.compare` and `rc.sweep` have their keywords and docstrings only at run time."""

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


class Keywords(griffe.Extension):
    """Give those functions the signature and the docstring that `help` shows."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.path in FUNCTIONS:
            function = FUNCTIONS[func.path]
            assert func.docstring is not None
            func.docstring.value = inspect.getdoc(function) or ""
            func.parameters = griffe.Parameters(*map(parameter, inspect.signature(function).parameters.values()))


def parameter(known: inspect.Parameter) -> griffe.Parameter:
    """The same for griffe, with the names of types without their modules."""
    annotation = re.sub(r"\b\w+\.", "", inspect.formatannotation(known.annotation))
    kind = griffe.ParameterKind(known.kind.description)
    return griffe.Parameter(known.name, annotation=annotation, kind=kind, default=repr(known.default))
