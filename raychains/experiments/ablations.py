"""Entropy-MCMC's ablations and ATMC's ensembles of many cycles, on digits: minutes on a laptop."""

from __future__ import annotations

from raychains.experiments.presets import Preset, Variant

ETAS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Around digits' own .01; at N = 500 and lr .3 the coupling lr/(ηN) is unstable below about .001."""
TEMPERATURES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
EXPLORATIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.94)
"""0, 10, 20, 30, 40 and 47 epochs of cycles of 50."""

PRESETS = (
    Preset(
        name="emcmc-eta",
        about="Entropy-MCMC under several η, the variance of θₐ around θ (Li & Zhang 2024, C.1)",
        variants=[
            Variant(name=f"eta-{eta:g}", label=f"η = {eta:g}", options={"sampler_settings": (f"eta={eta:g}",)})
            for eta in ETAS
        ],
    ),
    Preset(
        name="emcmc-temperature",
        about="Entropy-MCMC at temperatures from 1 to 1e-5 (Li & Zhang 2024, Table 4)",
        variants=[Variant(name=f"t-{t:g}", label=f"T = {t:g}", options={"temperature": t}) for t in TEMPERATURES],
    ),
    Preset(
        name="emcmc-variables",
        about="the same chains of Entropy-MCMC, predicting with θ, with θₐ and with both (Li & Zhang 2024, Table 7)",
        variants=[
            Variant(name="theta", label="θ", variables=("theta",)),
            Variant(name="anchor", label="θₐ", variables=("anchor",)),
            Variant(name="both", label="θ and θₐ"),
        ],
    ),
    Preset(
        name="emcmc-batchnorm",
        about="BatchNorm's statistics of θₐ: θ's own, re-estimated, or FRN in its place (Li & Zhang 2024, Table 8); the "
        "network is a small convolutional one",
        variants=[
            Variant(
                name="shared",
                label="BatchNorm, θ's statistics",
                options={"task_settings": ("norm=batch",), "batchnorm": "shared"},
            ),
            Variant(
                name="reestimated",
                label="BatchNorm, re-estimated",
                options={"task_settings": ("norm=batch",), "batchnorm": "reestimate"},
            ),
            Variant(name="frn", label="FRN", options={"task_settings": ("norm=frn",), "batchnorm": "reestimate"}),
        ],
    ),
    Preset(
        name="emcmc-burn-in",
        about="Entropy-MCMC with a share of each cycle without noise: 0 to 47 of 50 epochs (Li & Zhang 2024, Table 9)",
        variants=[
            Variant(name=f"burn-in-{b:g}", label=f"burn-in {b:.0%} of a cycle", options={"exploration": b})
            for b in EXPLORATIONS
        ],
    ),
    Preset(
        name="emcmc-augmentation",
        about="SGD, SGLD and Entropy-MCMC with and without random shifts by one pixel (Li & Zhang 2024, Table 3)",
        variants=[
            Variant(
                name="augmented" if augment else "plain",
                label="augmented" if augment else "not augmented",
                sampler=sampler,
                options={"task_settings": (f"augment={str(augment).lower()}",)},
            )
            for sampler in ("sgd", "sgld", "emcmc")
            for augment in (True, False)
        ],
    ),
    Preset(
        name="atmc-cycles",
        about="ATMC and SGNHT with one sample at the end of each of 20 cycles: NLL against the number of cycles (Heek & "
        "Kalchbrenner 2019, §5)",
        options={"cycles": 20},
        variants=[Variant(name="cycles", label="", sampler=sampler) for sampler in ("atmc", "sgnht")],
    ),
)
