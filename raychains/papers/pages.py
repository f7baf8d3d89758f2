"""An experiment's folder and its page, and the index over all: drawn from stored tables alone, so they can be drawn
anywhere."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from raychains.core.errors import UserError
from raychains.core.spec import check_format
from raychains.inference import results
from raychains.papers import published_table
from raychains.papers.claims import LEVEL, VERDICTS, Claim, Of, Verdict, holm, in_words, judge
from raychains.papers.scales import SCALES
from raychains.papers.study import Study, chosen
from raychains.report import run_page
from raychains.store import RunStore, Storage
from raychains.store.filesystem import json_bytes

log = logging.getLogger(__name__)

FORMAT = 1
ABOUT = "about.json"
FIGURES = "figures"
HOW_TO_READ = """
A claim is a statement of a paper, or of ours, that numbers can test, written down before the runs. Its line looks like
this, with made-up numbers:

> A has a lower error than B: −4.2 [−8.3, −0.1] (detectable 5.4): holds; the paper's own numbers: holds

- **−4.2** is the mean of A minus the mean of B over repeated runs, in the unit of the table's column. A constant may
  take the place of B. The wording tells which sign supports the claim: an error should be lower, an accuracy higher.
- **[−8.3, −0.1]** is the 95 % confidence interval of this difference (Student's t).
- **allowed ±0.5** appears where the claim is that both are equal: the whole interval must then lie within ±0.5.
- **detectable 5.4** is the smallest true difference that this number of repeats detects with a power of 80 %; a smaller
  one may be found by luck, as here. `unknown` if all repeats are equal, ∞ if there is no interval.
- **holds**: the interval lies entirely on the claim's side. **{not_held}**: entirely on the other side;
  with networks or data smaller than a paper's this does not refute it. **inconclusive**: neither; more repeats may
  decide.
- **Holm-adjusted p** appears on pages whose claims are corrected together for multiple testing. There the verdict
  depends on this p value, so a claim can be inconclusive although its interval excludes 0.
- **the paper's own numbers** is the verdict of the same rule on the published means and standard errors, if any;
  `contrary` if these lie entirely on the other side.
- **no spread between the repeats: another would differ with a probability of up to 63 %** appears if all
  repeats gave the same value: a 95 % upper bound of the probability that one more differs.
"""
"""The guide to `Verdict.line` on the index."""
WHAT_IS_LISTED = """
Each linked page has a table with the published values beside ours, and below it the claims. The last three columns
count these claims. `raychains reproduce NAME --scale {scale}` repeats the runs. If *run* says *partly* or *not run*,
the table's footnotes say why. The studies called *ours* are in no paper.
"""
EMPTY = pd.DataFrame(columns=["part", "row", "column", "repeat", "value", "digests", "samples"])
"""Cells of an experiment of which nothing was run."""


class Folder(RunStore):
    """``<prefix>/<experiment>/`` of a store: cells.parquet and other tables, table.md, table.tex, index.html,
    about.json.

    The prefix is ``reproduce/cpu``, or nothing in a folder that results are collected in.
    """

    kind = "experiment"

    def __init__(self, root: Storage, prefix: str, name: str) -> None:
        super().__init__(root, name)
        self.prefix = prefix

    def _name(self, name: str) -> str:
        return _path(self.prefix, self.name, name)

    def write_about(self, about: dict[str, Any]) -> None:
        """Publish about.json: what is known of the results."""
        self.root.publish(self._name(ABOUT), json_bytes({"format": FORMAT, **about}))

    def about(self) -> dict[str, Any] | None:
        """Return what `write_about` published; None before, and where the file is damaged: everything can be made
        again.

        Raises:
            UserError: a newer format.
        """
        if not self.root.exists(self._name(ABOUT)):
            return None
        data = self.root.read_object(self._name(ABOUT))
        if data is None:
            self._warn(ABOUT)
            return None
        return check_format(data, f"experiment {self.name}")

    def table(self, name: str) -> pa.Table | None:
        """Return the table of ``<name>.parquet``; None when it was never written, and where it is damaged."""
        try:
            return super().table(name)
        except UserError:
            self._warn(f"{name}.parquet")
            return None

    def stored(self) -> dict[str, pd.DataFrame]:
        """Return the tables that about.json names, by name.

        Raises:
            UserError: one is missing or damaged.
        """
        found = {}
        for name in (self.about() or {"tables": ()})["tables"]:
            table = self.table(name)
            if table is None:
                raise UserError(f"experiment {self.name}: {name}.parquet is missing; reproduce it again")
            found[name] = table.replace_schema_metadata(None).to_pandas()
        return found

    def keep_figures(self, names: Collection[str]) -> None:
        """Delete the figures that an earlier call drew and this one did not: no page shows them any more."""
        for file in self.root.names(self._name(FIGURES)):
            if file.rpartition(".")[0] not in names:
                self.root.delete(self._name(f"{FIGURES}/{file}"))

    def _warn(self, file: str) -> None:
        log.warning("experiment %s: %s is damaged and counts as missing: reproduce it again", self.name, file)


def _path(*names: str) -> str:
    return "/".join(name for name in names if name)


# One experiment


def table_of(experiment: Study, scale: str, cells: pd.DataFrame, about: Mapping[str, Any]) -> published_table.Table:
    """Return the experiment's table, published values beside ours; cells that are missing have a reason."""
    needless = _needless(experiment, cells)
    replaces = {
        p.name: f" (in place of {p.stands_for})" for p in experiment.parts if p.stands_for and p.name not in needless
    }
    parts = [
        published_table.Heading(p.name, p.label + replaces.get(p.name, ""))
        for p in experiment.parts
        if scale in p.scales
    ]
    rows, columns = experiment.row_headings(scale), experiment.column_headings(scale)
    keys = [{h.key for h in headings} for headings in (parts, rows, columns)]
    values = [v for v in experiment.values if all(k in s for k, s in zip((v.part, v.row, v.column), keys, strict=True))]
    reasons = {(n, "", ""): f"{p['status']}: {p['reason']}" for n, p in about["parts"].items() if p["reason"]}
    return published_table.build(
        cells,
        parts=parts,
        rows=rows,
        columns=columns,
        published={(v.part, v.row, v.column): (v.text, v.provenance) for v in values},
        missing={("", "", ""): experiment.absent} | reasons,
        title=experiment.heading + (" — SMOKE" if scale == "smoke" else ""),
    )


def _needless(experiment: Study, cells: pd.DataFrame) -> set[str]:
    """Return the parts that stand for another one which was run itself."""
    present = set(cells["part"])
    run = {p.label for p in experiment.parts if p.name in present}
    return {p.name for p in experiment.parts if p.stands_for and p.stands_for in run}


def verdicts(experiment: Study, scale: str, cells: pd.DataFrame) -> list[Verdict]:
    """Return the verdicts on the experiment's claims at a scale, of those whose parts were run for themselves."""
    present = set(cells["part"]) - _needless(experiment, cells)
    judged = [_judged(experiment, c, cells) for c in experiment.claims if scale in c.scales and c.part in present]
    return holm(judged) if experiment.family else judged


def correction(experiment: Study, count: int) -> str:
    """Return the sentence on how so many judged claims are corrected; empty where they are not."""
    if not (experiment.family and count):
        return ""
    return (
        f"The claims are one family of {count}, corrected by Holm's step-down method: the probability that at least "
        f"one claim without a true difference is decided is at most {100 * LEVEL:g} %; intervals, detectable "
        "differences and the verdicts on the paper's own numbers are not corrected."
    )


def _judged(experiment: Study, claim: Claim, cells: pd.DataFrame) -> Verdict:
    left = _values(claim, claim.left, cells)
    right = _values(claim, claim.right, cells) if isinstance(claim.right, Of) else {}
    if claim.rule == "paired":
        repeats = sorted({*left, *right})
        left, right = ({r: side.get(r, math.nan) for r in repeats} for side in (left, right))
    by = {(v.part, v.row, v.column): v.summary for v in experiment.values}
    published = [by.get(key) for key in claim.cells]
    return judge(claim, list(left.values()), list(right.values()), *published)


def _values(claim: Claim, of: Of, cells: pd.DataFrame) -> dict[int, float]:
    """Return a quantity's values by repeat, in order."""
    mine = cells[(cells["part"] == claim.part) & (cells["row"] == of.row) & (cells["column"] == of.column)]
    return {int(r): float(v) for r, v in sorted(zip(mine["repeat"], mine["value"], strict=True))}


def _stored_verdict(verdict: Verdict, scale: str) -> dict[str, Any]:
    """Return a verdict as a row of parquet: its claim by name, infinities as null."""
    fields = asdict(verdict) | {"claim": verdict.claim.name, "line": verdict.line(scale)}
    del fields["paper"]  # the line ends with it
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}


