"""A paper's claims, written down before the run, and the rule that decides each of them from repeats.

A claim compares two quantities of a table, or one with a constant. It is decided by a 95 % interval of their difference
and by nothing else: where the interval leaves both answers open, the verdict is "cannot be told", with the smallest
difference that so many repeats would have found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from raychains.errors import require, unknown_name

Direction = Literal["less", "greater", "equal"]
Rule = Literal["welch", "paired", "one-sample"]
Word = Literal["holds", "does not hold", "cannot be told"]
SCALES = ("smoke", "cpu", "gpu", "paper")
LEVEL = 0.05
"""Of the two-sided test; the intervals cover with 1 − LEVEL."""
POWER = 0.8
"""With which the smallest detectable difference is found."""
FAR = 7.0
"""Noncentrality from which a t value of the other sign has a probability below 2e-12."""
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
ROUNDING = 1e-12
"""A half-width below this share of the values is rounding, and the values are shown with four digits."""


@dataclass(frozen=True, kw_only=True)
class Of:
    """One quantity: the cell of a part's table, one value per repeat."""

    row: str
    column: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper that can turn out true or false.

    Raises:
        UserError: for a field out of its range.
    """

    name: str
    """Unique inside the experiment, kebab-case."""
    text: str
    """What the paper claims, as a plain sentence."""
    part: str
    left: Of
    right: Of | float
    """Another cell, or a constant."""
    direction: Direction
    """Of ``left`` against ``right``."""
    tolerance: float = 0.0
    """For ``equal``: a difference of at most this much counts as equal. In the column's unit."""
    rule: Rule
    """``paired`` goes by repeat (the same seeds on both sides); ``one-sample`` is for a constant, and only for that."""
    scales: tuple[str, ...] = SCALES
    """At which of the scales the claim is judged."""
    must_decide: bool = False
    """Whether "cannot be told" means that there were too few repeats."""

    def __post_init__(self) -> None:
        require(KEBAB.fullmatch(self.name) is not None, "claim: name", self.name, "be kebab-case, like below-sgld")
        where = f"claim {self.name}"
        require(bool(self.text.strip()), f"{where}: text", self.text, "be a sentence")
        for field, value, kind in (("direction", self.direction, Direction), ("rule", self.rule, Rule)):
            if value not in get_args(kind):
                raise unknown_name(f"{where}: {field}", value, get_args(kind))
        for scale in self.scales:
            if scale not in SCALES:
                raise unknown_name(f"{where}: scales", scale, SCALES)
        require(bool(self.scales), f"{where}: scales", self.scales, "name at least one scale")
        constant = not isinstance(self.right, Of)
        allowed = "be one-sample for a constant, and welch or paired for another cell"
        require((self.rule == "one-sample") == constant, f"{where}: rule", self.rule, allowed)
        if not isinstance(self.right, Of):
            require(math.isfinite(self.right), f"{where}: right", self.right, "be a cell or a finite number")
        fine = 0 <= self.tolerance < math.inf and (self.tolerance == 0 or self.direction == "equal")
        require(fine, f"{where}: tolerance", self.tolerance, "be finite, not negative, and 0 unless direction is equal")

    @property
    def cells(self) -> tuple[tuple[str, str, str], ...]:
        """(part, row, column) of the left cell, and of the right one where it is a cell."""
        sides = [self.left] + ([self.right] if isinstance(self.right, Of) else [])
        return tuple((self.part, of.row, of.column) for of in sides)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A published value: mean ± standard error of the mean over n runs."""

    mean: float
    se: float
    """nan if unpublished."""
    n: int
    """0 if unpublished."""

    def __post_init__(self) -> None:
        require(math.isnan(self.se) or 0 <= self.se < math.inf, "published: se", self.se, "be at least 0, or nan")
        require(self.n >= 0, "published: n", self.n, "be at least 0")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the repeats say of a claim."""

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
    """The smallest true difference that these repeats find with power 80 %; infinite where there is no interval, nan where
    the repeats have no spread."""
    verdict: Word
    published: Word | Literal["not published"]
    """The same rule on the paper's own numbers."""
    reason: str
    """Why there is no interval, or one without width, and what was left out; empty if nothing of it."""
    line: str
    """All of it in one line for people."""

    @property
    def owed(self) -> bool:
        """Whether the claim had to be decided and is not."""
        return self.claim.must_decide and self.verdict == "cannot be told"


