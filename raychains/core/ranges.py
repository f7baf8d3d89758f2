"""Lists and ranges of options: a sweep's grid and space, read from NAME=A,B,C and NAME=log:A:B."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from raychains.core import settings_parser
from raychains.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np

MOST_POINTS = 10_000
"""Points of a sweep, whose plan lists every one of them."""
PATHS = ("sampler", "schedule")
"""Options whose values may be import paths ``module:Class``."""
Kind = Literal["log", "uniform", "int", "choice"]


@dataclass(frozen=True, kw_only=True)
class Range:
    """The range that one option's values are drawn from."""

    kind: Kind
    low: float = 0.0
    high: float = 0.0
    """Included; an integer's too."""
    values: tuple[Any, ...] = ()
    """Values of a choice."""

    def to_json(self) -> Any:
        """A choice as its list; others as people write them."""
        if self.kind == "choice":
            return list(self.values)
        return f"{self.kind}:{_short(self.low)}:{_short(self.high)}"

    def draw(self, generator: np.random.Generator) -> Any:
        """One value, by one number of the generator."""
        u = float(generator.random())
        if self.kind == "choice":
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        if self.kind == "int":
            low, high = int(self.low), int(self.high)
            return min(low + int(u * (high - low + 1)), high)
        if self.kind == "log":
            return math.exp(math.log(self.low) + u * (math.log(self.high) - math.log(self.low)))
        return self.low + u * (self.high - self.low)


def read_grid(given: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return ``["exploration=0,.25", "cycles=2,4"]`` as values by name.

    Raises:
        UserError: no list, a value that is twice in it, or too many points.
    """
    found = {name: _list("grid", name, text) for name, text in settings_parser.texts(given).items()}
    total = math.prod(len(values) for values in found.values())
    if total > MOST_POINTS:
        raise UserError(f"grid must have at most {MOST_POINTS} points, got {total}")
    return found


def read_space(given: Iterable[str]) -> dict[str, Range]:
    """Return ``["lr=log:1e-3:1", "cycles=int:2:16", "sampler=csgld,csghmc"]`` as ranges by name.

    Raises:
        UserError: as `read_grid`, or a range that is none.
    """
    found = {}
    for name, text in settings_parser.texts(given).items():
        kind, colon, rest = text.strip().partition(":")
        ranged = kind in ("log", "uniform", "int")
        if not colon or (not ranged and ("," in text or name in PATHS)):
            found[name] = Range(kind="choice", values=_list("space", name, text))
            continue
        if not ranged:
            raise UserError(f"space must give {name} as log:A:B, uniform:A:B, int:A:B or a list, got {text!r}")
        found[name] = _range(name, kind, rest, text)  # type: ignore[arg-type]
    return found


def _range(name: str, kind: Kind, rest: str, text: str) -> Range:
    low, _, high = rest.partition(":")
    try:
        a, b = float(low), float(high)
        whole = kind != "int" or (a == int(a) and b == int(b))
    except (ValueError, OverflowError):
        a = b = math.nan
        whole = False
    ok = whole and math.isfinite(a) and math.isfinite(b) and a < b and (kind != "log" or a > 0)
    allowed = "two integers A < B" if kind == "int" else f"two numbers {'0 < ' * (kind == 'log')}A < B"
    if not ok:
        raise UserError(f"space must give {name} as {kind}:A:B with {allowed}, got {text!r}")
    return Range(kind=kind, low=a, high=b)


def _list(field: str, name: str, text: str) -> tuple[Any, ...]:
    parts = [part.strip() for part in text.split(",")]
    values = tuple(settings_parser.value(part) for part in parts)
    plain = [v for v in values if v is None or isinstance(v, bool | int | float | str)]
    if not all(parts) or len({(type(v) is bool, v) for v in plain}) != len(values):
        raise UserError(f"{field} must give {name} a list of different values, as in {name}=A,B,C, got {text!r}")
    return values


def _short(number: float) -> str:
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)
