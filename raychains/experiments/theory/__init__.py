"""What the papers prove, checked by numbers: theorems 1 and 2 of cSG-MCMC, its convex bound, Entropy-MCMC's theorem 1.

`weak` is theorem 1, `wasserstein` theorem 2 with the convex bound, `dimension` Entropy-MCMC's. Each has a frozen
``Plan`` (its default is the full size, ``SMOKE`` a small one), a ``run`` that returns plain tables and the raw draws or
averages behind them, and claims that can fail.
"""
