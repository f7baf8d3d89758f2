"""What people can set: one flat dataclass per command, the same names on the command line and in Python.

A number that is left out takes the method's default for the task, which the printed plan shows.
"""

from raychains.options.chains import Compare, Plan, Run, Sweep
from raychains.options.common import Common, Sampling
from raychains.options.finished import Evaluate, Export, InitTask, Prepare, Report, Status
from raychains.options.reproduce import Reproduce

__all__ = [
    "Common", "Compare", "Evaluate", "Export", "InitTask", "Plan", "Prepare", "Report", "Reproduce", "Run", "Sampling",
    "Status", "Sweep",
]  # fmt: skip
