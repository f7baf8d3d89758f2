"""One published table or figure as data: what is run at which scale, what the paper printed, what it claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from raychains.experiments.presets import Preset
from raychains.published.claims import Claim, Summary
from raychains.published.tables import Heading

if TYPE_CHECKING:
    import pandas as pd

    from raychains.published.found import Found
    from raychains.published.work import Work
    from raychains.report.style import Drawing

SCALES: Mapping[str, str] = {
    "smoke": "every code path in minutes, on small made-up data: says nothing about the papers",
    "cpu": "smaller networks or less data than the papers', which two CPU cores finish in hours",
    "gpu": "the papers' networks, shorter or fewer chains, one GPU",
    "paper": "the published settings",
}
"""By name, from small to large: what each is."""

PAPERS: Mapping[str, str] = {
    "csgmcmc": "Zhang, Li, Zhang, Chen, Wilson: Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning, ICLR 2020",
    "atmc": "Heek, Kalchbrenner: Bayesian Inference for Large Scale Image Classification, 2019",
    "emcmc": "Li, Zhang: Entropy-MCMC: Sampling from Flat Basins with Ease, ICLR 2024",
}

Origin = Literal["published", "authors' code", "ours"]
Standing = Literal["in the paper's text", "in the authors' repository", "from memory", "derived", "unknown"]
Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]
"""Rows by the name of their table. ``cells`` is always there: part, row, column, repeat, value, digests, samples."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of an experiment, and who chose it."""

    name: str
    value: str
    origin: Origin


def reduced(options: Mapping[str, Any]) -> list[Setting]:
    """What a scale's options on CIFAR take less of than the papers did: training images, precision."""
    made = []
    if "train_subset" in options:
        made.append(Setting(name="training images", value=f"{options['train_subset']:,} of 50,000", origin="ours"))
    if "precision" in options:
        made.append(Setting(name="precision", value=options["precision"], origin="ours"))
    return made


@dataclass(frozen=True, kw_only=True)
class Value:
    """One published number."""

    part: str
    row: str
    column: str
    text: str
    """As printed: ``4.27 ± 0.03``."""
    summary: Summary
    """The same in numbers, in the units of our cells: mean, standard error and number of runs (nan and 0: unpublished)."""
    source: str
    """Table and paper, or repository."""
    standing: Standing = "in the paper's text"


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One evaluation of a finished comparison, as `raychains evaluate`."""

    views: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One comparison that a part runs: an ordinary run in the store, whose chains others share."""

    preset: Preset
    evaluations: tuple[Evaluated, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Part:
    """What of an experiment needs the same data and is run or left out together: one half of a table."""

    name: str
    label: str
    data: Callable[[str], tuple[str, ...]] = field(default=lambda scale: ())
    """The data sets that it needs at a scale, by the names of `raychains.published.presence`."""
    sampled: Callable[[str], Sequence[Sampled]] = field(default=lambda scale: ())
    """Its comparisons at a scale."""
    computed: Callable[[Work], Tables] | None = None
    """What needs no chains of the store: its tables."""
    tables: Callable[[str, Sequence[Found]], Tables] | None = None
    """Its tables from its finished comparisons, given the scale."""
    stands_for: str = ""
    """The label of the part that it takes the place of where that one's data are missing; said in its heading."""
    scales: tuple[str, ...] = tuple(SCALES)
    """At which it exists."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure."""

    name: str
    """As people ask for it: ``table2``, ``emcmc-fig3``."""
    title: str
    """What it shows, in a few words."""
    paper: str
    """A key of `PAPERS`."""
    where: str
    """``Table 2``, ``Fig. 3c``, ``Theorem 1``."""
    order: float
    """Where it stands among all."""
    parts: tuple[Part, ...]
    rows: Callable[[str], Sequence[Heading]]
    """The table's rows at a scale: keys of cells, and what they are called."""
    columns: Callable[[str], Sequence[Heading]]
    """Its columns, the same of every part."""
    absent: str = "not measured"
    """Why a cell of a part that was run may have no value."""
    values: tuple[Value, ...] = ()
    claims: tuple[Claim, ...] = ()
    settings: Callable[[str], Sequence[Setting]]
    """What was chosen at a scale, and by whom."""
    differences: Callable[[str], Sequence[str]]
    """What differs from the paper at a scale, and why, in sentences."""
    hours: Mapping[str, float]
    """Hours by scale, fixed before anything is run: two cores for smoke and cpu, one GPU for gpu and paper."""
    figures: Callable[[str, Mapping[str, pd.DataFrame]], Sequence[Drawing]] = field(default=lambda scale, tables: ())
    """The figures in the paper's layout, from the tables alone."""
    revision: int = 1
    """Raised when what is computed or measured changes; chains carry revisions of their own."""

    def part(self, name: str) -> Part:
        """The part of that name."""
        return next(p for p in self.parts if p.name == name)
