"""Names of `raychains.planning.failure` under which sweeps import them."""

from raychains.planning.failure import LONGEST_LOOK, ChainPace, Stall

__all__ = ["LONGEST_LOOK", "ChainPace", "Stall"]
