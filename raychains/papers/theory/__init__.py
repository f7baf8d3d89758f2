"""The papers' theorems in numbers: theorems 1 and 2 of cSG-MCMC, its convex bound, Entropy-MCMC's theorem 1."""
