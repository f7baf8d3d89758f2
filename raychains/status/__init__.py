"""Progress of runs and sweeps, read from the store alone: from another terminal, another machine, or years later."""

from raychains.status.reading import Reader, status_of
from raychains.status.state import ArmState, ChainState, DriverState, RunState, StoreState, SweepState

__all__ = ["ArmState", "ChainState", "DriverState", "Reader", "RunState", "StoreState", "SweepState", "status_of"]
