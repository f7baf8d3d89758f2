"""Style of figures: colours for light and dark pages, a colour-blind-safe palette, one width;
without pyplot's global state."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import Formatter, FuncFormatter

from raychains.core.errors import printable

WIDTH = 8.4
"""Inches of every figure: at the page's width its text is about as large as the page's own."""


# Okabe and Ito's palette: hues tell schedules apart, line styles and markers the arms of one.
PAPER = "#ffffff"
INK = "#1f2328"
MUTED = "#656d76"
GRID = "#e3e6ea"
ALARM = "#b3261e"
FAMILIES = {
    "cyclical": ("#0072b2", "#3fa9e0", "#009e73"),
    "decreasing": ("#d55e00", "#dc9a00", "#a8487f"),
    "other": ("#009e73", "#a8487f", MUTED),
}
"""The colours of a schedule's arms: blues for cyclical ones, oranges for decreasing ones."""
HUES = ("#0072b2", "#d55e00", "#009e73", "#dc9a00", "#a8487f", "#3fa9e0")
"""The colours that differ most, in their order."""
HEAT = ("#3a93d400", "#3a93d4", "#e0641c")
"""From nothing to much, for densities: from transparent over blue to orange, which reads on either paper."""
DARK = {
    PAPER: "#14181d",
    INK: "#e6e9ee",
    MUTED: "#9aa4b0",
    GRID: "#2b323b",
    ALARM: "#ff8a80",
    "#0072b2": "#3d9fe0",
    "#3fa9e0": "#9bd7ff",
    "#009e73": "#2fc79a",
    "#d55e00": "#f0763a",
    "#dc9a00": "#f2c14e",
    "#a8487f": "#e29ac4",
}
"""The colour that a browser shows instead of each but those of heat where the reader's colour scheme is dark."""
NOT_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Control characters with which no browser shows an SVG."""
LINES = ("-", (0, (5, 1.6)), (0, (1.5, 1.2)))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "*")
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",  # an image inside a page cannot rely on the reader's fonts
    "svg.hashsalt": "raychains",
    "text.parse_math": False,  # labels are users' text: a dollar sign is a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 6,
    "axes.labelsize": 9,
    "axes.facecolor": PAPER,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.6,
    "figure.facecolor": PAPER,
    "savefig.facecolor": "auto",
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.use": True,
}
"""Settings of matplotlib for every figure."""


def hue(i: int) -> str:
    """The i-th of `HUES`, which repeat."""
    return HUES[i % len(HUES)]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure of the page: drawn once, as SVG and as PNG."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    alt: str
    """A description of the figure, for those who cannot see it."""
    draw: Callable[[], Figure]
    """A `raychains.plotting.charts.Chart`, or a function that draws what is none of its kinds."""
    data: Sequence[Mapping[str, Any]] = ()
    """The plotted numbers as rows, published as figures/<name>.parquet: what somebody needs to draw it again."""


def records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of columns, some of which may be one value for all rows."""
    return pd.DataFrame(columns).to_dict("records")


def render(drawing: Drawing) -> tuple[bytes, bytes]:
    """The figure as an SVG that follows the reader's colour scheme and as a PNG.

    Equal inputs give equal bytes: no dates, no random ids.
    """
    png = io.BytesIO()
    with laid_out(drawing) as figure:  # the layout, which takes most of the time, is found once
        svg = as_svg(figure)
        figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
    return svg, png.getvalue()


def as_svg(figure: Figure) -> bytes:
    """A figure that is laid out as an SVG that follows the reader's colour scheme."""
    svg = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(svg, format="svg", dpi=200, metadata={"Date": None})
    return themed(svg.getvalue())


def themed(svg: bytes) -> bytes:
    """``svg`` with a style sheet that gives its elements the colours of `DARK` in a dark colour scheme.

    Elements keep their plain light colours: programs that know no style sheets, such as converters to PDF, show those.
    """
    rules = "".join(
        f'[style*="{name}: {light}"]{{{name}:{dark}!important}}\n'
        for light, dark in DARK.items()
        for name in ("fill", "stroke")
    )
    sheet = f"<style>@media screen and (prefers-color-scheme: dark){{\n{rules}}}</style>\n"
    return NOT_XML.sub(b"", svg).replace(b"</svg>", sheet.encode() + b"</svg>")  # comments hold users' text


@contextmanager
def laid_out(drawing: Drawing) -> Iterator[Figure]:
    """Yield the figure with everything in its place, under `SETTINGS`."""
    with matplotlib.rc_context(SETTINGS):
        figure = drawing.draw()
        _write_out_controls(figure)
        FigureCanvasAgg(figure)  # text is measured with Agg, whatever the file's format
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        yield figure


def _write_out_controls(figure: Figure) -> None:
    """Write out control characters of users' names, for which no font has a glyph: matplotlib would warn with them."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if (plain := printable(text.get_text())) != text.get_text():
            text.set_text(plain)
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(formatter := axis.get_major_formatter(), FuncFormatter):  # as that of `set_xticks(…, labels)`
            axis.set_major_formatter(partial(_plainly, formatter))


def _plainly(formatter: Formatter, value: float, position: int | None) -> str:
    return printable(formatter(value, position))
