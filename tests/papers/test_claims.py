"""Verdicts on claims, against scipy's own tests, simulation, and cases worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from raychains.core.errors import UserError
from raychains.papers import claims
from raychains.papers.claims import Claim, Of, Summary, Verdict, detectable, holm, judge
from tests.papers.planned import every

NAN = math.nan
LEFT, RIGHT, PAIR = [4.27, 4.31, 4.22, 4.35], [4.93, 4.71, 5.10], [4.9, 4.4, 5.0, 4.6]


def claim(**changes: Any) -> Claim:
    asked: dict[str, Any] = {
        "name": "below-sghmc", "text": "cSGHMC errs less than SGHMC.", "part": "c10", "direction": "less",
        "left": Of(row="csghmc", column="error"), "right": Of(row="sghmc", column="error"), "rule": "welch",
    }  # fmt: skip
    return Claim(**(asked | changes))


def constant(value: float = 4.0, **changes: Any) -> Claim:
    return claim(right=value, rule="one-sample", **changes)


def of(mean: float, se: float = NAN, n: int = 3) -> Summary:
    return Summary(mean=mean, se=se, n=n)


# The intervals


@pytest.mark.parametrize(
    ("asked", "right", "test"),
    [
        (claim(), RIGHT, stats.ttest_ind(LEFT, RIGHT, equal_var=False)),
        (claim(rule="paired"), PAIR, stats.ttest_rel(LEFT, PAIR)),
        (constant(4.25), [], stats.ttest_1samp(LEFT, 4.25)),
    ],
    ids=["welch", "paired", "one-sample"],
)
def test_intervals_and_p_values_are_scipys_of_the_same_test(asked: Claim, right: list[float], test: Any) -> None:
    found, wanted = judge(asked, LEFT, right), test.confidence_interval(0.95)
    against, shift = (np.mean(right), 0.0) if right else (4.25, 4.25)
    assert (found.low + shift, found.high + shift) == pytest.approx((wanted.low, wanted.high), rel=1e-10)
    assert (found.left_mean, found.right_mean) == pytest.approx((np.mean(LEFT), against))
    assert found.difference == pytest.approx(np.mean(LEFT) - against, rel=1e-10)
    assert (found.n_left, found.n_right) == (4, len(right))
    assert found.p == pytest.approx(test.pvalue, rel=1e-10) and math.isnan(found.adjusted_p)


def test_pairs_decide_what_the_two_sides_by_themselves_cannot() -> None:
    sides = [5.0, 6.1, 7.2, 8.05], [5.2, 6.2, 7.35, 8.3]
    assert (judge(claim(rule="paired"), *sides).verdict, judge(claim(), *sides).verdict) == ("holds", "inconclusive")


def test_published_numbers_are_judged_as_scipy_tests_summaries() -> None:
    """The word turns exactly where the p-value of scipy's test from summaries crosses 5 %."""
    words = set()
    for gap in np.linspace(0.1, 1.2, 23):
        left, right = of(4.0, 0.06, 3), of(4.0 + gap, 0.2, 5)
        scale = math.sqrt(3) * 0.06, math.sqrt(5) * 0.2
        p = stats.ttest_ind_from_stats(left.mean, scale[0], 3, right.mean, scale[1], 5, equal_var=False).pvalue
        for rule in ("welch", "paired"):  # pairs are not published
            found = judge(claim(rule=rule), [], [], left, right)
            assert found.published == ("holds" if p < 0.05 else "inconclusive")
        words.add(found.published)
    assert words == {"holds", "inconclusive"}
    # Table 4's 6.7 ± .52 of 10 runs against 17.65 expected modes.
    near = constant(17.65, direction="equal", tolerance=0.5)
    assert judge(near, [], (), of(6.7, 0.52, 10)).published == "does not hold"
    assert judge(near, [], (), of(17.7, 0.05, 10)).published == "holds"


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (None, None, ": not published"),
        (of(3.95, 0.1), None, ": not published"),
        (of(3.95), of(4.09), ": not published with standard errors (3.950 against 4.090)"),
        (of(3.95, 0.1), of(4.09), ": not published with standard errors (3.950 against 4.090)"),
        (of(3.95, 0.1, 0), of(4.09, 0.1), ": not published with standard errors (3.950 against 4.090)"),
        (of(3.95, 0.1, 1), of(4.09, 0.1), ": not published with standard errors (3.950 against 4.090)"),
        (of(3.95, 0.0), of(4.09, 0.0), ": holds"),
    ],
)
def test_what_is_not_published_is_said(left: Summary | None, right: Summary | None, said: str) -> None:
    found = judge(claim(), LEFT, RIGHT, left, right)
    assert found.line("paper").endswith(f"the paper's own numbers{said}")
    assert said.startswith(f": {found.published}")


