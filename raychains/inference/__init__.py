"""A run's posterior as one `torch.nn.Module` and one file, for use without stores, data and Ray."""

from raychains.inference.ensemble import Classified, PosteriorPredictive, Regressed

__all__ = ["Classified", "PosteriorPredictive", "Regressed"]
