"""From options to chains: comparisons, presets, budgets; and the events that a run tells."""

from raychains.planning.budget import Budget, budget, gradient_evaluations
from raychains.planning.comparison import Arm, Comparison

__all__ = ["Arm", "Budget", "Comparison", "budget", "gradient_evaluations"]