def test_a_single_published_run_says_nothing_of_a_constant() -> None:
    assert judge(constant(), [], (), of(3.0, 0.0, 1)).published == "not published"
    assert judge(constant(), [], (), of(3.0, 0.0, 2)).published == "holds"


# The words


def interval_claim(direction: str, low: float, high: float, tolerance: float = 0.0) -> str:
    """The verdict on two repeats whose interval against 0 is [low, high]."""
    half = (high - low) / 2 / stats.t.ppf(0.975, 1)
    middle = (low + high) / 2
    found = judge(constant(0.0, direction=direction, tolerance=tolerance), [middle - half, middle + half])
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    return found.verdict


@pytest.mark.parametrize(
    ("low", "high", "less", "greater", "equal", "within"),
    [
        (-3.0, -2.0, "holds", "does not hold", "does not hold", "does not hold"),
        (-2.0, -0.5, "holds", "does not hold", "does not hold", "inconclusive"),
        (-0.9, -0.1, "holds", "does not hold", "does not hold", "holds"),
        (-0.9, 0.9, "inconclusive", "inconclusive", "inconclusive", "holds"),
        (-0.9, 1.1, "inconclusive", "inconclusive", "inconclusive", "inconclusive"),
        (-2.0, 2.0, "inconclusive", "inconclusive", "inconclusive", "inconclusive"),
        (0.1, 0.9, "does not hold", "holds", "does not hold", "holds"),
        (0.9, 1.1, "does not hold", "holds", "does not hold", "inconclusive"),
        (1.1, 1.2, "does not hold", "holds", "does not hold", "does not hold"),
    ],
)
def test_the_verdict_is_where_the_interval_lies(
    low: float, high: float, less: str, greater: str, equal: str, within: str
) -> None:
    assert interval_claim("less", low, high) == less
    assert interval_claim("greater", low, high) == greater
    assert interval_claim("equal", low, high) == equal
    assert interval_claim("equal", low, high, tolerance=1.0) == within


# The smallest detectable difference


@pytest.mark.parametrize("df", [1.0, 1.4, 2.0, 4.7, 18.0, 400.0, 1e5])
def test_the_detectable_difference_has_power_80_per_cent(df: float) -> None:
    """Against the noncentral t's definition, (Z + δ)/√(χ²/df), integrated over χ."""
    delta = detectable(1.0, df)
    critical = stats.t.ppf(0.975, df)

    def power(u: float) -> float:
        outside = stats.norm.cdf(delta - critical * u) + stats.norm.cdf(-delta - critical * u)
        return float(outside * stats.chi.pdf(u * math.sqrt(df), df) * math.sqrt(df))

    width = 12 / math.sqrt(2 * df)
    found, _ = integrate.quad(power, max(0.0, 1 - width), 1 + width, limit=200, epsabs=1e-9)
    assert found == pytest.approx(0.8, abs=1e-6)
    assert detectable(0.03, df) == pytest.approx(0.03 * delta)


def test_the_verdict_carries_the_detectable_difference_of_its_own_interval() -> None:
    found = judge(constant(), LEFT)
    assert found.detectable == pytest.approx(detectable(np.std(LEFT, ddof=1) / 2, 3))
    more = judge(constant(), LEFT * 4)
    assert more.detectable < found.detectable / 2
    assert found.detectable > (found.high - found.low) / 2


# What is missing


def undecided(found: Verdict) -> bool:
    unknown = math.isnan(found.low) and math.isnan(found.high) and found.detectable == math.inf
    line = found.line("paper")
    return found.verdict == "inconclusive" and unknown and "detectable ∞" in line and found.reason in line


def test_one_repeat_decides_nothing_and_says_so() -> None:
    found = judge(claim(), [4.0], RIGHT)
    assert undecided(found) and found.reason == "no interval: one repeat of c10/csghmc/error"
    assert found.difference == pytest.approx(4.0 - np.mean(RIGHT))
    both = judge(claim(), [4.0], [])
    assert undecided(both) and both.reason.endswith("one repeat of c10/csghmc/error; no value of c10/sghmc/error")
    assert math.isnan(both.difference) and "less than SGHMC: – (" in both.line("paper")
    assert undecided(judge(constant(), [4.0])) and undecided(judge(constant(), []))
    assert undecided(judge(claim(), LEFT)) and undecided(judge(claim(rule="paired"), LEFT, [NAN] * len(LEFT)))
    assert undecided(judge(claim(rule="paired"), [4.0], [5.0]))
    assert judge(claim(must_decide=True), [4.0], [5.0]).owed and not judge(claim(must_decide=True), LEFT, RIGHT).owed
    assert not judge(claim(), [4.0], [5.0]).owed


