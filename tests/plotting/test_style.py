"""Figures hold users' names, whatever characters these are of."""

from __future__ import annotations

import warnings

from matplotlib.figure import Figure

from raychains.plotting.style import Drawing, render


def test_control_characters_of_names_are_written_out_and_matplotlib_warns_of_none() -> None:
    made: list[Figure] = []

    def draw() -> Figure:
        figure = Figure()
        axes = figure.add_subplot(title="title\a")
        axes.plot([0, 1], label="run\x1b[31m")
        axes.set_xticks([0, 1], ["one\x1b[1m", "é"])
        axes.legend()
        made.append(figure)
        return figure

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render(Drawing(name="names", title="", caption="", alt="", draw=draw))
    (axes,) = made[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == [r"one\x1b[1m", "é"]
    assert axes.get_title("left") == r"title\x07"
    legend = axes.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == [r"run\x1b[31m"]