def judge(
    claim: Claim,
    left: Sequence[float],
    right: Sequence[float] | None,
    published_left: Summary | None = None,
    published_right: Summary | None = None,
) -> Verdict:
    """The verdict on a claim.

    The interval of left − right is Student's: Welch's with the degrees of freedom of Welch and Satterthwaite, that of the
    differences repeat by repeat, or that of one mean. ``less`` holds if it lies below 0 and does not if it lies above;
    ``greater`` is the mirror image. ``equal`` holds if the interval lies inside ± the tolerance and does not if it lies
    outside entirely. Without a tolerance no number of repeats can show equality: the claim then fails or cannot be told,
    so a claim of agreement with a theory gives a tolerance.

    The published verdict is Welch's for ``paired`` too: papers do not print their pairs, and the interval is the wider
    one where the pairs go together.

    Args:
        left, right: one value per repeat; nan for a repeat that failed, which is left out (with its pair) and said.
            ``right`` is None for a constant; for another cell that means that nothing was run.
        published_left, published_right: the paper's numbers; the right ones are not looked at for a constant.
    Raises:
        UserError: if paired sides differ in length.
    """
    sides = [np.asarray(left, dtype=float), np.asarray(() if right is None else right, dtype=float)]
    names = ["/".join(filter(None, cell)) for cell in claim.cells]
    said: list[str] = []
    if claim.rule == "paired":
        if right is None:
            sides[1] = np.full(len(sides[0]), math.nan)
        wanted = f"be as many as {names[0]} has ({len(sides[0])}): repeats are paired by their seeds"
        require(len(sides[0]) == len(sides[1]), f"claim {claim.name}: repeats of {names[1]}", len(sides[1]), wanted)
        keep = ~np.isnan(sides[0]) & ~np.isnan(sides[1])
        said += _left_out(int((~keep).sum()), len(keep), "pairs")
        sides = [side[keep] for side in sides]
        ours = [_summary(side) for side in sides]
        with np.errstate(invalid="ignore"):  # infinite on both sides
            difference, se, df = _contrast(_summary(sides[0] - sides[1]), 0.0)
    else:
        for side, name in zip(sides, names, strict=False):
            said += _left_out(int(np.isnan(side).sum()), len(side), f"repeats of {name}")
        ours = [_summary(side[~np.isnan(side)]) for side in sides]
        difference, se, df = _contrast(ours[0], ours[1] if isinstance(claim.right, Of) else claim.right)
    low, high = interval(difference, se, df)
    if math.isnan(low):
        why = (_why(one, name) for one, name in zip(ours, names, strict=False))
        said.insert(0, f"no interval: {'; '.join(filter(None, why))}")
    elif se == 0:
        # Of n equal values another one differs with at most this probability, to 95 %.
        few = min(one.n for one in ours if one.n)  # a constant has none
        said.insert(
            0,
            f"no spread between the {'pairs' if claim.rule == 'paired' else 'repeats'}: another would differ with a "
            f"probability of up to {100 * (1 - LEVEL ** (1 / few)):.2g} %",
        )
    right_mean = ours[1].mean if isinstance(claim.right, Of) else float(claim.right)
    found = detectable(se, df) if se else math.nan
    word, reason = _word(claim, low, high), "; ".join(said)
    published = _published(claim, published_left, published_right)
    if not isinstance(claim.right, Of) and published_left is not None and published_left.mean == claim.right:
        published, beside = "not published", "the constant is the paper's own number"
    else:
        missing = _without(claim, published_left, published_right) if published == "not published" else ""
        beside = f"the paper's own numbers: {published}{missing}"
    line = (
        f"{' '.join(claim.text.split()).rstrip('.')}: {_shown(claim, difference, low, high, found)}: {word}"
        f"{f' ({reason})' if reason else ''}; {beside}"
    )
    return Verdict(
        claim=claim, left_mean=ours[0].mean, right_mean=right_mean, n_left=ours[0].n,
        n_right=ours[1].n if isinstance(claim.right, Of) else 0, difference=difference, low=low, high=high,
        detectable=found, verdict=word, published=published, reason=reason, line=line,
    )  # fmt: skip


def interval(difference: float, se: float, df: float) -> tuple[float, float]:
    """The 95 % interval of a difference with standard error ``se`` on ``df`` degrees of freedom; nan where unknown."""
    from scipy import stats

    half = 0.0 if se == 0 else float(stats.t.ppf(1 - LEVEL / 2, df)) * se
    return difference - half, difference + half


