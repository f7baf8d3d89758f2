"""A paper's claims, written down before the run, and the rule that decides each of them from repeats.

A claim compares two quantities of a table, or one with a constant. It is decided by a 95 % interval of their difference
and by nothing else: where the interval leaves both answers open, the verdict is "inconclusive", with the smallest
difference that as many repeats would have found. Claims that are one family are corrected together by `holm`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from raychains.evaluation.evaluation import Array
from raychains.papers import published_table
from raychains.papers.scales import ALL

Direction = Literal["less", "greater", "equal"]
Rule = Literal["welch", "paired", "one-sample"]
Word = Literal["holds", "does not hold", "inconclusive"]
VERDICTS: tuple[Word, ...] = get_args(Word)
REDUCED = ("smoke", "cpu")
"""Scales whose networks or data are smaller than the papers': they refute no paper."""
LEVEL = 0.05
"""The two-sided test's level; the intervals cover with 1 − LEVEL."""
POWER = 0.8
"""With which the smallest detectable difference is found."""
FAR = 7.0
"""Noncentrality from which a t value of the other sign has a probability below 2e-12."""
ROUNDING = 1e-12
"""A half-width below this share of the values is rounding, and the values are shown with four digits."""


@dataclass(frozen=True)
class Of:
    """One quantity: the cell of a part's table, one value per repeat."""

    row: str
    column: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper that can turn out true or false."""

    name: str
    """Unique inside the experiment, kebab-case."""
    text: str
    """The claim as a plain sentence."""
    part: str
    left: Of
    right: Of | float
    """Another cell, or a constant."""
    direction: Direction
    """``left`` against ``right``."""
    tolerance: float = 0.0
    """For ``equal``: a difference of at most this much counts as equal. In the column's unit."""
    rule: Rule
    """``paired`` goes by repeat (the same seeds on both sides); ``one-sample`` is for a constant, and only for that."""
    scales: tuple[str, ...] = ALL
    """At which of its part's scales the claim is judged."""
    must_decide: bool = False
    """True where "inconclusive" means that there were too few repeats."""

    @property
    def cells(self) -> tuple[tuple[str, str, str], ...]:
        """The left cell's (part, row, column), and the right one's where it is a cell."""
        sides = [self.left] + ([self.right] if isinstance(self.right, Of) else [])
        return tuple((self.part, of.row, of.column) for of in sides)


DIRECTIONS: Mapping[str, Direction] = {"<": "less", ">": "greater", "=": "equal"}


def stated(table: str | Iterable[str], *, tolerance: float = 0.0, **more: Any) -> tuple[Claim, ...]:
    """Return the claims of a table, ``name | part column | left < right | sentence`` each; see `Claim`.

    ``left`` is a row and ``right`` another one, a number, or ``row:column`` where the columns differ; the sign is <, >
    or =, which ``tolerance`` is for, and ``left < right paired`` names the rule. Of a text each line is a claim, and
    indented lines go on with the sentence.
    """
    made = []
    for line in re.sub(r"\n\s+", " ", table.strip()).splitlines() if isinstance(table, str) else table:
        name, where, sides, text = line.split(" | ")
        part, column = where.split()
        left, sign, right, *rule = sides.split()
        row, _, other = right.partition(":")
        constant = re.fullmatch(r"-?[\d.]+", right) is not None
        more |= {"left": Of(left, column), "right": float(right) if constant else Of(row, other or column)}
        more |= {"tolerance": tolerance if sign == "=" else 0.0, "direction": DIRECTIONS[sign]}
        more |= {"rule": "one-sample" if constant else rule[0] if rule else "welch"}
        made.append(Claim(name=name, text=text, part=part, **more))
    return tuple(made)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A published value: mean ± standard error of the mean over n runs."""

    mean: float
    se: float
    """nan if unpublished."""
    n: int
    """0 if unpublished."""


@dataclass(frozen=True)
class Verdict:
    """The answer of the repeats to a claim."""

    claim: Claim
    left_mean: float
    right_mean: float
    """The constant where there is one."""
    n_left: int
    """Repeats with a value."""
    n_right: int
    """0 for a constant."""
    difference: float
    """Left − right."""
    low: float
    """Lower end of the 95 % interval of left − right; nan where there is no interval."""
    high: float
    detectable: float
    """The smallest true difference that these repeats find with power 80 %; infinite where there is no interval, nan
    where the repeats have no spread."""
    p: float
    """Two-sided p value of no difference, of the interval's t statistic; see `p_value`."""
    verdict: Word
    published: Word | Literal["not published"]
    """The interval's rule on the paper's own numbers."""
    reason: str
    """The reason for a missing interval or one without width, and the values left out; empty if neither."""
    paper: str
    """The sentence on the paper's own numbers."""
    adjusted_p: float = math.nan
    """``p`` adjusted by `holm`, which the verdict then goes by; nan where the claim is of no family."""

    def line(self, scale: str) -> str:
        """Return all of it in one line for people, for repeats at a scale."""
        difference = _interval_text(self.claim, self.difference, self.low, self.high, self.detectable)
        adjusted = "" if math.isnan(self.adjusted_p) else f", Holm-adjusted p {_probability(self.adjusted_p)}"
        return (
            f"{' '.join(self.claim.text.split()).rstrip('.')}: {difference}: {in_words(self.verdict, scale)}{adjusted}"
            f"{f' ({self.reason})' if self.reason else ''}; {self.paper}"
        )

    @property
    def owed(self) -> bool:
        """True where the claim had to be decided and is not."""
        return self.claim.must_decide and self.verdict == "inconclusive"