def test_failed_repeats_are_left_out_and_said() -> None:
    found = judge(claim(), [*LEFT, NAN], [NAN, *RIGHT, NAN])
    plain = judge(claim(), LEFT, RIGHT)
    assert found.reason == (
        "1 of 5 repeats of c10/csghmc/error left out, without a value; "
        "2 of 5 repeats of c10/sghmc/error left out, without a value"
    )
    assert f": holds ({found.reason}); the paper" in found.line("paper")
    assert (found.n_left, found.n_right) == (4, 3)
    assert (found.low, found.high) == (plain.low, plain.high)


def test_a_failed_repeat_takes_its_pair_with_it() -> None:
    pair = claim(rule="paired")
    found = judge(pair, [1.0, NAN, 3.0, 4.0, 7.0], [2.0, 0.0, 4.5, 5.1, NAN])
    kept = judge(pair, [1.0, 3.0, 4.0], [2.0, 4.5, 5.1])
    assert found == replace(kept, reason="2 of 5 pairs left out, without a value")


def test_equal_repeats_give_an_interval_without_width() -> None:
    # The mean of three times .1 is not .1, so that a plain standard deviation is not 0.
    found = judge(claim(), [0.1] * 3, [0.3] * 3)
    assert (found.low, found.high) == (found.difference, found.difference) and math.isnan(found.detectable)
    # (1 − p)³ = 5 %: with a larger p three equal values are rarer than that.
    said = "no spread between the repeats: another would differ with a probability of up to 63 %"
    assert (found.verdict, found.reason) == ("holds", said)
    assert "−0.2000 [−0.2000, −0.2000] (detectable unknown)" in found.line("paper")
    assert judge(claim(), [0.1] * 3, [0.1] * 3).verdict == "inconclusive"
    # Without a tolerance even this shows no equality.
    assert judge(claim(direction="equal"), [0.1] * 3, [0.1] * 3).verdict == "inconclusive"
    assert judge(claim(direction="equal", tolerance=0.1), [0.1] * 3, [0.1] * 3).verdict == "holds"
    one_side = judge(claim(), [25.0] * 3, [18.0, 19.0, 17.0])
    assert (one_side.high - one_side.low) / 2 == pytest.approx(stats.t.ppf(0.975, 2) / math.sqrt(3))
    paired = judge(claim(rule="paired"), [1.0, 2.0], [2.0, 3.0])
    assert (paired.low, paired.high) == (-1.0, -1.0)
    assert paired.reason == "no spread between the pairs: another would differ with a probability of up to 78 %"
    assert judge(constant(), [0.1] * 1000).reason.endswith("of up to 0.3 %")
    # Differences that are equal up to rounding have no spread either.
    rounded = judge(claim(rule="paired", direction="greater"), [0.3, 0.5], [0.1, 0.3])
    assert rounded.low == rounded.high == pytest.approx(0.2) and rounded.reason.startswith(
        "no spread between the pairs"
    )
    nothing = judge(claim(rule="paired"), [0.1 + 0.2, 0.3], [0.3, 0.3])
    assert (nothing.low, nothing.high, nothing.verdict) == (0, 0, "inconclusive")
    large = judge(claim(rule="paired"), [1e6, 1e6 + 1e-3, 1e6 + 3e-3], [1e6] * 3)
    assert large.high > large.low


def test_infinite_values_decide_nothing() -> None:
    for rule in ("welch", "paired"):
        found = judge(claim(rule=rule), [1.0, math.inf], [2.0, math.inf])
        assert undecided(found) and "an infinite value of c10/csghmc/error" in found.reason
        assert undecided(judge(claim(rule=rule), [-math.inf, math.inf], [2.0, 3.0]))


# The line


