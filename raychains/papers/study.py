"""One table or figure as data, which a file declares: of a paper's folder, or a user's own, which the command is
given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from raychains import samplers
from raychains.core.errors import require
from raychains.papers.claims import Claim, Summary
from raychains.papers.contents import Listing, load, select
from raychains.papers.published_table import Heading
from raychains.papers.scales import ALL, SCALES
from raychains.planning.presets.named import Preset, Variant
from raychains.plotting.arm_styles import ArmStyle
from raychains.plotting.charts import Chart, Line, Panel
from raychains.plotting.style import Drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from raychains.papers.completed_run import CompletedRun, Computation

Origin = Literal["published", "authors' code", "ours"]
PUBLISHED: Origin = "published"
CODE: Origin = "authors' code"
OURS: Origin = "ours"
Provenance = Literal["in the paper's text", "in the authors' repository", "quoted elsewhere", "derived"]
NAME = r"[a-z0-9]+(-[a-z0-9]+)*"
Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]
"""Rows by the name of their table. ``cells`` is always there: part, row, column, repeat, value, digests, samples."""
Headings = Mapping[str, str] | Sequence[Heading] | Callable[[str], Mapping[str, str] | Sequence[Heading]]
"""Labels by key, or headings with units and decimals; a function of the scale where they differ by it."""
Figures = Callable[[str, Mapping[str, "pd.DataFrame"]], Sequence[Drawing]]
"""(scale, stored tables) -> drawings."""


@dataclass(frozen=True)
class Setting:
    """One setting of an experiment, and who chose it."""

    name: str
    value: str
    origin: Origin


def reduced(options: Mapping[str, Any]) -> list[Setting]:
    """Return what a scale's options take less of than the papers did: training images, precision."""
    made = []
    if "train_subset" in options:
        made.append(Setting("training images", f"{options['train_subset']:,} of 50,000", OURS))
    if "precision" in options:
        made.append(Setting("precision", options["precision"], OURS))
    return made


@dataclass(frozen=True)
class Value:
    """One published number."""

    part: str
    row: str
    column: str
    text: str
    """As printed: ``4.27 ± 0.03``."""
    summary: Summary
    """The same in numbers, in the units of our cells: mean, standard error and number of runs (nan and 0:
    unpublished)."""
    source: str
    """Table and paper, or repository."""
    provenance: Provenance = "in the paper's text"


def printed(
    table: str,
    columns: Sequence[tuple[str, str]],
    source: str,
    *,
    runs: int = 0,
    provenance: Provenance = "in the paper's text",
) -> tuple[Value, ...]:
    """Return the values of a printed table.

    Args:
        table: a line per row: its key, a colon, and the cells as printed (``4.27 ± 0.03``), separated by ``|``; an
            empty cell has no value.
        columns: (part, column) of each cell of a line.
        source: table and paper.
        runs: that each mean is of; 0 where it is unpublished.
        provenance: where the numbers were found.
    """
    made = []
    for line in table.strip().splitlines():
        row, _, cells = line.partition(":")
        for (part, column), text in zip(columns, map(str.strip, cells.split("|")), strict=True):
            if text:
                mean, _, se = text.replace(",", "").replace("−", "-").partition(" ± ")
                summary = Summary(mean=float(mean), se=float(se or "nan"), n=runs)
                made.append(Value(part, row.strip(), column, text, summary, source, provenance))
    return tuple(made)


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a study's chains at one scale; a study states what it has use for."""

    epochs: int = 0
    """Gradient evaluations per training example of a chain; 0 where ``options`` state steps or methods have their
    own."""
    repeats: int
    chains: int = 1
    cycles: int = 4
    draws: int = 0
    """Kept of a chain."""
    batch_size: int | None = None
    start: int = 0
    """The most epochs of the networks at which chains start."""
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further options of single methods, by name."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of all chains, by their names in `raychains.Compare`."""

    def preset(
        self, name: str, about: str, task: str, methods: Sequence[Variant], *, schedule: str = "cyclical", **more: Any
    ) -> Preset:
        """Return the comparison of methods whose chains have this size; ``more`` options win over its own."""
        common: dict[str, Any] = {"repeats": self.repeats, "chains": self.chains}
        common |= {"epochs": self.epochs} if self.epochs else {}
        common |= {"batch_size": self.batch_size} if self.batch_size else {}
        options = common | dict(self.options) | more
        return Preset(name=name, about=about, task=task, schedule=schedule, options=options, variants=methods)


