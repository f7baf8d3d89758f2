"""Table 2: four chains against one at equal and at lower cost, with decreasing and cyclical steps."""

from __future__ import annotations

from raychains import papers as rp
from raychains.papers.csgmcmc import cifar

SAMPLERS = rp.labels("sgld sghmc")
ARMS = {"cyclical-parallel": "Cyclical + parallel", "decreasing-parallel": "Decreasing + parallel"}
ARMS |= {"decreasing-half": "Decreasing + parallel, half", "cyclical-single": "Cyclical + single"}
PRINTED = """
cyclical-parallel: 4.09 | 3.95 | 19.37 | 19.19
decreasing-parallel: 4.15 | 4.09 | 20.29 | 19.72
decreasing-half: 5.11 | 4.52 | 21.16 | 20.82
cyclical-single: 4.29 | 4.27 | 20.55 | 20.50
"""
"""Test error in per cent on CIFAR-10 and CIFAR-100, each under SGLD and SGHMC, without standard errors."""
BELOW = (
    ("cyclical-parallel", "decreasing-parallel", ", with as many epochs"),
    ("cyclical-single", "decreasing-half", ", with no more epochs"),
    ("cyclical-parallel", "cyclical-single", ""),
)
"""Pairs of arms of which §5.2 and the caption claim that the first one's error is lower, and at which cost."""


def preset(dataset: str, scale: str) -> rp.Preset:
    """Return four arms under two samplers; the single cyclical one is the first chain of the parallel cyclical one."""
    about, n = "four chains against one, with decreasing and cyclical steps", cifar.SIZES[scale].chains
    variants = []
    for sampler in SAMPLERS:
        variants += [
            cifar.variant(f"cyclical-parallel-{sampler}", f"c{sampler}", scale, chains=n),
            cifar.variant(f"decreasing-parallel-{sampler}", sampler, scale, chains=n),
            cifar.variant(f"decreasing-half-{sampler}", sampler, scale, halve=True, chains=n),
            cifar.variant(f"cyclical-single-{sampler}", f"c{sampler}", scale),
        ]
    return cifar.preset("table2", about, dataset, scale, variants)


def cost(arm: str, scale: str) -> str:
    """Return epochs per chain / of all chains, as the paper writes it."""
    size = cifar.SIZES[scale]
    epochs = size.epochs // 2 if arm == "decreasing-half" else size.epochs
    return f"{epochs}/{epochs * (1 if arm == 'cyclical-single' else size.chains)}"


def tables(run: rp.CompletedRun) -> rp.Tables:
    return rp.joined(cifar.measured(run, {f"{arm}-{sampler}": arm for arm in ARMS}, sampler) for sampler in SAMPLERS)


def settings(scale: str) -> list[rp.Setting]:
    n = cifar.SIZES[scale].chains
    return [*cifar.settings(scale), rp.Setting("parallel chains", str(n), rp.PUBLISHED if n == 4 else rp.OURS)]


STUDY = rp.Study(
    name="table2",
    paper="csgmcmc",
    where="Table 2",
    title="test error of parallel and single chains on CIFAR",
    needs=("cifar10", "cifar100"),
    hours=(0.0096, 1.2, 18, 53),
    parts=cifar.parts(preset, cifar.OF_TABLES, tables),
    rows=lambda scale: {key: f"{label}, {cost(key, scale)}" for key, label in ARMS.items()},
    columns=[rp.Heading(key, f"Test error, {label}", "%") for key, label in SAMPLERS.items()],
    values=rp.printed(PRINTED, [(d, s) for d in cifar.LABELS for s in SAMPLERS], "Zhang et al. 2020, Table 2"),
    claims=rp.stated(
        f"{left}-below-{right}-{sampler}-{dataset} | {dataset} {sampler} | {left} < {right} | {label} on {where}: "
        f"{ARMS[left].lower()} has a lower test error than {ARMS[right].lower()}{at}."
        for dataset, where in cifar.LABELS.items()
        for sampler, label in SAMPLERS.items()
        for left, right, at in BELOW
    ),
    settings=settings,
    differences=cifar.REPEATED
    + """
cpu gpu paper: Chains of 100 epochs keep 10 samples, as 20 are kept of 200; the paper does not say how many they had,
    nor its standard errors.
""",
)
