"""Charts as data: what their renderer makes of labels, legends, axes and marks."""

from __future__ import annotations

import numpy as np
import pytest

from raychains.plotting.charts import DASHED, DOT, Axis, Bars, Chart, Heat, Line, Mark, Panel, Rule, dots, in_lines
from raychains.plotting.layout import plain

INK = {"color": "#0072b2"}
X, Y = Axis(label="x"), Axis(label="y")


def line(**more: object) -> Line:
    return Line(x=[0, 1], y=[1, 10], style=INK, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "labelled"), [(False, ["xy", "xy", "xy"]), (True, ["y", "x", "xy"])], ids=["own axes", "shared axes"]
)
def test_shared_axes_are_labelled_at_the_outer_panels_alone(share: bool, labelled: list[str]) -> None:
    panels = [Panel(marks=[line()], x=X, y=Y)] * 3
    figure = Chart(panels=panels, columns=2, share_x=share, share_y=share)()
    shown = [axis for axis in figure.axes if axis.axison]
    assert [axis.get_xlabel() + axis.get_ylabel() for axis in shown] == labelled and len(figure.axes) == 4


def test_panels_that_share_an_axis_show_the_data_of_all() -> None:
    panels = [Panel(marks=[Line(x=[0, 1], y=[0, high], style=INK)], y=Axis(low=0)) for high in (1, 9)]
    for axis in Chart(panels=panels, columns=2, share_y=True)().axes:
        low, high = axis.get_ylim()
        assert low == 0 and high > 9


def test_the_legend_has_each_label_once_and_then_the_entries_that_are_given() -> None:
    panels = [Panel(marks=[line(label="a"), Bars(x=[0], height=[1], width=1, style=INK, label="b")])] * 2
    (legend,) = Chart(panels=panels, columns=2, legend=[("c", DASHED)])().legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    assert Chart(panels=[Panel(marks=[line()])])().legends == []


def test_labels_have_lines_from_top_to_bottom_and_what_is_not_finite_is_no_dot() -> None:
    values = np.array([1.0, np.nan, 3.0])
    (axis,) = in_lines(["first", "second"], [(X, [dots(0, values, DOT), dots(1, [2.0], DOT)])])().axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["first", "second"]
    assert axis.get_ylim() == (1.5, -0.5) and np.diff(axis.lines[0].get_ydata()).min() > 0  # type: ignore[call-overload]


def test_bands_bars_of_errors_and_rules_are_at_their_ends() -> None:
    ends = ([0.5, 5], [2, 20])
    marks: list[Mark] = [line(band=ends), line(upright=ends), line(level=([-1, 0], [1, 2])), Rule(at=4, ends=(0, 2))]
    (axis,) = Chart(panels=[Panel(marks=marks, y=Axis(scale="log"))])().axes
    band, upright, level = axis.collections
    assert {0.5, 5, 2, 20} <= {*band.get_paths()[0].vertices[:, 1].tolist()}  # type: ignore[index]
    assert [s[:, 1].tolist() for s in upright.get_segments()] == [[0.5, 2], [5, 20]]  # type: ignore[attr-defined]
    assert [s[:, 0].tolist() for s in level.get_segments()] == [[-1, 1], [0, 2]]  # type: ignore[attr-defined]
    assert axis.lines[-1].get_xydata().tolist() == [[0, 4], [2, 4]] and axis.get_yscale() == "log"  # type: ignore[union-attr]


def test_a_single_point_is_marked() -> None:
    """As of an arm with one sample, or of a run of one epoch: a line through it is not seen."""
    for x in ([1.0], [1.0, 2.0]):
        (axis,) = Chart(panels=[Panel(marks=[Line(x=x, y=x, style=INK)])])().axes
        assert (axis.lines[0].get_marker() not in ("", "None")) is (len(x) == 1)


def test_a_matrix_has_its_numbers_where_there_are_any() -> None:
    heat = Heat(values=[[1, np.nan], [2, 3]], low=0, high=3, digits=1)
    axis, bar = Chart(panels=[Panel(marks=[heat])], bar="share")().axes
    assert sorted(text.get_text() for text in axis.texts) == ["1.0", "2.0", "3.0"] and bar.get_ylabel() == "share"


def test_texts_of_ticks_are_plain() -> None:
    assert [plain(v) for v in (0, -2.5, 0.05, 1.5, 1000, 1e-5, 2e-5, 1e7)] == [
        "0", "-2.5", "0.05", "1.5", "1,000", "10⁻⁵", "2e-05", "10⁷",
    ]  # fmt: skip