@dataclass(frozen=True)
class Sampled:
    """One comparison that a part runs and evaluates: an ordinary run in the store, whose chains others share."""

    preset: Preset
    views: tuple[str, ...] = ()
    """As of `raychains evaluate --views`."""
    measures: tuple[str, ...] = ()
    """As of `raychains evaluate --measures`."""
    reference: str | None = None
    """As of `raychains evaluate --reference`."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The cells of an experiment that need the same data and are run or left out together: one half of a table."""

    name: str
    label: str = ""
    data: tuple[str, ...] = ()
    """The data sets that it needs, by the names of `raychains.papers.contents.DATA`; of a study's only part its
    ``needs``."""
    sampled: Callable[[str], Sequence[Sampled]] = lambda scale: ()
    """Its comparisons at a scale."""
    tables: Callable[..., Tables] | None = None
    """Its tables from its finished comparisons, each a `raychains.papers.completed_run.CompletedRun`; by default cells
    of every arm, whose columns are metrics as `CompletedRun.cells` takes them."""
    computed: Callable[[Computation], Tables] | None = None
    """Its tables where it needs no chains of the store."""
    stands_for: str = ""
    """The label of the part that it replaces where that one's data are missing; shown in its heading."""
    scales: tuple[str, ...] = ALL
    """At which it exists."""


