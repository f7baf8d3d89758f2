"""Pure planning: comparisons to unique chains, budgets, the coordinator's state machine, failure policy."""

from raychains.planning.budget import Budget, budget, gradient_evaluations
from raychains.planning.comparison import Arm, Comparison

__all__ = ["Arm", "Budget", "Comparison", "budget", "gradient_evaluations"]
