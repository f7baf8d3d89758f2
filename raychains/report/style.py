"""How figures look: two themes, a colour-blind-safe palette, one width; without pyplot's global state."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from raychains.report.looks import Look

WIDTH = 8.4
"""Inches of every figure: at the page's width its text is about as large as the page's own."""


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of one colour scheme. Hues tell schedules apart, line styles and markers the arms of one."""

    name: Literal["light", "dark"]
    paper: str
    ink: str
    muted: str
    grid: str
    alarm: str
    heat: tuple[str, ...]
    """From nothing to much, for densities."""
    families: Mapping[str, tuple[str, ...]]

    def colour(self, look: Look) -> str:
        """The colour of one look; families repeat after their last colour, with other line styles."""
        family = self.families.get(look.family, self.families["other"])
        return family[look.rank % len(family)]


# Okabe and Ito's palette: blues for cyclical schedules, oranges for decreasing ones; lightened on dark paper.
LIGHT = Theme(
    name="light",
    paper="#ffffff",
    ink="#1f2328",
    muted="#656d76",
    grid="#e3e6ea",
    alarm="#b3261e",
    heat=("#ffffff", "#cfe3f2", "#6db3de", "#0072b2", "#00324f"),
    families={
        "cyclical": ("#0072b2", "#3fa9e0", "#009e73"),
        "decreasing": ("#d55e00", "#dc9a00", "#a8487f"),
        "other": ("#009e73", "#a8487f", "#656d76"),
    },
)
DARK = Theme(
    name="dark",
    paper="#14181d",
    ink="#e6e9ee",
    muted="#9aa4b0",
    grid="#2b323b",
    alarm="#ff8a80",
    heat=("#14181d", "#12364f", "#1b6c9e", "#56b4e9", "#e8f6ff"),
    families={
        "cyclical": ("#3d9fe0", "#9bd7ff", "#2fc79a"),
        "decreasing": ("#f0763a", "#f2c14e", "#e29ac4"),
        "other": ("#2fc79a", "#e29ac4", "#9aa4b0"),
    },
)
THEMES = (LIGHT, DARK)
NOT_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Control characters with which no browser shows an SVG."""
LINES = ("-", (0, (5, 1.6)), (0, (1.5, 1.2)))
MARKERS = ("o", "s", "D")


def line(look: Look) -> Any:
    """Line style of a look: colour is never the only difference between two arms, nor the style alone between near ones."""
    return LINES[(look.rank + look.rank // len(LINES)) % len(LINES)]


def marker(look: Look) -> str:
    """Marker of a look."""
    return MARKERS[(look.rank + look.rank // len(MARKERS)) % len(MARKERS)]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure of the page: drawn once per theme and file format."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    alt: str
    """What the figure shows, for those who cannot see it."""
    draw: Callable[[Theme], Figure]
    data: Sequence[Mapping[str, Any]] = ()
    """The plotted numbers as rows, published as figures/<name>.parquet: what somebody needs to draw it again."""


@dataclass(frozen=True)
class Images:
    """A figure's files."""

    svg: bytes
    dark_svg: bytes
    png: bytes


def render(drawing: Drawing) -> Images:
    """The figure in both themes. Equal inputs give equal bytes: no dates, no random ids."""
    svg, png = _save(drawing, LIGHT, "svg", "png")
    (dark_svg,) = _save(drawing, DARK, "svg")
    return Images(svg, dark_svg, png)


def _save(drawing: Drawing, theme: Theme, *kinds: Literal["svg", "png"]) -> list[bytes]:
    """One theme's files: the layout, which takes most of the time, is found once."""
    files = []
    with laid_out(drawing, theme) as figure:
        for kind in kinds:
            out = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(out, format=kind, dpi=200, metadata=metadata)
            data = out.getvalue()
            files.append(NOT_XML.sub(b"", data) if kind == "svg" else data)  # its comments hold people's text
    return files


@contextmanager
def laid_out(drawing: Drawing, theme: Theme) -> Iterator[Figure]:
    """The figure with everything in its place, with matplotlib's settings as the theme wants them."""
    with matplotlib.rc_context(_rc(theme)):  # type: ignore[arg-type]  # its keys are literals
        figure = drawing.draw(theme)
        FigureCanvasAgg(figure)  # text is measured with Agg, whatever the file's format
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        yield figure


def _rc(theme: Theme) -> dict[str, Any]:
    return {
        "svg.fonttype": "path",  # an image inside a page cannot rely on the reader's fonts
        "svg.hashsalt": "raychains",
        "text.parse_math": False,  # labels are people's text: a dollar sign is a dollar sign
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 6,
        "axes.labelsize": 9,
        "axes.facecolor": theme.paper,
        "axes.edgecolor": theme.muted,
        "axes.linewidth": 0.7,
        "axes.labelcolor": theme.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.formatter.use_mathtext": False,
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "text.color": theme.ink,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "legend.handlelength": 2.6,
        "figure.facecolor": theme.paper,
        "savefig.facecolor": "auto",
        "lines.linewidth": 1.6,
        "lines.solid_capstyle": "round",
        "hatch.linewidth": 0.6,
        "figure.constrained_layout.use": True,
    }