@dataclass(frozen=True, kw_only=True)
class Study(Listing):
    """One table or figure: its place in the list, and what runs, what was published and how it is drawn.

    A table of methods on one task states ``task``, ``methods`` and ``sizes``, from which its part, rows and cells
    follow. Any other states ``parts``, ``rows`` and ``settings``.
    """

    task: str = ""
    """As of `raychains compare --task`."""
    methods: Sequence[Variant] = ()
    """Its arms; names are keys of rows."""
    sizes: Mapping[str, Size] = field(default_factory=dict)
    """The size of its chains, by the names of `SCALES`; at other scales it does not exist."""
    parts: tuple[Part, ...] = ()
    rows: Headings = field(default_factory=dict)
    """The table's rows: keys of cells, and their labels."""
    columns: Headings
    """Its columns, the same of every part."""
    absent: str = "not measured"
    """The reason for a cell without a value in a part that was run."""
    values: tuple[Value, ...] = ()
    claims: tuple[Claim, ...] = ()
    family: bool = False
    """True where all claims that are judged at a scale are one family, corrected by `raychains.papers.claims.holm`."""
    settings: Callable[[str], Sequence[Setting]] = lambda scale: ()
    """The settings at a scale, and who chose them."""
    differences: str = ""
    """The differences from the paper, with reasons: each begins a line with the scales that it is true of and a
    colon."""
    figures: Figures = lambda scale, tables: ()
    """The figures in the paper's layout, from the tables alone."""
    revision: int = 1
    """Raised when what is computed or measured changes; chains carry revisions of their own."""

    def __post_init__(self) -> None:
        equal = [claim.name for claim in self.claims if self.family and claim.direction == "equal"]
        require(
            re.fullmatch(NAME, self.name) is not None,
            "name",
            self.name,
            "be lower-case words joined by hyphens, as table-1",
        )
        known = f"be of {', '.join(SCALES)}"
        require(set(self.sizes) <= set(SCALES), f"{self.name}: sizes", list(self.sizes), known)
        allowed = "be less or greater: Holm's method takes p values of no difference"
        require(not equal, f"{self.name}: claims of a family", equal, allowed)
        if self.task:
            part = Part(name=self.name, sampled=self._sampled, scales=tuple(self.sizes))
            rows = {method.name: method.label or method.name for method in self.methods}
            vars(self).update(parts=(part,), rows=self.rows or rows, settings=self._settings)
        if len(self.parts) == 1:
            vars(self).update(parts=(replace(self.parts[0], data=self.needs),))

    def _sampled(self, scale: str) -> Sequence[Sampled]:
        """Return the comparison of a table of methods."""
        size = self.sizes[scale]
        methods = [replace(one, options={**one.options, **size.own.get(one.name, {})}) for one in self.methods]
        return [Sampled(size.preset(self.name, self.title, self.task, methods))]

    def tables_of(self, part: Part, runs: Sequence[CompletedRun]) -> Tables:
        """Return a part's tables from its finished comparisons."""
        if part.tables is not None:
            return part.tables(*runs)
        columns = [heading.key for heading in self.column_headings(runs[0].scale)]
        return {"cells": [c for run in runs for c in run.cells([v.name for v in run.preset.variants], columns)]}

    def _settings(self, scale: str) -> list[Setting]:
        """Return the size of a table of methods, in words."""
        size = self.sizes[scale]
        shown = {"task": self.task, "epochs": size.epochs, "chains": size.chains, "repeats": size.repeats}
        return [Setting(name, f"{value}", OURS) for name, value in (shown | dict(size.options)).items() if value]

    @property
    def scales(self) -> list[str]:
        """The scales at which it has parts."""
        return [scale for scale in SCALES if any(scale in part.scales for part in self.parts)]

    def row_headings(self, scale: str) -> list[Heading]:
        """Return the table's rows at a scale."""
        return _headings(self.rows, scale)

    def column_headings(self, scale: str) -> list[Heading]:
        """Return the table's columns at a scale."""
        return _headings(self.columns, scale)

    def differences_at(self, scale: str) -> list[str]:
        """Return what differs from the paper at a scale, in sentences."""
        each = re.split(r"\n(?=(?:smoke|cpu|gpu|paper)[^:\n]*: )", self.differences.strip())
        known = [one.partition(":") for one in each]
        return [" ".join(text.split()) for scales, _, text in known if scale in scales.split()]


def comparison(preset: Callable[..., Preset], **asked: Any) -> Callable[..., Sequence[Sampled]]:
    """Return `Part.sampled` of one comparison, or `parts`' ``sampled``, from its preset at a scale (of a part and a
    scale) and the views and measures of `Sampled`."""
    return lambda *where: [Sampled(preset(*where), **asked)]


def parts(
    labels: Mapping[str, str],
    sampled: Callable[[str, str], Sequence[Sampled]],
    tables: Callable[..., Tables] | None = None,
    *,
    data: Callable[[str], str] = str,
    scales: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Part, ...]:
    """Return a part for each label, from its comparisons by part and scale.

    Args:
        labels: by part.
        sampled: as of `Part`, of a part and a scale.
        tables: as of `Part`.
        data: the data sets that a part needs, separated by spaces; by default its name.
        scales: by part, where it does not exist at all of them.
    """
    return tuple(
        Part(
            name=name,
            label=label,
            data=tuple(data(name).split()),
            sampled=partial(sampled, name),
            tables=tables,
            scales=(scales or {}).get(name, ALL),
        )
        for name, label in labels.items()
    )


def _headings(known: Headings, scale: str) -> list[Heading]:
    found = known(scale) if callable(known) else known
    return [Heading(*item) for item in found.items()] if isinstance(found, Mapping) else list(found)


