"""Layout of figures: every panel has its axes."""

from __future__ import annotations

import pytest

from raychains.plotting.layout import grid


@pytest.mark.parametrize(
    ("count", "columns", "rows"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (5, 2, 3), (6, 3, 2), (7, 3, 3)]
)
def test_a_grid_has_axes_for_every_panel_and_its_last_row_may_have_empty_places(
    count: int, columns: int, rows: int
) -> None:
    figure, axes = grid(count, columns, 2.0)
    assert len(axes) == count and all(axis.axison for axis in axes)
    assert len(figure.axes) == rows * min(count, columns)
    assert sum(axis.axison for axis in figure.axes) == count
    assert figure.get_size_inches()[1] == pytest.approx(2.0 * rows + 0.5)