@pytest.mark.parametrize(
    ("left", "right", "shown"),
    [
        ([3.9, 4.0, 3.8], [4.2, 4.4, 4.1], "−0.33 [−0.65, −0.02] (detectable 0.42): holds"),
        ([3.9, 4.0, 3.8], [4.2, 4.1], "−0.250 [−0.499, −0.001] (detectable 0.33): holds"),  # not −0.00
        ([1200, 1300, 1250], [1900, 2000, 1800], "−650 [−860, −440] (detectable 280): holds"),
        ([12e4, 13e4], [19e4, 20e4], "−70,000 [−100,000, −40,000] (detectable 40,000): holds"),
        ([0.1, 0.301], [0.3, 0.102], "0.00 [−0.61, 0.61] (detectable 0.80): inconclusive"),  # of −0.0005
        ([1e-8, 2e-8], [1e-8, 3e-8], "−5e−09 [−7.4e−08, 6.4e−08] (detectable 9.0e−08): inconclusive"),
    ],
)
def test_the_line_has_two_digits_of_the_half_width(left: list[float], right: list[float], shown: str) -> None:
    line = judge(claim(), left, right).line("paper")
    assert line == f"cSGHMC errs less than SGHMC: {shown}; the paper's own numbers: not published"


def test_a_spread_of_rounding_errors_is_not_shown_as_one() -> None:
    found = judge(claim(direction="greater"), [0.5, math.nextafter(0.5, 1)], [0.3, 0.3])
    assert found.high > found.low and "0.2000 [0.2000, 0.2000]" in found.line("paper")


def test_the_line_of_a_tolerance_names_it() -> None:
    asked = constant(17.65, direction="equal", tolerance=0.5, text="cSGLD finds what theory\n expects.")
    line = judge(asked, [17.7, 17.5, 17.9, 17.6], (), of(6.7, 0.52, 10)).line("paper")
    assert line == (
        "cSGLD finds what theory expects: 0.03 [−0.25, 0.30], allowed ±0.5 (detectable 0.36): holds; "
        "the paper's own numbers: contrary"
    )


def test_a_constant_that_the_paper_prints_is_not_held_against_itself() -> None:
    found = judge(constant(6.7, direction="equal", tolerance=0.5), [6.6, 6.9, 6.7], (), of(6.7, 0.1, 10))
    assert found.line("paper").endswith("holds; the constant is the paper's own number")
    assert found.published == "not published"


def test_smaller_networks_or_less_data_than_a_papers_refute_nothing() -> None:
    found = judge(claim(direction="greater"), LEFT, RIGHT, of(3.95, 0.01), of(4.09, 0.01))
    assert found.verdict == found.published == "does not hold"
    for words, scales in (("contrary at this scale", ("smoke", "cpu")), ("does not hold", ("gpu", "paper"))):
        said = f": {words}; the paper's own numbers: contrary"
        assert all(found.line(scale).endswith(said) for scale in scales)


# Families of claims


def with_p(values: Any) -> list[Verdict]:
    """Decided verdicts with these p values."""
    decided = judge(claim(), LEFT, RIGHT)
    return [replace(decided, p=float(p)) for p in values]


def families() -> list[np.ndarray]:
    """p values of one to seven claims: small and large ones, equal ones, 0 and 1."""
    rng = np.random.default_rng(1)
    drawn = [rng.uniform(size=size) ** rng.choice([1, 4]) for size in range(1, 8) for _ in range(20)]
    return [*drawn, np.full(4, 0.02), np.array([0.0, 1.0, 0.0, 0.03]), np.array([0.01, 0.02, 0.03, 0.04])]


def test_a_family_is_decided_as_by_the_steps_of_the_textbook() -> None:
    """From the smallest p value on, against 5 % over the number of claims that are left, until one fails."""
    for p in families():
        decided = set()
        for step, one in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
            if p[one] >= 0.05 / (len(p) - step):
                break
            decided.add(one)
        words = [found.verdict for found in holm(with_p(p))]
        assert words == ["holds" if i in decided else "inconclusive" for i in range(len(p))]


def test_adjusted_p_values_are_those_of_all_subsets_by_bonferroni() -> None:
    """Holm's method is the closed test: a claim's p value is the largest of all subsets that it is in."""
    for p in families():
        every_one = range(len(p))
        subsets = [s for size in range(1, len(p) + 1) for s in combinations(every_one, size)]
        wanted = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in every_one]
        assert [found.adjusted_p for found in holm(with_p(p))] == pytest.approx(wanted, rel=1e-12)
    assert holm([]) == []


@pytest.mark.parametrize("nulls", [8, 5])
def test_a_true_null_of_a_family_is_rejected_in_at_most_5_of_100_families(nulls: int) -> None:
    """Eight methods against one baseline, so that claims depend on each other; three of them differ in the second
    case."""
    rng, times = np.random.default_rng(2), 500
    shift = np.where(np.arange(8) < nulls, 0.0, 3.0)[:, None]
    values = rng.normal(size=(times, 8, 6)) + shift - rng.normal(size=(times, 1, 6))
    p = stats.ttest_1samp(values, 0.0, axis=2).pvalue
    wrong = np.mean([any(v.verdict == "holds" for v in holm(with_p(one))[:nulls]) for one in p])
    assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / times)
    assert np.mean((p[:, :nulls] < 0.05).any(axis=1)) > 0.13, "each by itself they exceed it"


