"""The estimate of what is left: exact for steady chains, silent before a measurement, unmoved by start-up."""

from __future__ import annotations

import pytest

from raychains.planning.eta import Speed
from tests.planning.plans import chain

SPECS = {f"c{i}": chain(i) for i in range(4)}  # 100 steps each


def look(speed: Speed, name: str, *at: tuple[int, float], began: int = 0) -> Speed:
    """A chain begins at a step and is then at steps after so many seconds."""
    speed.began(name, began)
    for step, seconds in at:
        speed.at(name, step, seconds)
    return speed


def test_nothing_is_said_before_two_looks_at_a_chain() -> None:
    speed = Speed(SPECS, {})
    assert speed.remaining(2) is None
    look(speed, "c0", (0, 1.0), (10, 9.0))
    assert speed.remaining(2) is None
    speed.at("c0", 20, 11.0)
    assert speed.remaining(2) is not None


def test_a_steady_chain_gives_the_exact_rest_and_start_up_does_not_count() -> None:
    speed = look(Speed(SPECS, {}), "c0", (10, 50.0), (60, 60.0))  # 0.2 s a step; 48 s were imports
    assert speed.remaining(1) == pytest.approx(0.2 * (40 + 300))
    assert speed.remaining(2) == pytest.approx(0.2 * (40 + 300) / 2)


def test_the_longest_chain_bounds_the_rest() -> None:
    speed = look(Speed(SPECS, {}), "c0", (50, 5.0), (90, 9.0))
    assert speed.remaining(1000) == pytest.approx(0.1 * 100)


def test_chains_of_different_speed_count_by_their_steps() -> None:
    speed = Speed({k: SPECS[k] for k in ("c0", "c1")}, {})
    for name, per_step in (("c0", 0.1), ("c1", 0.3)):
        look(speed, name, (10, 1.0), (50, 1.0 + 40 * per_step))
    assert speed.remaining(1) == pytest.approx(0.2 * 100)


def test_finished_chains_are_no_work() -> None:
    speed = look(Speed(SPECS, {"c1": 3.0, "c2": 4.0, "c3": 5.0}), "c0", (10, 1.0), (20, 2.0))
    assert speed.remaining(1) == pytest.approx(8.0)


def test_a_resumed_chain_has_only_its_rest_left_and_is_measured_anew() -> None:
    speed = look(Speed({"c0": SPECS["c0"]}, {}), "c0", (85, 700.0), (90, 701.0), began=80)
    assert speed.remaining(1) == pytest.approx(0.2 * 10)
    look(speed, "c0", (85, 900.0), began=80)
    assert speed.remaining(1) == pytest.approx(0.2 * 15), "the old speed until there is a new one"
    speed.at("c0", 95, 910.0)
    assert speed.remaining(1) == pytest.approx(1.0 * 5)


def test_an_ended_chain_leaves_nothing_even_if_its_status_comes_late() -> None:
    speed = look(Speed(SPECS, {}), "c0", (10, 1.0), (20, 2.0))
    speed.ended("c0")
    speed.at("c0", 30, 3.0)
    assert speed.remaining(1) == pytest.approx(0.1 * 300)


def test_a_chains_own_speed_is_that_since_it_began() -> None:
    speed = Speed(SPECS, {})
    assert speed.steps_per_second("c0") is None
    look(speed, "c0", (10, 50.0))
    assert speed.steps_per_second("c0") is None
    speed.at("c0", 60, 60.0)
    assert speed.steps_per_second("c0") == pytest.approx(5.0)
    speed.ended("c0")
    assert speed.steps_per_second("c0") is None