def write(experiment: Study, folder: Folder) -> list[Verdict]:
    """Draw an experiment's page again: table.md, table.tex, table.parquet, claims.parquet, figures/ and index.html.

    Raises:
        UserError: a table is missing or damaged.
    """
    about = folder.about()
    assert about is not None
    scale = about["scale"]
    stored = folder.stored()
    cells = stored.get("cells", EMPTY)
    table = table_of(experiment, scale, cells, about)
    judged = verdicts(experiment, scale, cells)
    claims = [verdict.line(scale) for verdict in judged]
    corrected = correction(experiment, len(judged))
    listed = _claims_markdown(claims, corrected)
    folder.write_file("table.md", (published_table.markdown(table) + listed).encode())
    folder.write_file("table.tex", published_table.latex(table).encode())
    folder.write_table("table", published_table.rows(table))
    folder.write_table("claims", [_stored_verdict(v, scale) for v in judged])
    figures, failed = run_page.drawn(folder, {d.name: (lambda d=d: d) for d in experiment.figures(scale, stored)})
    folder.keep_figures(figures)
    shown = {c.provenance for c in table.cells.values() if c.published}
    html = run_page.filled(
        "reproduced.html.j2",
        experiment=experiment,
        scale=scale,
        about_scale=SCALES[scale],
        about=about,
        table=table,
        sources={(v.part, v.row, v.column): v.source for v in experiment.values},
        marks=published_table.MARKS,
        explained=published_table.EXPLAINED,
        provenances=[p for p in published_table.MARKS if p in shown],
        notes=_numbered(table),
        claims=claims,
        correction=corrected,
        settings=experiment.settings(scale),
        differences=experiment.differences_at(scale),
        figures=list(figures.values()),
        failed=failed,
    )
    folder.write_file("index.html", html)
    return judged


