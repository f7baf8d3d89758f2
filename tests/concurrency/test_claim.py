"""Who owns a run, in simulated worlds: skewed clocks, late listings, drivers that pause, die and come back."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raychains.orchestration.lease import FIRST_RENEWALS
from raychains.store.leases import LATE, RENEW_EVERY, STALE_AFTER, Claim, Entry
from tests.concurrency.entries import Delayed, World, about, driver_id

DT = 0.5
START = World().now
MOST_DELAY = 8.0
NEVER = 1e9


@dataclass
class Simulated:
    """One driver as `Lease` drives its claim; ``pauses`` and ``dies`` are what happens to it."""

    n: int
    starts: float
    skew: float
    local: bool
    patient: bool
    pause: tuple[float, float]
    dies: float
    world: World
    state: str = "unborn"
    came: float = NEVER
    due: float = 0.0
    waits: object = None
    heard: dict[str, int] = field(default_factory=dict)

    def born(self, gone: object) -> None:
        self.came = self.world.now
        place = "here" if self.local else f"host{self.n}"
        leases = Delayed(self.world, driver_id(self.n))
        self.claim = Claim(leases, about(self.n, place=place), gone, lambda: self.world.now + self.skew)
        self.waits = itertools.chain(FIRST_RENEWALS, itertools.repeat(RENEW_EVERY))

    def asleep(self, t: float) -> bool:
        at, length = self.pause
        return at <= t < at + length

    def step(self, t: float, gone: object) -> None:
        if self.state in ("stopped", "dead") or t < self.starts or self.asleep(t):
            return
        if t >= self.dies:
            self.state = "dead"  # its entry stays
        elif self.state == "unborn":
            self.born(gone)
            self._settle(t, self.claim.renew())
        elif self.state == "waits":
            self._settle(t, self.claim.renew() if t >= self.due else self.claim.senior())
        elif t >= self.due:
            self.due = t + next(self.waits)  # type: ignore[call-overload]
            if self.claim.renew() is not None:
                self._stop()

    def _settle(self, t: float, rival: Entry | None) -> None:
        if rival is None:
            self.state, self.due = "owns", t + next(self.waits)  # type: ignore[call-overload]
        elif not self.patient or rival.renewals != self.heard.setdefault(rival.driver_id, rival.renewals):
            self._stop()
        else:
            if self.state == "unborn" or t >= self.due:
                self.due = t + RENEW_EVERY
            self.state = "waits"

    def _stop(self) -> None:
        self.state = "stopped"
        self.claim.withdraw()


def run(world: World, drivers: list[Simulated], until: float) -> float:
    """Play; the longest time that two awake drivers owned the run at once."""

    def gone_for(reader: Simulated) -> object:
        here = {d.n + 1: d for d in drivers if d.local}
        return lambda e: reader.local and e.place == "here" and here[e.pid].state == "dead"

    longest, together = 0.0, 0.0
    while (t := world.now - START) < until:
        for d in world.chance.sample(drivers, len(drivers)):
            d.step(t, gone_for(d))
        owners = [d for d in drivers if d.state == "owns" and not d.asleep(t) and t < d.dies]
        together = together + DT if len(owners) > 1 else 0.0
        longest = max(longest, together)
        world.now += DT
    return longest


SKEWS = st.floats(-1e7, 1e7)
TIMES = st.floats(0, 40)


def simulated(draw: st.DrawFn, world: World, n: int, *, accidents: bool) -> Simulated:
    pause, dies = (NEVER, 0.0), NEVER
    if accidents and draw(st.booleans()):
        pause = (draw(st.floats(0, 150)), draw(st.floats(0, 150)))
    if accidents and draw(st.booleans()):
        dies = draw(st.floats(0, 200))
    local, patient = draw(st.booleans()), draw(st.booleans())
    return Simulated(
        n, draw(TIMES if not accidents else st.floats(0, 200)), draw(SKEWS), local, patient, pause, dies, world
    )


@st.composite
def worlds(draw: st.DrawFn, *, accidents: bool) -> tuple[World, list[Simulated]]:
    world = World(draw(st.floats(0, MOST_DELAY)), random.Random(draw(st.integers(0, 2**32))), tick=1e-4)
    numbers = draw(st.permutations(range(draw(st.integers(2, 4)))))
    return world, [simulated(draw, world, n, accidents=accidents) for n in numbers]


CALM = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@CALM
@given(worlds(accidents=False))
def test_without_accidents_one_driver_is_left_and_two_never_run_longer_than_a_renewal_and_a_late_listing(
    made: tuple[World, list[Simulated]],
) -> None:
    world, drivers = made
    longest = run(world, drivers, 120)
    assert [d.state for d in drivers].count("owns") == 1 and {d.state for d in drivers} <= {"owns", "stopped"}
    assert longest <= RENEW_EVERY + world.delay + 2 * DT


@CALM
@given(worlds(accidents=False))
def test_without_late_listings_the_first_is_the_one_that_is_left(made: tuple[World, list[Simulated]]) -> None:
    world, drivers = made
    world.delay = 0.0
    longest = run(world, drivers, 120)
    assert longest == 0
    (left,) = [d for d in drivers if d.state == "owns"]
    assert left.came == min(d.came for d in drivers)


@CALM
@given(worlds(accidents=True))
def test_pauses_and_deaths_never_leave_two_owners_for_longer_and_a_newcomer_gets_the_run(
    made: tuple[World, list[Simulated]],
) -> None:
    world, drivers = made
    longest = run(world, drivers, 400)
    assert longest <= RENEW_EVERY + world.delay + 2 * DT
    owning = [d for d in drivers if d.state == "owns" and d.dies > 400]
    assert len(owning) <= 1
    late = Simulated(9, 400.0, 3.0, False, True, (NEVER, 0.0), NEVER, world)
    run(world, [*drivers, late], 400 + STALE_AFTER + 3 * MOST_DELAY)
    assert late.state == ("stopped" if owning else "owns")


# Single stories


def claims(world: World, *numbers: int) -> list[Claim]:
    return [Claim(Delayed(world, driver_id(n)), about(n), lambda e: False, lambda: world.now) for n in numbers]


def test_an_equal_time_is_decided_by_the_id() -> None:
    world = World()
    second, first = claims(world, 2, 1)
    assert second.renew() is None
    assert first.renew() is None  # the same modification time and the smaller id
    rival = second.renew()
    assert rival is not None and rival.driver_id == driver_id(1)


def test_who_slept_too_long_finds_its_successor_and_its_successor_does_not_mind() -> None:
    world = World()
    first, second = claims(world, 1, 2)
    assert first.renew() is None
    world.now += STALE_AFTER + 1
    assert second.renew() is None
    assert (rival := first.renew()) is not None and rival.driver_id == driver_id(2)
    assert second.renew() is None


def test_an_upload_that_lands_after_the_successor_came_does_not_stop_the_successor() -> None:
    world = World()
    first, second = claims(world, 1, 2)
    assert first.renew() is None
    world.now += RENEW_EVERY
    taken_over = []

    def slow() -> None:  # the storage of the first is away for long
        world.now += STALE_AFTER + 1
        taken_over.append(second.renew())

    leases: Delayed = first._leases  # type: ignore[assignment]
    leases.publishing = slow
    rival = first.renew()
    assert taken_over == [None] and rival is not None and rival.driver_id == driver_id(2)
    assert second.renew() is None  # although an entry older than its own is there again


def test_who_was_late_but_not_replaced_goes_on_behind_those_who_came_since() -> None:
    world = World()
    first, second = claims(world, 1, 2)
    assert first.renew() is None
    world.now += LATE + 5
    assert first.renew() is None  # nobody had come
    world.now += 1
    rival = second.renew()
    assert rival is not None and rival.driver_id == driver_id(1) and rival.since == int((world.now - 1) * 1e9)


def test_entries_of_dead_drivers_of_any_run_are_removed_and_living_ones_stay() -> None:
    world = World()
    dead, other, mine = Delayed(world, driver_id(1)), Delayed(world, driver_id(2)), claims(world, 3)[0]
    dead.publish({**about(1, run="elsewhere"), "since": None})
    world.now += STALE_AFTER + 1
    other.publish({**about(2, run="elsewhere"), "since": None})
    assert mine.renew() is None
    assert {e.driver_id for e in other.entries()} == {driver_id(2), driver_id(3)}
    assert set(mine.others) == {driver_id(2)}
    mine.withdraw()
    assert {e.driver_id for e in other.entries()} == {driver_id(2)}


@pytest.mark.parametrize("seed", [1, 8, 10])
def test_a_driver_that_wakes_and_queues_again_is_no_straggler(seed: int) -> None:
    """It wakes just before another one comes, which sees its old entry as a dead driver's and its new one late."""
    world = World(2.0, random.Random(seed), tick=1e-4)
    lives = [(0.0, (1.0, 58.0)), (0.0, (NEVER, 0.0)), (60.0, (NEVER, 0.0))]
    drivers = [Simulated(n, start, 0.0, False, False, pause, NEVER, world) for n, (start, pause) in enumerate(lives)]
    assert run(world, drivers, 400) <= RENEW_EVERY + world.delay + 2 * DT
    assert [d.state for d in drivers].count("owns") == 1
