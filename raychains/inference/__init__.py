"""A run's posterior as one `torch.nn.Module` and one file, for use without stores, data and Ray."""

from raychains.inference.ensemble import Classified, PosteriorPredictive, Regressed
from raychains.inference.export import Exported, export, posterior

__all__ = ["Classified", "Exported", "PosteriorPredictive", "Regressed", "export", "posterior"]