def detectable(se: float, df: float) -> float:
    """The smallest true difference that a two-sided t test at 5 % finds with power 80 %; infinite where se is unknown.

    With noncentrality δ = difference / se the power is P(|t'_df(δ)| > t_crit); solved for δ with the exact noncentral t.
    It takes ``se`` and ``df`` as the true ones. Welch's estimates both: with equal spreads it then finds such a difference
    70 times in 100 with three runs a side and 80 with ten (simulated).
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


def _summary(values: Any) -> Summary:
    n = len(values)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        mean = float(values.mean()) if n else math.nan
    if n < 2 or not math.isfinite(mean):
        return Summary(mean=mean, se=math.nan, n=n)
    # Equal values: their mean may be off by a rounding error, and the deviation with it.
    same = bool(values.min() == values.max())
    return Summary(mean=mean, se=0.0 if same else float(values.std(ddof=1)) / math.sqrt(n), n=n)


def _contrast(left: Summary, right: Summary | float) -> tuple[float, float, float]:
    """Left − right with its standard error (nan where unknown) and degrees of freedom (of no use without it)."""
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
    """left − right, 0 where that is a rounding error."""
    return 0.0 if math.isclose(left, right, rel_tol=ROUNDING) else left - right


def _word(claim: Claim, low: float, high: float) -> Word:
    """Compared with nan, nothing is told."""
    delta = claim.tolerance
    if claim.direction == "equal":
        yes, no = delta > 0 and -delta <= low and high <= delta, low > delta or high < -delta
    else:
        yes, no = (high < 0, low > 0) if claim.direction == "less" else (low > 0, high < 0)
    return "holds" if yes else "does not hold" if no else "cannot be told"


def _published(claim: Claim, left: Summary | None, right: Summary | None) -> Word | Literal["not published"]:
    against = right if isinstance(claim.right, Of) else claim.right
    if left is None or against is None:
        return "not published"
    low, high = interval(*_contrast(left, against))
    return "not published" if math.isnan(low) else _word(claim, low, high)


def _without(claim: Claim, left: Summary | None, right: Summary | None) -> str:
    """The published means where standard errors or numbers of runs are all that is wanting."""
    if left is None or right is None or not isinstance(claim.right, Of):
        return ""
    means = [_number(mean, max(0, _decimals(mean, 4))) for mean in (left.mean, right.mean)]
    return f" with standard errors ({means[0]} against {means[1]})"


def _left_out(count: int, of: int, what: str) -> list[str]:
    return [f"{count} of {of} {what} left out, without a value"] if count else []


def _why(one: Summary, name: str) -> str:
    """Why a side gives no interval; empty if it does."""
    if one.n and not math.isfinite(one.mean):
        return f"an infinite value of {name}"
    return f"{('no value', 'one repeat')[one.n]} of {name}" if one.n < 2 else ""


def _shown(claim: Claim, difference: float, low: float, high: float, found: float) -> str:
    """``−0.31 [−0.52, −0.10] (detectable 0.24)``: two significant digits of the half-width."""
    if math.isnan(low):
        return f"{_number(difference, _decimals(difference, 4))} (detectable ∞)"
    half, largest = (high - low) / 2, max(abs(low), abs(high))
    decimals = _decimals(half, 2) if half > ROUNDING * largest else _decimals(largest, 4)
    # More digits where rounding would put an end of the interval on the wrong side of what decides.
    limits = (-claim.tolerance, claim.tolerance)
    for _ in range(4):
        if all(np.sign(round(end, decimals) - t) == np.sign(end - t) for end in (low, high) for t in limits):
            break
        decimals += 1
    shown = [_number(value, decimals) for value in (difference, low, high)]
    allowed = f", allowed ±{claim.tolerance:g}" if claim.direction == "equal" else ""
    smallest = "unknown" if math.isnan(found) else _number(found, _decimals(found, 2))
    return f"{shown[0]} [{shown[1]}, {shown[2]}]{allowed} (detectable {smallest})"


def _decimals(value: float, digits: int) -> int:
    """Places after the point (negative: before it) that leave so many significant digits of a value."""
    if value == 0 or not math.isfinite(value):
        return digits - 1
    # As it is printed: .0996 has two significant digits in .10, not in .100.
    return digits - 1 - int(f"{abs(value):.{digits - 1}e}".partition("e")[2])


def _number(value: float, decimals: int) -> str:
    """A number with so many decimals, a true minus sign, no minus before zero; in powers of ten where it is tiny."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "–")
    rounded = round(value, decimals) + 0.0
    if decimals > 6 and rounded:
        text = f"{rounded:.{max(0, decimals + math.floor(math.log10(abs(rounded))))}e}"
    else:
        text = f"{rounded:,.{max(0, decimals)}f}"
    return text.replace("-", "−")