def _claims_markdown(claims: Sequence[str], corrected: str) -> str:
    """Return the lines of judged claims for the end of table.md; empty where there are none."""
    lines = ["", "**Claims** ([how to read a line](../README.md#how-to-read-a-claim))", ""] if claims else []
    lines += [corrected, ""] if corrected else []
    lines += [f"- {claim}" for claim in claims]
    return "\n".join([*lines, ""]) if claims else ""


def _numbered(table: published_table.Table) -> dict[str, int]:
    """Return footnotes: the reasons of cells in their order, each once."""
    ordered = [table.cells[p.key, r.key, c.key] for r in table.rows for p in table.parts for c in table.columns]
    return {reason: n for n, reason in enumerate(dict.fromkeys(c.reason for c in ordered if c.reason), start=1)}


# All experiments of a scale


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """One experiment after it was run as far as it could be."""

    experiment: Study
    folder: Folder
    about: Mapping[str, Any]
    verdicts: Sequence[Verdict]
    failed: Sequence[str]
    """Parts that failed in this call; the folder may hold an earlier result of them."""
    kept: Mapping[str, str]
    """By name, the reason why a part whose earlier results were kept was not done this time."""

    def states(self) -> dict[str, str]:
        """Return its parts' states by name: done, not run, failed or unfinished."""
        return {name: part["status"] for name, part in self.about["parts"].items()}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One experiment's folder on the index."""

    experiment: Study
    about: Mapping[str, Any]
    claims: Sequence[tuple[str, str]]
    """(verdict, its line)"""
    figures: Sequence[str]
    """Paths below the index."""

    @property
    def state(self) -> str:
        """Its parts' state where it is the same of all; ``partly`` where some were done."""
        states = {part["status"] for part in self.about["parts"].values()}
        grave = [s for s in ("failed", "unfinished") if s in states]
        return grave[0] if grave else states.pop() if len(states) == 1 else "partly"

    @property
    def correction(self) -> str:
        """The sentence on how its claims are corrected; empty where they are not."""
        return correction(self.experiment, len(self.claims))

    def counts(self) -> list[int]:
        """Return the number of claims by `VERDICTS`."""
        return [sum(verdict == word for verdict, _ in self.claims) for word in VERDICTS]


