"""A run's or a sweep's figures by name, each drawn when it is asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from raychains.core.errors import UserError, format_error, unknown_name
from raychains.plotting.style import Drawing, as_svg, laid_out

log = logging.getLogger(__name__)

Makers = Mapping[str, Callable[..., Drawing | None]]


class UnknownFigure(UserError, KeyError):
    """There is no figure of that name; a `KeyError` too, as mappings raise it."""

    __str__ = Exception.__str__  # KeyError shows its message in quotes


class Figures(Mapping[str, Figure]):
    """The figures of a page by name, as `matplotlib.figure.Figure`; those with nothing to show are left out.

    Each is drawn anew whenever it is asked for, in the style of the page, so that it may be changed and saved.

    Args:
        makers: functions by name, in order; one that returns None has nothing to show.
        about: their arguments.
    """

    def __init__(self, makers: Makers, *about: Any) -> None:
        self._makers, self._about = makers, about
        self._drawings: dict[str, Drawing | None] = {}

    def drawing(self, name: str) -> Drawing:
        """Return a figure with its title and caption, not drawn yet.

        Raises:
            UserError: there is no figure of that name, or nothing to show in it; a `KeyError`, too.
        """
        if name not in self._makers:
            raise UnknownFigure(str(unknown_name("figure", name, self)))
        found = self._made(name)
        if found is None:
            raise UnknownFigure(f"figure must be one with something to show ({', '.join(self)}), got {name!r}")
        return found

    def _made(self, name: str) -> Drawing | None:
        if name not in self._drawings:
            self._drawings[name] = self._makers[name](*self._about)
        return self._drawings[name]

    def __getitem__(self, name: str) -> Figure:
        with laid_out(self.drawing(name)) as figure:
            # A notebook shows a Figure that has this method, or that matplotlib's global state knows.
            figure._repr_svg_ = partial(_svg_text, figure)  # type: ignore[attr-defined]
            return figure

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and name in self._makers and self._made(name) is not None
        except Exception as error:  # one damaged table must not cost the other figures
            log.warning("figure %s could not be drawn: %s", name, format_error(error))
            return False

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._makers if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Figures({', '.join(self)})"


def _svg_text(figure: Figure) -> str:
    return as_svg(figure).decode()
