"""How options that may be left out are shown: by their kind alone; their default is the method's, or the docstring says it."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Integer = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
Duration = Annotated[float | str, arg(metavar="TIME")]
Settings = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE …", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], arg(metavar="NAME …", help_behavior_hint="")]
Patterns = Annotated[tuple[str, ...], arg(metavar="PATTERN …", help_behavior_hint="")]
