"""Data that live on the chain's device, and the order in which a chain sees them."""
