"""Pure functions from samples to predictions, rows and metrics."""

from raychains.evaluation.evaluation import Evaluation, Metric, Reduced

__all__ = ["Evaluation", "Metric", "Reduced"]
