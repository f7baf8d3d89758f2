"""Views: which samples belong to which, in which order, and what their weights come to."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raychains.planning.views import ALL, KINDS, Key, Member, Request, View, expand, key_of
from tests.checks import refused
from tests.orchestration.worlds import meta

STAGES = ("exploration", "sampling")


def arm(chains: int, draws: int, variables: tuple[str, ...] = ("theta",)) -> list[Member]:
    """Two draws a cycle, the first of them exploring; in the order of views."""
    return [
        (c, meta(f"digest{c}", i, variable=v, cycle=i // 2, stage=STAGES[i % 2]))
        for i in range(draws)
        for c in range(chains)
        for v in variables
    ]


@st.composite
def arms(draw: st.DrawFn) -> list[Member]:
    """Chains of different lengths with cycles and stages as they come, some of them without any sample of a kind."""
    found = []
    for position in draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)):
        for index in range(draw(st.integers(1, 5))):
            cycle, stage = draw(st.integers(0, 3)), draw(st.sampled_from(STAGES))
            for variable in draw(st.sampled_from([("theta",), ("theta", "anchor")])):
                found.append((position, meta(f"digest{position}", index, variable=variable, cycle=cycle, stage=stage)))
    return sorted(found, key=lambda m: (m[1].index, m[0]))


@given(samples=arms(), kind=st.sampled_from(["all", "chains", "cycles", "stages", "variables", "samples"]))
def test_every_sample_is_in_exactly_one_view_of_a_kind(samples: list[Member], kind: str) -> None:
    views = expand([kind], samples)
    met = Counter(key_of(taken) for view in views for taken in view.of(samples))
    assert met == Counter(key_of(m) for _, m in samples) and set(met.values()) == {1}
    assert all(view.of(samples) for view in views) and len({view.name for view in views}) == len(views)
    assert {view.kind for view in views} == {kind}


@given(samples=arms())
def test_a_view_without_a_chain_is_all_but_that_chains(samples: list[Member]) -> None:
    views = {view.without: view for view in expand(["without-chain"], samples)}
    alone = {view.chain: view for view in expand(["chains"], samples)}
    positions = {p for p, _ in samples}
    assert set(alone) == positions and set(views) == (positions if len(positions) > 1 else set())
    for position, view in views.items():
        left_out = {key_of(m) for m in alone[position].of(samples)}
        assert [key_of(m) for m in view.of(samples)] == [key_of(m) for _, m in samples if key_of(m) not in left_out]


@given(samples=arms(), data=st.data())
def test_the_first_samples_are_those_that_lead_in_the_order_of_views(
    samples: list[Member], data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, len(samples)))
    [view] = expand([f"first:{n}"], samples)
    assert view.of(samples) == [m for _, m in samples[:n]] and (view.name, view.kind) == (f"first:{n}", "first")


def test_first_counts_what_the_rest_of_a_view_leaves() -> None:
    samples = arm(2, 4)
    taken = View(name="two of a chain", kind="own", chain=1, first=2).of(samples)
    assert [key_of(m) for m in taken] == [("digest1", "theta", 0), ("digest1", "theta", 1)]


def test_names_tell_the_views_apart_in_the_order_of_the_kinds_once_each() -> None:
    samples = arm(2, 2, ("theta", "anchor"))
    kinds = ("cycles", "all", "chains", "all", "variables", "stages", "without-chain", "first:3")
    assert [v.name for v in expand(kinds, samples)] == [
        "cycle:0",
        "all",
        "chain:0",
        "chain:1",
        "variable:theta",
        "variable:anchor",
        "stage:exploration",
        "stage:sampling",
        "without-chain:0",
        "without-chain:1",
        "first:3",
    ]
    names = [v.name for v in expand(["samples"], samples)]
    assert names[:3] == ["sample:0:0:theta", "sample:0:0:anchor", "sample:1:0:theta"] and len(set(names)) == 8


@pytest.mark.parametrize("kind", ["cycle", "first", "first:", "first:0", "first:-1", "first:1.5", "first:N", "", "ALL"])
def test_an_unknown_kind_is_one_line(kind: str) -> None:
    with refused("views", repr(kind).strip("'") or "got", *KINDS[:3]):
        expand([kind], arm(1, 1))


def test_more_first_samples_than_there_are_is_one_line() -> None:
    with refused("views", "first:5", "4"):
        expand(["first:5"], arm(2, 2))


# Weights


def weighted(weights: dict[Key, float]) -> Request:
    return Request(arm=0, group=0, weighting="own", weights=weights)


def keys(samples: list[Member]) -> list[Key]:
    return [key_of(m) for _, m in samples]


@given(
    numbers=st.lists(st.just(0.0) | st.floats(1e-100, 1e300), min_size=2, max_size=6).filter(
        lambda w: max(w) > 0 and len(set(w)) > 1
    ),
    scale=st.floats(1e-3, 1e3),
)
def test_weights_are_normalised_over_the_view_whatever_their_scale(numbers: list[float], scale: float) -> None:
    samples = arm(1, len(numbers))
    found = weighted(dict(zip(keys(samples), numbers, strict=True))).weights_of(ALL.of(samples))
    again = weighted({k: scale * w for k, w in zip(keys(samples), numbers, strict=True)}).weights_of(ALL.of(samples))
    assert found is not None and again is not None
    assert sum(found) == pytest.approx(1) and found == pytest.approx(again)
    for (a, x), (b, y) in itertools.combinations(zip(numbers, found, strict=True), 2):
        assert (a < b) == (x < y) or a == pytest.approx(b)


def test_only_the_views_own_samples_count_and_equal_weights_are_none() -> None:
    samples = arm(2, 2)
    request = weighted(dict(zip(keys(samples), [3.0, 1.0, 1.0, 5.0], strict=True)))
    assert request.weights_of(View(chain=0).of(samples)) == [0.75, 0.25]
    assert request.weights_of([samples[1][1], samples[2][1]]) is None
    assert Request(arm=0, group=0).weights_of(ALL.of(samples)) is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_weights_that_are_none_are_one_line(bad: float) -> None:
    samples = arm(1, 2)
    with refused("weights", repr(bad).lstrip("-")):
        weighted(dict(zip(keys(samples), [1.0, bad], strict=True))).weights_of(ALL.of(samples))
    with refused("weights", "0"):
        weighted(dict.fromkeys(keys(samples), 0.0)).weights_of(ALL.of(samples))
    with refused("weights", "all", "digest0"):
        weighted({keys(samples)[0]: 1.0}).weights_of(ALL.of(samples))


def test_cycles_of_a_density_are_refused_since_its_blocks_span_them() -> None:
    blocks = [(0, meta("digest0", i, draws=2000, cycle=i)) for i in range(2)]
    with refused("views must be others than 'cycles' for a density", "blocks that span cycles", "measures=diagnostics"):
        expand(["all", "cycles"], blocks)
    assert [view.name for view in expand(["chains"], blocks)] == ["chain:0"]
