"""Charts as data: small multiples of lines with bands, bars, matrices and maps, and one renderer that draws them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from raychains.plotting import layout
from raychains.plotting.style import HEAT, INK, MUTED, PAPER

Style = Mapping[str, Any]
"""Matplotlib's keywords of a line: color, linestyle, linewidth, marker, markersize, alpha …"""
DOT: Style = {"color": MUTED, "linestyle": "", "marker": "o", "markersize": 4.5}
DASHED: Style = {"color": INK, "linestyle": layout.DASHED, "linewidth": 0.9}
DOTTED: Style = {"color": MUTED, "linestyle": ":", "linewidth": 0.9}
HOLLOW: Style = {"markerfacecolor": "none", "markeredgewidth": 1}
SHADE: Style = {"color": MUTED, "alpha": 0.25, "linewidth": 7}
"""A legend's entry of a band."""
MANY = 40
"""Dots in one line from which on they are smaller and paler."""
TICKS = ((300.0, (1.0,)), (10.0, (1.0, 2.0, 5.0)), (0.0, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
"""Ticks of a logarithmic axis in each decade, by the least ratio of its ends."""
LONGEST_TITLE = 104
"""Characters of the titles of one row of panels, beyond which they are broken over lines."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a panel."""

    label: str = ""
    scale: str = "linear"
    """linear, log or logit."""
    low: float | None = None
    """Where it begins; by default a little before the data."""
    high: float | None = None
    ticks: Mapping[float, str] | int | None = None
    """Places with their texts, or about how many there are."""
    whole: bool = False
    """True if ticks are at whole numbers only."""
    text: Callable[[float], str] | None = None
    """Text of a tick."""
    grid: bool = True
    margin: float | None = None
    """Room beyond the data, as a share of their range."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points in their order, with a band or bars of their errors; dots where the style has no line."""

    x: Any
    y: Any
    style: Style
    label: str = ""
    """Its text in the legend, where it has an entry of its own."""
    band: tuple[Any, Any] | None = None
    """Lower and upper ends of y, drawn as a shade."""
    upright: tuple[Any, Any] | None = None
    """Lower and upper ends of y, drawn as bars."""
    level: tuple[Any, Any] | None = None
    """Left and right ends of x, drawn as bars."""
    bars: Style = field(default_factory=dict)
    """Changes of the bars' style."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A reference line across the panel, or between two places; a band of ``width``."""

    at: float
    upright: bool = False
    style: Style = field(default_factory=lambda: DASHED)
    label: str = ""
    ends: tuple[float, float] | None = None
    width: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Upright bars."""

    x: Any
    height: Any
    width: float
    style: Style
    bottom: Any = 0.0
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A matrix in colours, from its first row at the top."""

    values: Any
    low: float
    high: float
    extent: tuple[float, float, float, float] | None = None
    """Left, right, bottom and top ends; by default the middles of cells are whole numbers."""
    digits: int | None = None
    """Decimals of the number in each cell that has one; None writes none."""
    colours: tuple[str, ...] = HEAT


@dataclass(frozen=True, kw_only=True)
class Contours:
    """A map of heights over the plane."""

    x: Any
    y: Any
    z: Any
    """[y, x]."""
    levels: Any
    colours: tuple[str, ...] = HEAT


@dataclass(frozen=True, kw_only=True)
class Note:
    """A text beside a point."""

    x: float
    y: float
    text: str
    boxed: bool = False
    style: Style = field(default_factory=dict)
    """Changes of the annotation's keywords."""


Mark = Line | Rule | Bars | Heat | Contours | Note


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Marks over common axes."""

    marks: Sequence[Mark]
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    title: str = ""
    heads: Mapping[float, str] = field(default_factory=dict)
    """Texts over lines of the panel, by their places."""
    equal: Literal["", "box", "datalim"] = ""
    """Whether both axes have one scale, and what gives way for it: the panel's size or its limits."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels in rows, one below the other, with one legend; called, it is drawn."""

    panels: Sequence[Panel | None]
    """None leaves a place empty."""
    columns: int = 1
    """At most so many in a row."""
    height: float = 3.0
    """Of a row, in inches."""
    share_x: bool | Literal["row", "col"] = False
    """Panels with the same axis: its label is at the outer ones alone."""
    share_y: bool | Literal["row", "col"] = False
    widths: Sequence[float] | None = None
    """Ratios of the columns' widths."""
    heights: Sequence[float] | None = None
    """Ratios of the rows' heights."""
    legend: Iterable[tuple[str, Style]] = ()
    """Texts and styles of entries that follow those of the marks with labels."""
    legend_columns: int = 3
    bar: str = ""
    """Label of the bar of colours."""

    def __call__(self) -> Figure:
        """Draw the chart."""
        columns = min(self.columns, len(self.panels))
        shared = {"sharex": self.share_x, "sharey": self.share_y, "width_ratios": self.widths}
        shared["height_ratios"] = self.heights
        figure, rows = layout.panels(-(-len(self.panels) // columns), columns, self.height, **shared)
        axes = [axis for row in rows for axis in row]
        shown = {i: panel for i, panel in enumerate(self.panels) if panel is not None}
        shades = [shade for i, panel in shown.items() if (shade := _marks(axes[i], panel)) is not None]
        self._frame(axes, shown, columns)  # once all data are there, which panels may share the ends of axes with
        if self.bar:
            of = [axes[i] for i in shown]
            bar = figure.colorbar(shades[-1], ax=of, shrink=0.8, pad=0.02, panchor=False, format=layout.PLAIN)
            bar.set_label(self.bar)
            bar.outline.set_visible(False)
        layout.legend(figure, self._entries(), self.legend_columns)
        return figure

    def _frame(self, axes: Sequence[Axes], shown: Mapping[int, Panel], columns: int) -> None:
        """Set up the axes of all panels, and turn off those of empty places."""
        for i, axis in enumerate(axes):
            if i not in shown:
                axis.set_axis_off()
                continue
            inner_x = self.share_x and self.share_x != "row" and i + columns in shown
            inner_y = self.share_y and self.share_y != "col" and i % columns
            _frame(axis, shown[i], columns, not inner_x, not inner_y)

    def _entries(self) -> list[Any]:
        """Return the legend's entries, those of marks with labels first."""
        marks = [mark for panel in self.panels if panel is not None for mark in panel.marks]
        labelled = [mark for mark in marks if isinstance(mark, Line | Rule | Bars) and mark.label]
        entries = {mark.label: _entry(mark) for mark in labelled} | dict(self.legend)
        return [
            Patch(label=text, **style) if "hatch" in style else layout.entry(text, **style)
            for text, style in entries.items()
        ]


def lines_of(labels: Sequence[str], lines: int = 3) -> Axis:
    """Return an upright axis with a line for each label, from top to bottom."""
    places = {float(i): layout.wrapped(label, lines=lines) for i, label in enumerate(labels)}
    return Axis(ticks=places, low=len(labels) - 0.5, high=-0.5, grid=False)


def in_lines(labels: Sequence[str], panels: Iterable[tuple[Axis, Sequence[Mark]]], **settings: Any) -> Chart:
    """Return a chart whose panels have a line for each label, from top to bottom; marks are at its number."""
    of = [Panel(x=replace(x, margin=0.06), y=lines_of(labels), marks=marks) for x, marks in panels]
    return Chart(panels=of, **{"columns": 2, "height": 0.34 * len(labels) + 0.75, "share_y": True, **settings})


def dots(line: float, values: Any, style: Style, *, apart: float = 0.3, **bars: Any) -> Line:
    """Return values [n] as dots in their line; equal ones lie ``apart`` at most, and many are small and pale."""
    values = np.asarray(values, dtype=float)
    look = {"markersize": 3, "alpha": 0.4} if len(values) > MANY else {"alpha": 0.75}
    y = line + layout.apart(len(values), apart)
    return Line(x=values, y=y, style={**DOT, "markeredgewidth": 0, **look, **style}, **bars)


def span(line: float, low: float, high: float, style: Style) -> Line:
    """Return a bar from low to high in a line."""
    return Line(x=[low, high], y=[line, line], style={"linewidth": 1, "alpha": 0.6, **style})


def _entry(mark: Line | Rule | Bars) -> Style:
    if isinstance(mark, Bars):
        return {**SHADE, **mark.style} if "hatch" not in mark.style else mark.style
    hidden = ("markevery", "zorder", "clip_on")
    return {name: value for name, value in mark.style.items() if name not in hidden}


def _marks(axis: Axes, panel: Panel) -> Any:
    """Draw a panel's marks; return what a bar of colours explains."""
    for name, spec in (("x", panel.x), ("y", panel.y)):
        if spec.scale != "linear":
            clip = {"nonpositive": "clip"} if spec.scale == "log" else {}
            getattr(axis, f"set_{name}scale")(spec.scale, **clip)
    shades = None
    for mark in panel.marks:
        shades = _mark(axis, mark) or shades
    return shades


def _frame(axis: Axes, panel: Panel, columns: int, outer_x: bool, outer_y: bool) -> None:
    """Set up a panel's axes and title, once its marks are drawn."""
    axis.margins(*(room if spec.margin is None else spec.margin for spec, room in ((panel.x, 0.02), (panel.y, 0.05))))
    label = panel.x.label
    arrow = label.replace("   ", "\n") if len(label) > LONGEST_TITLE // columns else label
    _axis(axis, "x", replace(panel.x, label=arrow), outer_x)
    _axis(axis, "y", panel.y, outer_y)
    for place, text in panel.heads.items():
        over: Any = {"fontsize": 8.5, "fontweight": "bold", "va": "center", "ha": "left"}
        axis.text(0.005, place, text, transform=axis.get_yaxis_transform(), **over)
    if panel.equal:
        axis.set_aspect("equal", adjustable=panel.equal, anchor="N")
    if panel.title:
        width = LONGEST_TITLE // columns
        title = "\n".join(part for line in panel.title.split("\n") for part in textwrap.wrap(line, width))
        axis.set_title(title, fontsize=8.5 if columns > 2 or "\n" in title else None)


def _axis(axis: Axes, name: str, spec: Axis, outer: bool) -> None:
    one = getattr(axis, f"{name}axis")
    if spec.low is not None or spec.high is not None:
        getattr(axis, f"set_{name}lim")(spec.low, spec.high)
    if isinstance(spec.ticks, Mapping):
        one.set_ticks(list(spec.ticks), list(spec.ticks.values()))
        one.set_minor_locator(NullLocator())
    elif spec.scale == "log":
        low, high = sorted(getattr(axis, f"get_{name}lim")())
        subs = next(ticks for above, ticks in TICKS if high / low >= above)
        layout.log_axis(one, [sub for sub in subs if sub % 1 == 0 or not spec.whole])
    elif spec.ticks is not None:
        one.set_major_locator(MaxNLocator(spec.ticks, integer=spec.whole))
    if spec.text is not None:
        one.set_major_formatter(FuncFormatter(lambda value, _: spec.text(value)))  # type: ignore[misc]
    if not spec.grid:
        axis.grid(False, axis=name)  # type: ignore[arg-type]
        axis.tick_params(axis=name, length=0)  # type: ignore[arg-type]
    if outer:
        one.set_label_text(spec.label)
    axis.tick_params(axis=name, **{"labelbottom" if name == "x" else "labelleft": outer})  # type: ignore[arg-type]


def _mark(axis: Axes, mark: Mark) -> Any:
    match mark:
        case Line():
            _line(axis, mark)
        case Rule(ends=None, width=0.0):
            (axis.axvline if mark.upright else axis.axhline)(mark.at, **{"zorder": 1, **mark.style})
        case Rule(ends=None):
            ends = mark.at - mark.width / 2, mark.at + mark.width / 2
            (axis.axvspan if mark.upright else axis.axhspan)(*ends, **{**mark.style, "linewidth": 0})
        case Rule():
            x, y = [mark.at, mark.at], list(mark.ends or ())
            axis.plot(*((x, y) if mark.upright else (y, x)), **{"zorder": 4, **mark.style})
        case Bars():
            axis.bar(mark.x, mark.height, mark.width, mark.bottom, **{"linewidth": 0, **mark.style})
        case Heat():
            return _heat(axis, mark)
        case Contours():
            colours = LinearSegmentedColormap.from_list("heat", mark.colours)
            axis.contour(mark.x, mark.y, mark.z, levels=mark.levels, colors=MUTED, linewidths=0.4)
            axis.grid(False)
            return axis.contourf(mark.x, mark.y, mark.z, levels=mark.levels, cmap=colours, extend="max", zorder=0)
        case Note():
            box = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.75, "pad": 1} if mark.boxed else None
            text: Any = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 8.5, "bbox": box}
            axis.annotate(mark.text, (mark.x, mark.y), **text | mark.style)
    return None


def _line(axis: Axes, mark: Line) -> None:
    colour = mark.style.get("color", INK)
    bars: Any = {"color": colour, "linewidth": 1.2, "alpha": 0.7, "zorder": 2, **mark.bars}
    if mark.band is not None:
        axis.fill_between(mark.x, *mark.band, color=colour, alpha=0.15, linewidth=0)
    if mark.upright is not None:
        axis.vlines(mark.x, *mark.upright, **bars)
    if mark.level is not None:
        axis.hlines(mark.y, *mark.level, **bars)
    style = {"color": colour, **mark.style}
    if not style.get("marker"):
        if style.get("linestyle") == "":  # bars alone
            return
        style |= {"marker": "o", "markersize": 4} if len(mark.x) == 1 else {}
    axis.plot(mark.x, mark.y, **style)


def _heat(axis: Axes, mark: Heat) -> Any:
    values = np.asarray(mark.values, dtype=float)
    colours = LinearSegmentedColormap.from_list("heat", mark.colours).with_extremes(bad=PAPER)
    look: Any = {"cmap": colours, "vmin": mark.low, "vmax": mark.high, "interpolation": "nearest"}
    axis.grid(False)
    for (i, j), value in np.ndenumerate(values) if mark.digits is not None else ():
        if np.isfinite(value):
            axis.text(j, i, f"{value:.{mark.digits}f}", ha="center", va="center", fontsize=7.5)
    return axis.imshow(values, aspect="auto" if mark.extent is None else "equal", extent=mark.extent, **look)
