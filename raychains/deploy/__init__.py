"""A run's posterior as one `torch.nn.Module` and one file, for use without stores, data and Ray."""

from raychains.deploy.ensemble import PosteriorPredictive
from raychains.deploy.export import Exported, export, posterior
from raychains.deploy.reduce import Classified, Regressed

__all__ = ["Classified", "Exported", "PosteriorPredictive", "Regressed", "export", "posterior"]
