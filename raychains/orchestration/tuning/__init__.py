"""Sweeps on Ray Tune: each trial is one chain, what it reports is in the store before anybody decides on it."""

from raychains.orchestration.tuning.driver import SweepDriver, SweepOutcome

__all__ = ["SweepDriver", "SweepOutcome"]
