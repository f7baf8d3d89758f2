"""What the papers prove, in numbers: theorems 1 and 2 of cSG-MCMC, its convex bound, Entropy-MCMC's theorem 1.

`weak` is theorem 1, `wasserstein` theorem 2 with the convex bound, `dimension` Entropy-MCMC's. Each has a frozen
``Plan`` (its default is the full size, ``SMOKE`` a small one) and gives exact values and bounds; `weak` and `wasserstein`
also run lanes of the public sampler. What is claimed of them is in `raychains.published.theory`.
"""
