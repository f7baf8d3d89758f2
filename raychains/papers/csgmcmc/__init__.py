"""Cyclical SG-MCMC (Zhang et al., ICLR 2020)."""