def figure(
    tables: str,
    draw: Callable[..., Figure],
    *,
    name: str,
    title: str,
    caption: str | Callable[..., str],
    alt: str,
    parts: Mapping[str, str] | None = None,
) -> Figures:
    """Return `Study.figures` of one drawing, or one per part, which is drawn where all of its tables have rows.

    Args:
        tables: their names, separated by spaces.
        draw: (rows of each table, …) -> figure.
        name: of the `Drawing`; ``title`` and ``alt`` likewise.
        title: a line.
        alt: what the picture shows, for those who do not see it.
        caption: a text, or a function of the scale and of the rows where it differs by them.
        parts: labels of the parts that have a drawing each, which stand for {part} in its title and alt.
    """

    def figures(scale: str, stored: Mapping[str, pd.DataFrame]) -> list[Drawing]:
        rows = [stored[table] for table in tables.split() if table in stored and len(stored[table])]
        if len(rows) < len(tables.split()):
            return []
        text = caption if isinstance(caption, str) else caption(scale, *rows)
        shown = {name: ("", rows)}
        if parts is not None:
            own = {part: [table[table["part"] == part] for table in rows] for part in set(rows[0]["part"])}
            shown = {f"{name}-{part}": (label, own[part]) for part, label in parts.items() if part in own}
        return [
            Drawing(
                name=file,
                title=title.format(part=label),
                caption=text,
                alt=alt.format(part=label),
                draw=partial(draw, *mine),
            )
            for file, (label, mine) in shown.items()
        ]

    return figures


def by_part(
    labels: Mapping[str, str],
    panel: Callable[[pd.DataFrame], Panel],
    *,
    of: str = "part",
    columns: int = 4,
    **chart: Any,
) -> Callable[[pd.DataFrame], Figure]:
    """Return `figure`'s ``draw`` of a titled panel for each part of a table, from its rows.

    Args:
        labels: titles.
        of: the column that names the part.
        columns: panels in a row at most.
        chart: further fields of `Chart`.
    """

    def draw(table: pd.DataFrame) -> Figure:
        parts = table.groupby(of, sort=False)
        made = [replace(panel(rows), title=labels[str(name)]) for name, rows in parts]
        return Chart(panels=made, columns=columns, **chart)()

    return draw


def styled(
    table: pd.DataFrame, styles: Mapping[str, ArmStyle], column: str = "row"
) -> Iterator[tuple[ArmStyle, pd.DataFrame]]:
    """Yield the style of each row of a study, and its rows of the table, where it has any."""
    for name, style in styles.items():
        if len(mine := table[table[column] == name]):
            yield style, mine


def each_and_mean(
    style: ArmStyle, table: pd.DataFrame, by: list[str], x: str, y: str, mean: Any = "mean"
) -> Iterator[Line]:
    """Yield a thin line for each group of a table's rows, and a thick one of their mean at the x that all of them
    have."""
    for _, one in table.groupby(by):
        yield style.line(one[x], one[y], linestyle="-", linewidth=0.7, alpha=0.45)
    at = table.groupby(x)[y]
    middle = at.agg(mean)[at.size() == at.size().max()]
    yield style.line(middle.index, middle, linewidth=1.8)


def styles(labels: Mapping[str, str], places: str) -> dict[str, ArmStyle]:
    """Return a style for each of some rows from ``"ROW FAMILY RANK, …"`` with their labels."""
    made = {}
    for row, family, rank in (place.split() for place in places.split(",")):
        made[row] = ArmStyle.placed(labels[row], family, int(rank))
    return made


def labels(methods: str) -> dict[str, str]:
    """Return the labels that reports show of methods, by name; names are separated by spaces."""
    return {name: samplers.method(name).label for name in methods.split()}


def chosen(names: Sequence[str]) -> list[Study]:
    """Return the studies of these names, as `raychains.papers.contents.select`; only their modules are imported.

    Raises:
        UserError: no name, or an unknown one.
    """
    return [load(listing) for listing in select(names)]
