"""Claims that hold of every figure: labels, legends that cover nothing, everything on the paper."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from raychains.inference.run_data import RunData
from raychains.plotting.style import Drawing, laid_out
from raychains.report.figures import FIGURES


def drawing_of(run: RunData, name: str) -> Drawing:
    drawing = FIGURES[name](run)
    assert drawing is not None and drawing.name == name and drawing.caption and drawing.alt
    return drawing


def drawn(run: RunData, name: str) -> tuple[Drawing, Figure]:
    drawing = drawing_of(run, name)
    return drawing, drawing.draw()


def labels(figure: Figure) -> set[str]:
    axes = [axis for axis in figure.axes if axis.axison]
    found = {text for axis in axes for text in (axis.get_xlabel(), axis.get_ylabel()) if text}
    return found | {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def nothing_covered(drawing: Drawing, legends: int = 1) -> set[str]:
    """Assert that legends cover no axes, that all lies on the paper and no mathematics is typeset; return the
    labels."""
    with laid_out(drawing) as figure:
        boxes = [legend.get_window_extent() for legend in figure.legends]
        assert len(boxes) == legends, drawing.name
        for axis in (axis for axis in figure.axes if axis.axison):
            box: Any = axis.get_tightbbox()
            assert axis.has_data() and not any(box.overlaps(legend) for legend in boxes), drawing.name
            for low, high, of in ((box.x0, box.x1, figure.bbox.width), (box.y0, box.y1, figure.bbox.height)):
                assert low >= -1 and high <= of + 1, drawing.name
            assert not any("$" in tick.get_text() for tick in (*axis.get_xticklabels(), *axis.get_yticklabels()))
        return labels(figure)