def in_words(verdict: Word, scale: str) -> str:
    """Return a verdict in the words for people."""
    return "contrary at this scale" if verdict == "does not hold" and scale in REDUCED else verdict


def judge(
    claim: Claim,
    left: Sequence[float],
    right: Sequence[float] = (),
    published_left: Summary | None = None,
    published_right: Summary | None = None,
) -> Verdict:
    """Return the verdict on a claim.

    The interval of left − right is Student's: Welch's with the degrees of freedom of Welch and Satterthwaite, that of
    the differences repeat by repeat, or that of one mean. ``less`` holds if it lies below 0 and does not if it lies
    above; ``greater`` is the mirror image. ``equal`` holds if the interval lies inside ± the tolerance and does not if
    it lies outside entirely. Without a tolerance no number of repeats can show equality: the claim then fails or is
    inconclusive, so a claim of agreement with a theory gives a tolerance.

    The published verdict is Welch's for ``paired`` too: papers do not print their pairs, and the interval is the wider
    one where the pairs go together.

    Args:
        left, right: one value per repeat; nan for a repeat that failed, which is left out (with its pair) and counted.
            Paired sides are of the same repeats. Of a constant ``right`` is empty.
        published_left, published_right: the paper's numbers; the right ones are ignored for a constant.
    """
    sides = [np.asarray(left, dtype=float), np.asarray(right, dtype=float)]
    names = ["/".join(filter(None, cell)) for cell in claim.cells]
    if claim.rule == "paired":
        ours, notes, (difference, se, df) = _of_pairs(*sides)
    else:
        ours = [_summary(side[~np.isnan(side)]) for side in sides]
        notes = []
        for side, one, name in zip(sides, ours, names, strict=False):
            notes += _left_out(len(side) - one.n, len(side), f"repeats of {name}")
        difference, se, df = _contrast(ours[0], ours[1] if isinstance(claim.right, Of) else claim.right)
    low, high = interval(difference, se, df)
    if math.isnan(low):
        why = (_why(one, name) for one, name in zip(ours, names, strict=False))
        notes.insert(0, f"no interval: {'; '.join(filter(None, why))}")
    elif se == 0:
        # Of n equal values another one differs with at most this probability, to 95 %.
        few = min(one.n for one in ours if one.n)  # a constant has none
        notes.insert(
            0,
            f"no spread between the {'pairs' if claim.rule == 'paired' else 'repeats'}: another would differ with a "
            f"probability of up to {100 * (1 - LEVEL ** (1 / few)):.2g} %",
        )
    right_mean = ours[1].mean if isinstance(claim.right, Of) else float(claim.right)
    smallest = detectable(se, df) if se else math.nan
    p, word, reason = p_value(difference, se, df), _word(claim, low, high), "; ".join(notes)
    published, paper = _paper(claim, published_left, published_right)
    counts = (ours[0].n, ours[1].n if isinstance(claim.right, Of) else 0)
    means = (ours[0].mean, right_mean)
    return Verdict(claim, *means, *counts, difference, low, high, smallest, p, word, published, reason, paper)


