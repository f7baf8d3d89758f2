"""Table 1: test accuracy and NLL of seven methods on CIFAR."""

from __future__ import annotations

from raychains import papers as rp
from raychains.papers.csgmcmc import cifar
from raychains.papers.emcmc.emcmc_chains import DIFFERENCES, LABELS, NAMES, below, preset, settings

ACCURACY, NLL = "accuracy", "nll"
QUOTED = "Li & Zhang 2024, Table 1, quoted by wizwand.com/paper/68fa72b11e209131cea57f02"
"""Of Entropy-MCMC alone: the other rows' numbers are unreadable in the paper's text that we have."""
CLAIMED = {ACCURACY: "is more accurate", NLL: "has a lower test NLL"}


STUDY = rp.Study(
    name="emcmc-table1",
    paper="emcmc",
    where="Table 1",
    title="test accuracy on CIFAR",
    needs=("cifar10", "cifar100"),
    hours=(0.01, 0.55, 8, 28),
    parts=cifar.parts(preset, cifar.OF_TABLES),
    rows=NAMES,
    columns=(rp.Heading(ACCURACY, "Accuracy", "%", 2), rp.Heading(NLL, "NLL", "nats", 4)),
    values=rp.printed(
        "emcmc: 95.69 | 79.16", [(d, ACCURACY) for d in cifar.OF_TABLES], QUOTED, provenance="quoted elsewhere"
    ),
    claims=tuple(
        c for d in cifar.OF_TABLES for c in below(d, CLAIMED, f"Entropy-MCMC {{what}} than {{other}} on {LABELS[d]}.")
    ),
    settings=settings,
    differences=DIFFERENCES
    + """
cpu gpu paper: Of the paper's numbers only Entropy-MCMC's accuracy is public in a text that we can read.
""",
)
