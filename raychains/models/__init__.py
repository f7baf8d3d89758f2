"""Networks. A model that changes what it computes raises its `revision`."""

from raychains.models.mlp import MLP

__all__ = ["MLP"]
