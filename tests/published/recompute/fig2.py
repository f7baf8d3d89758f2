"""The same as Table 4's, of the arms that the figure shows."""

from tests.published.recompute.table4 import check

__all__ = ["check"]
