"""A test error and its NLL, from the predictions of all samples of one chain."""

from tests.published.recompute.predicted import of_cell as check

__all__ = ["check"]
