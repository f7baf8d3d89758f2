"""The Python API: `compare`, `run`, `evaluate`, `draw_report`, `load`. The command line calls the same functions."""

from raychains.api.driving import placement
from raychains.api.evaluating import evaluate
from raychains.api.reporting import compared, draw_report
from raychains.api.result import Result, load
from raychains.api.sampling import compare, run

__all__ = ["Result", "compare", "compared", "draw_report", "evaluate", "load", "placement", "run"]
