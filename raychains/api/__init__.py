"""The Python API: `compare`, `run`, `sweep`, `evaluate`, `draw_report`, `load`. The command line calls the same functions."""

from raychains.api.driving import placement
from raychains.api.evaluating import evaluate
from raychains.api.reporting import compared, draw_report
from raychains.api.result import Result, load
from raychains.api.sampling import compare, run
from raychains.api.sweeping import SweepResult, sweep

__all__ = [
    "Result", "SweepResult", "compare", "compared", "draw_report", "evaluate", "load", "placement", "run", "sweep",
]  # fmt: skip
