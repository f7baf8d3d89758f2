"""Ray Tune: chains as trials, and the sweeps of them."""