def _of_pairs(left: Array, right: Array) -> tuple[list[Summary], list[str], tuple[float, float, float]]:
    """Return the summaries of both sides, a note on pairs that are left out, and the `_contrast` of the differences."""
    keep = ~np.isnan(left) & ~np.isnan(right)
    sides = [left[keep], right[keep]]
    ours = [_summary(side) for side in sides]
    with np.errstate(invalid="ignore"):  # infinite on both sides
        largest = float(np.abs(sides).max(initial=0.0))
        difference, se, df = _contrast(_summary(sides[0] - sides[1], ROUNDING * largest), 0.0)
    if se == 0:
        difference = _less(ours[0].mean, ours[1].mean)
    return ours, _left_out(int((~keep).sum()), len(keep), "pairs"), (difference, se, df)


def holm(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts on one family of claims, corrected by Holm's step-down method (1979), in their order.

    A claim whose adjusted p value is below 5 % keeps its verdict, all others are inconclusive. Where p values are right
    under each claim's null, the probability that at least one true null is rejected is at most 5 %, however the claims
    depend on each other. Intervals and detectable differences stay those of each claim alone.
    """
    p = np.array([verdict.p for verdict in verdicts])
    order, count = np.argsort(p, kind="stable"), len(p)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(count, 0, -1)))
    return [
        replace(verdict, verdict=verdict.verdict if value < LEVEL else "inconclusive", adjusted_p=float(value))
        for verdict, value in zip(verdicts, adjusted, strict=True)
    ]


def interval(difference: float, se: float, df: float) -> tuple[float, float]:
    """Return the 95 % interval of a difference with standard error ``se`` on ``df`` degrees of freedom; nan if
    unknown."""
    from scipy import stats

    if se == 0:
        return difference, difference
    low, high = stats.t.interval(1 - LEVEL, df, loc=difference, scale=se)
    return float(low), float(high)


def p_value(difference: float, se: float, df: float) -> float:
    """Return the two-sided p value of the t statistic difference / se: 1 where there is no interval.

    Without spread it is 0 for a difference and 1 for none, which is no probability: such a claim keeps its verdict.
    """
    from scipy import stats

    if se == 0:
        return float(difference == 0)
    p = float(2 * stats.t.sf(abs(difference) / se, df))
    return 1.0 if math.isnan(p) else p


def detectable(se: float, df: float) -> float:
    """Return the smallest true difference that a two-sided t test at 5 % finds with power 80 %; infinite if se is
    unknown.

    With noncentrality δ = difference / se the power is P(|t'_df(δ)| > t_crit); solved for δ with the exact noncentral
    t. It takes ``se`` and ``df`` as the true ones. Welch's estimates both: with equal spreads it then finds such a
    difference 70 times in 100 with three runs a side and 80 with ten (simulated).
    """
    from scipy import optimize, stats

    if not math.isfinite(se):
        return math.inf
    if se == 0:
        return 0.0
    critical = float(stats.t.ppf(1 - LEVEL / 2, df))

    def missing(delta: float) -> float:
        # The other tail is below Φ(−δ); scipy gives nan for it where that is below a rounding error.
        other = stats.nct.cdf(-critical, df, delta) if delta < FAR else 0.0
        return float(stats.nct.sf(critical, df, delta) + other) - POWER

    # The power is .05 at 0; at twice the critical value plus 2 it is beyond .8 for every df from 1 on.
    return se * float(optimize.brentq(missing, 0.0, 2 * critical + 2, xtol=1e-10))


def _summary(values: Any, rounding: float = 0.0) -> Summary:
    """Return mean and standard error of values; those that ``rounding`` at most tells apart are equal."""
    n = len(values)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        mean = float(values.mean()) if n else math.nan
    if n < 2 or not math.isfinite(mean):
        return Summary(mean=mean, se=math.nan, n=n)
    # Equal values: their mean may be off by a rounding error, and the deviation with it.
    same = bool(np.ptp(values) <= rounding)
    return Summary(mean=mean, se=0.0 if same else float(values.std(ddof=1)) / math.sqrt(n), n=n)


def _contrast(left: Summary, right: Summary | float) -> tuple[float, float, float]:
    """Return left − right with its standard error (nan where unknown) and degrees of freedom (of no use without it)."""
    if not isinstance(right, Summary):
        return _less(left.mean, right), left.se if left.n > 1 else math.nan, left.n - 1
    difference, se = _less(left.mean, right.mean), math.hypot(left.se, right.se)
    if math.isnan(se) or min(left.n, right.n) < 2:
        return difference, math.nan, math.nan
    if se == 0:
        return difference, 0.0, math.nan
    a, b = (left.se / se) ** 2, (right.se / se) ** 2
    return difference, se, 1 / (a**2 / (left.n - 1) + b**2 / (right.n - 1))


def _less(left: float, right: float) -> float:
    """Return left − right, 0 where that is a rounding error."""
    return 0.0 if math.isclose(left, right, rel_tol=ROUNDING) else left - right


def _word(claim: Claim, low: float, high: float) -> Word:
    """Return the verdict of an interval; nothing is decided by nan."""
    delta = claim.tolerance
    if claim.direction == "equal":
        yes, no = delta > 0 and -delta <= low and high <= delta, low > delta or high < -delta
    else:
        yes, no = (high < 0, low > 0) if claim.direction == "less" else (low > 0, high < 0)
    return "holds" if yes else "does not hold" if no else "inconclusive"


def _paper(claim: Claim, left: Summary | None, right: Summary | None) -> tuple[Word | Literal["not published"], str]:
    """Return the verdict on the paper's own numbers, and a sentence of it: with the means where standard errors
    lack."""
    constant = not isinstance(claim.right, Of)
    if constant and left is not None and left.mean == claim.right:
        return "not published", "the constant is the paper's own number"
    found: Word | Literal["not published"] = "not published"
    means, against = "", right if isinstance(claim.right, Of) else claim.right
    if left is not None and against is not None:
        low, high = interval(*_contrast(left, against))
        if not math.isnan(low):
            found = _word(claim, low, high)
        elif right is not None and not constant:
            shown = [_number(mean, max(0, published_table.decimals(mean, 4))) for mean in (left.mean, right.mean)]
            means = f" with standard errors ({shown[0]} against {shown[1]})"
    words = "contrary" if found == "does not hold" else found
    return found, f"the paper's own numbers: {words}{means}"


def _left_out(count: int, of: int, what: str) -> list[str]:
    return [f"{count} of {of} {what} left out, without a value"] if count else []


def _why(one: Summary, name: str) -> str:
    """Return why a side gives no interval; empty if it does."""
    if one.n and not math.isfinite(one.mean):
        return f"an infinite value of {name}"
    return f"{('no value', 'one repeat')[one.n]} of {name}" if one.n < 2 else ""


def _interval_text(claim: Claim, difference: float, low: float, high: float, detected: float) -> str:
    """Return ``−0.31 [−0.52, −0.10] (detectable 0.24)``: two significant digits of the half-width."""
    if math.isnan(low):
        return f"{_number(difference, published_table.decimals(difference, 4))} (detectable ∞)"
    half, largest = (high - low) / 2, max(abs(low), abs(high))
    decimals = published_table.decimals(half, 2) if half > ROUNDING * largest else published_table.decimals(largest, 4)
    decimals = _telling((low, high), (-claim.tolerance, claim.tolerance), decimals)
    shown = [_number(value, decimals) for value in (difference, low, high)]
    allowed = f", allowed ±{claim.tolerance:g}" if claim.direction == "equal" else ""
    smallest = "unknown" if math.isnan(detected) else _number(detected, published_table.decimals(detected, 2))
    return f"{shown[0]} [{shown[1]}, {shown[2]}]{allowed} (detectable {smallest})"


def _probability(p: float) -> str:
    """Return a p value with two significant digits, or with those that show on which side of the level it lies."""
    return _number(p, _telling((p,), (LEVEL,), published_table.decimals(p, 2) if p else 0))


def _telling(values: Sequence[float], limits: Sequence[float], decimals: int) -> int:
    """Return up to four decimals more where rounding would put a value on the wrong side of a limit that decides."""
    for more in range(4):
        places = decimals + more
        if all(np.sign(round(value, places) - t) == np.sign(value - t) for value in values for t in limits):
            return places
    return decimals + 4


def _number(value: float, places: int) -> str:
    """Return a number with so many decimals; in powers of ten where it is tiny, a dash for nan."""
    if math.isnan(value):
        return "–"
    if places > 6 and math.isfinite(value) and (rounded := round(value, places)):
        return f"{rounded:.{max(0, places + math.floor(math.log10(abs(rounded))))}e}".replace("-", "−")
    return published_table.number(value, places)