def test_one_claim_alone_is_decided_as_without_a_family() -> None:
    words = set()
    for gap in np.linspace(-0.9, 0.9, 37):
        alone = judge(claim(), LEFT, [4.2875 + gap + noise for noise in (-0.2, 0.0, 0.25)])
        (found,) = holm([alone])
        assert (found.verdict, found.adjusted_p) == (alone.verdict, alone.p)
        words.add(found.verdict)
    assert len(words) == 3


def test_a_family_takes_back_what_a_claim_alone_decides() -> None:
    alone = judge(claim(must_decide=True), [3.9, 4.0, 3.8], [4.2, 4.4, 4.1])  # p = .041
    open_one = judge(claim(), LEFT, [4.2, 4.9, 4.0])
    found, other = holm([alone, open_one])
    assert (alone.verdict, found.verdict, other.verdict) == ("holds", *["inconclusive"] * 2)
    assert found.adjusted_p == pytest.approx(2 * alone.p) and found.owed and not alone.owed
    assert (found.low, found.high, found.detectable, found.p) == (alone.low, alone.high, alone.detectable, alone.p)
    assert found.line("paper") == alone.line("paper").replace(
        ": holds;", f": inconclusive, Holm-adjusted p {found.adjusted_p:.3f};"
    )


@pytest.mark.parametrize(
    ("p", "shown"),
    [(0.0123, "0.012"), (0.04996, "0.04996"), (0.0502, "0.0502"), (1, "1.0"), (0, "0"), (3e-9, "3.0e−09")],
)
def test_an_adjusted_p_value_is_shown_on_its_side_of_the_level(p: float, shown: str) -> None:
    (found,) = holm(with_p([p]))
    assert f": {found.verdict}, Holm-adjusted p {shown}; the paper" in found.line("paper")


def test_claims_without_an_interval_or_spread_keep_their_verdicts_in_a_family() -> None:
    missing = [judge(claim(), [4.0], RIGHT), judge(constant(), [1.0, math.inf]), judge(claim(), [], [])]
    same, differ = judge(claim(), [0.1] * 3, [0.1] * 3), judge(claim(), [0.3] * 3, [0.1] * 3)
    assert [v.p for v in (*missing, same, differ)] == [1, 1, 1, 1, 0]
    found = holm([*missing, same, differ])
    assert [v.adjusted_p for v in found] == [1, 1, 1, 1, 0]
    assert [v.verdict for v in found] == [*["inconclusive"] * 4, "does not hold"]
    assert ": inconclusive, Holm-adjusted p 1.0 (no interval: one repeat of" in found[0].line("paper")
    assert ": does not hold, Holm-adjusted p 0 (no spread between the repeats" in found[-1].line("paper")
    # It counts in the family: Bonferroni's factor of the other claim is two.
    _, decided = holm([missing[0], judge(claim(), LEFT, RIGHT)])
    assert decided.adjusted_p == pytest.approx(2 * decided.p)


def test_a_family_has_no_claims_of_equality() -> None:
    one = every()["table1"]
    near = constant(name="near", direction="equal", tolerance=0.5)
    assert replace(one, claims=(claim(), near)).family is False
    assert replace(one, claims=(claim(),), family=True).family
    with pytest.raises(UserError, match=r"table1: claims of a family must be less or greater, got \['near'\]: Holm's"):
        replace(one, claims=(claim(), near), family=True)


def test_claims_are_stated_a_line_each() -> None:
    table = """
first | part column | a < b | A is below
    B.
second | part column | a = -0.5 | A is half.
"""
    one, two = claims.stated(table, tolerance=0.1, scales=("cpu",))
    assert (one.name, one.text, one.cells, one.direction, one.rule, one.tolerance) == (
        "first", "A is below B.", (("part", "a", "column"), ("part", "b", "column")), "less", "welch", 0.0
    )  # fmt: skip
    assert (two.right, two.direction, two.rule, two.tolerance) == (-0.5, "equal", "one-sample", 0.1)
    assert two.cells == (("part", "a", "column"),) and one.scales == two.scales == ("cpu",)
    third, fourth = claims.stated(["third | part column | a > b paired | Above.", "fourth | part x | 8 > 2:y | Above."])
    assert (third.direction, third.rule) == ("greater", "paired")
    assert fourth.cells == (("part", "8", "x"), ("part", "2", "y")) and fourth.rule == "welch"