def entries(root: Storage, prefix: str, scale: str, more: Sequence[Study] = ()) -> list[Entry]:
    """Return the experiments whose folders lie there: published ones in the list's order, then those of ``more``, a
    user's own."""
    found = []
    for experiment in {one.name: one for one in (*chosen(["all"]), *more)}.values():
        folder = Folder(root, prefix, experiment.name)
        about = folder.about()
        if about is None or about["scale"] != scale:
            continue
        claims = results.read_rows(folder, "claims", texts=("verdict", "line"))
        lines = [] if claims is None else list(zip(claims["verdict"], claims["line"], strict=True))
        drawn = sorted(n for n in root.names(_path(prefix, experiment.name, FIGURES)) if n.endswith(".svg"))
        figures = [f"{experiment.name}/{FIGURES}/{name}" for name in drawn]
        found.append(Entry(experiment=experiment, about=about, claims=lines, figures=figures))
    return found


def write_index(root: Storage, prefix: str, scale: str, more: Sequence[Study] = ()) -> str:
    """Draw index.html of a scale's experiments below the prefix, and the same as README.md; return where the page
    lies."""
    shown = entries(root, prefix, scale, more)
    words = [in_words(verdict, scale) for verdict in VERDICTS]
    html = run_page.filled(
        "reproductions.html.j2",
        scale=scale,
        about_scale=SCALES[scale],
        entries=shown,
        words=words,
        total=_counts(shown),
        by_paper=_by_paper(shown),
    )
    name = _path(prefix, "index.html")
    root.publish(name, html)
    root.publish(_path(prefix, "README.md"), _index_markdown(scale, words, shown).encode())
    return root.location(name)


def _index_markdown(scale: str, words: Sequence[str], shown: Sequence[Entry]) -> str:
    total = _counts(shown)
    numbers = ", ".join(f"{word}: {n}" for word, n in zip(words, total, strict=True))
    lines = [f"# Published tables and figures at scale {scale}", ""]
    lines += [f"This page compares published tables and figures with our own runs. Scale {scale} means"]
    lines += [f"{SCALES[scale]}.", "", f"**{sum(total)} claims. {numbers[0].upper()}{numbers[1:]}.** By paper:", ""]
    lines += [f"| paper | claims | {' | '.join(words)} |", f"|---|---:|{'---:|' * len(words)}"]
    lines += [f"| {cited} | {sum(of)} | {' | '.join(map(str, of))} |" for cited, of in _by_paper(shown).items()]
    lines += ["", "## How to read a claim", "", HOW_TO_READ.strip().format(not_held=words[1]), ""]
    lines += ["## Tables and figures", "", WHAT_IS_LISTED.strip().format(scale=scale), ""]
    lines += [f"| paper | what | name | run | {' | '.join(words)} |", f"|---|---|---|---|{'---:|' * len(words)}"]
    for one in shown:
        what = f"[{one.experiment.heading}]({one.experiment.name}/table.md)"
        counts = " | ".join(str(n or "") for n in one.counts())
        lines.append(f"| {one.experiment.method} | {what} | `{one.experiment.name}` | {one.state} | {counts} |")
    lines += ["", "## Figures"] * any(one.figures for one in shown)
    for one in shown:
        if one.figures:
            method, page = one.experiment.method, f"{one.experiment.name}/table.md"
            lines += ["", f"### {method}, [{one.experiment.heading}]({page})", ""]
            lines += [f"![{one.experiment.title}]({path})" for path in one.figures]
    return "\n".join([*lines, ""])


def _by_paper(shown: Sequence[Entry]) -> dict[str, list[int]]:
    """Return the numbers of claims of each paper by `VERDICTS`."""
    found = {}
    for paper, first in {one.experiment.paper: one.experiment for one in shown}.items():
        cited = ": ".join(dict.fromkeys(filter(None, (first.method, first.citation))))
        found[cited] = _counts([one for one in shown if one.experiment.paper == paper])
    return found


def _counts(shown: Sequence[Entry]) -> list[int]:
    """Return the numbers of claims of several experiments by `VERDICTS`."""
    return [sum(numbers) for numbers in zip(*(one.counts() for one in shown), strict=True)] or [0] * len(VERDICTS)
