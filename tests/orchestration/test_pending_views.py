"""Which samples views are formed from: of finished chains, in the arms' order, with their positions in the arm."""

from __future__ import annotations

import pytest

from raychains.orchestration.run import pending_views
from raychains.orchestration.run.sample_pool import SamplePool
from raychains.planning.views import Request, View, key_of
from raychains.store import SampleRecord
from raychains.tasks.mixture import Mixture25
from tests.checks import refused
from tests.orchestration.worlds import comparison, meta
from tests.report import runs


def filled(digests: list[str], draws: int = 2, variables: tuple[str, ...] = ("theta",)) -> SamplePool:
    pool = SamplePool()
    for digest in digests:
        for index in range(draws):
            for variable in variables:
                about = meta(digest, index, variable=variable, cycle=index)
                pool.add(SampleRecord(meta=about, file="", sha256=""), None)
    return pool


def test_members_are_of_finished_chains_with_their_positions() -> None:
    plan = comparison(Mixture25(), chains=3, arms=(1, 3))
    a, b, c = plan.chains()
    pool = filled([c, a, b])
    found = pending_views.members(plan, pool, finished={a, b, c}, dropped=())
    assert [(p, m.index) for p, m in found[1, 0]] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert [m.digest for _, m in found[0, 0]] == [a, a]
    assert set(pending_views.members(plan, pool, finished={a, c}, dropped=())) == {(0, 0)}
    without = pending_views.members(plan, pool, finished={a, c}, dropped={b})
    assert [(p, m.index) for p, m in without[1, 0]] == [(0, 0), (2, 0), (0, 1), (2, 1)], "positions are the arm's"
    assert set(pending_views.members(plan, pool, finished={b, c}, dropped={a})) == {(1, 0)}, "no arm of no chain"


def test_what_is_asked_for_is_found_in_the_pool_in_that_order() -> None:
    plan = comparison(Mixture25(), chains=2, arms=(1, 2))
    a, b = plan.chains()
    pool = filled([a, b])
    samples = pending_views.members(plan, pool, {a, b}, ())
    asked = [Request(arm=1, group=0, view=View(name="chain:1", chain=1)), Request(arm=0, group=0)]
    one, two = pending_views.requested(plan, pool, asked, samples)
    assert [one.request, two.request] == asked and (one.chains, two.chains) == ([b], [a])
    assert [key_of(p.record.meta) for p in one.members or ()] == [(b, "theta", 0), (b, "theta", 1)]
    assert [key_of(p.record.meta) for p in two.members or ()] == [(a, "theta", 0), (a, "theta", 1)]


def test_a_densitys_views_are_of_theta_and_equally_weighted() -> None:
    plan = comparison(Mixture25(), chains=1)
    [digest] = plan.chains()
    pool = filled([digest], variables=("theta", "anchor"))
    samples = pending_views.members(plan, pool, {digest}, ())
    assert {m.variable for _, m in samples[0, 0]} == {"theta"}
    weights = {(digest, "theta", 0): 1.0, (digest, "theta", 1): 2.0}
    with refused("weights", "equal", "density"):
        pending_views.requested(plan, pool, [Request(arm=0, group=0, weights=weights)], samples)
    [equal] = pending_views.requested(
        plan, pool, [Request(arm=0, group=0, weights=dict.fromkeys(weights, 2.0))], samples
    )
    assert equal.weights is None


def test_a_networks_views_are_of_all_variables() -> None:
    plan = runs.single(chains=1)
    [digest] = plan.chains()
    pool = filled([digest], variables=("theta", "anchor"))
    assert [m.variable for _, m in pending_views.members(plan, pool, {digest}, ())[0, 0]] == ["theta", "anchor"] * 2


@pytest.mark.parametrize("request_", [Request(arm=0, group=1), Request(arm=2, group=0), Request(arm=-1, group=0)])
def test_an_arm_or_group_that_is_not_there_is_one_line(request_: Request) -> None:
    plan = comparison(Mixture25(), chains=2, arms=(1, 2))
    pool = filled(list(plan.chains()))
    with refused("views", f"arm {request_.arm}", f"group {request_.group}"):
        pending_views.requested(plan, pool, [request_], pending_views.members(plan, pool, plan.chains(), ()))


def test_views_are_found_by_their_chains_and_leave_with_them() -> None:
    plan = comparison(Mixture25(), chains=3, arms=(1, 2, 3))
    a, b, c = plan.chains()
    first, both, three = all_of = pending_views.every(plan)
    views = pending_views.Views(all_of)
    assert views.of([a]) == [first, both, three] and views.of([c]) == [three] and views.of([b, c]) == [both, three]
    assert views.of(["unknown"]) == [] and not views.done
    for view in views:
        views.settle(view, True)
    assert views.done and all(view.done for view in all_of)
    views.settle(both, False)
    assert not views.done and not both.done
    views.remove(both)
    assert views.done and both not in views and views.of([b]) == [three]
    assert views.without(a) == [three] and three.chains == [b, c], "the view of that chain alone is no more"
    assert list(views) == [three] and first not in views and views.of([a]) == []
    assert views.without(a) == []


# Selections from the pool


CHAINS = ("b", "a", "c")


def record(digest: str, index: int, variable: str = "theta") -> SampleRecord:
    return SampleRecord(
        meta=meta(digest, index, variable=variable, cycle=index // 2), file=f"{digest}{index}", sha256=""
    )


@pytest.fixture
def full_pool() -> SamplePool:
    """Three chains of four samples, arrived chain by chain and backwards."""
    full_pool = SamplePool()
    for digest in CHAINS:
        for index in reversed(range(4)):
            full_pool.add(record(digest, index), ref=f"ref-{digest}{index}")
    return full_pool


def files(full_pool: SamplePool, *args: object, **kwargs: object) -> list[str]:
    return [p.record.file for p in full_pool.select(*args, **kwargs)]  # type: ignore[arg-type]


def test_chains_contribute_in_turn_in_the_arms_order_and_a_variable_narrows_the_selection(
    full_pool: SamplePool,
) -> None:
    assert files(full_pool, ["b", "a"]) == ["b0", "a0", "b1", "a1", "b2", "a2", "b3", "a3"]
    assert files(full_pool, ["a", "b"])[:3] == ["a0", "b0", "a1"]
    assert len(files(full_pool)) == len(full_pool) == 12
    full_pool.add(record("b", 1), ref=None)
    (again,) = [p for p in full_pool.select(["b"]) if p.record.meta.index == 1]
    assert again.ref is None and len(full_pool) == 12, "a sample that is drawn again replaces the one before"
    full_pool.add(record("b", 1, variable="anchor"), ref=None)
    assert files(full_pool, ["b"], variable="theta") == ["b0", "b1", "b2", "b3"]
    assert files(full_pool, variable="anchor") == ["b1"]
    assert files(full_pool, ["unknown"]) == []
