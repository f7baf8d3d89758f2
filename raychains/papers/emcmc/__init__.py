"""Entropy-MCMC (Li & Zhang, ICLR 2024)."""
