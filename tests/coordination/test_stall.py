"""The stall policy: bounds from the own pace, never in the way of work that is merely slow."""

from __future__ import annotations

import pytest

from raychains.coordination.failure import ChainPace, EvaluatorPace, Pace, Stall


def stepping(seconds: float, steps: int = 10, *, loading: float = 5.0, failures: int = 0) -> ChainPace:
    """A chain that loaded, then made steps of so many seconds."""
    pace = ChainPace(failures=failures)
    pace.passed(loading, asked=False)
    pace.answered(0)
    for made in range(1, steps):
        pace.passed(seconds, asked=False)
        assert made == 1 or pace.stall() is None
        pace.answered(made)
    return pace


def silence(pace: ChainPace, seconds: float, *, asked: bool = True) -> Stall | None:
    pace.passed(seconds, asked=asked)
    return pace.stall()


def test_a_fast_chain_is_named_after_30_s_and_given_up_after_90() -> None:
    pace = stepping(0.01)
    assert silence(pace, 29.9) is None
    stall = silence(pace, 0.2)
    assert stall == Stall(pytest.approx(30.1), "its worker does not answer")
    assert not silence(pace, 59.0).given_up
    assert silence(pace, 1.0).given_up


def test_a_worker_that_answers_but_makes_no_step_is_given_up_too() -> None:
    pace = stepping(0.01)
    for second in range(1, 95):
        pace.passed(1.0, asked=False)
        pace.answered(9)
        stall = pace.stall()
        assert (stall is not None) == (second > 30) and (stall is not None and stall.given_up) == (second > 90), second
    assert stall is not None and stall.reason == "it makes no step"


def test_steps_of_a_minute_are_no_stall_before_twenty_of_them() -> None:
    pace = stepping(60.0)
    assert silence(pace, 1199.0, asked=False) is None
    assert not silence(pace, 10.0, asked=False).given_up
    assert silence(pace, 2400.0, asked=False).given_up


def test_a_slow_chain_whose_process_stops_is_named_by_the_pace_of_its_answers() -> None:
    pace = stepping(60.0)
    assert silence(pace, 31.0).reason == "its worker does not answer"
    assert silence(pace, 60.0).given_up


@pytest.mark.parametrize("asked", [False, True])
def test_loading_may_take_half_an_hour_and_twice_as_long_at_the_next_attempt(asked: bool) -> None:
    for failures in (0, 1):
        pace = ChainPace(failures=failures)
        assert silence(pace, 299.0 * 2**failures, asked=asked) is None
        assert not silence(pace, 1500.0 * 2**failures, asked=asked).given_up
        assert silence(pace, 2.0 * 2**failures, asked=asked).given_up


def test_what_took_long_at_first_may_take_twice_as_long_again() -> None:
    pace = stepping(0.01, loading=600.0)
    assert not silence(pace, 1199.0, asked=False).given_up
    assert silence(pace, 2.0, asked=False).given_up


def test_each_retry_without_progress_doubles_the_patience() -> None:
    pace = stepping(0.01, failures=2)
    assert silence(pace, 119.0) is None
    assert not silence(pace, 240.0).given_up
    assert silence(pace, 2.0).given_up


def test_a_chain_whose_storage_does_not_answer_is_named_and_left_alone() -> None:
    pace = stepping(0.01)
    pace.passed(1.0, asked=False)
    pace.answered(9, held="the storage has not taken its last checkpoint")
    stall = silence(pace, 10_000.0, asked=False)
    assert stall is not None and not stall.given_up and stall.reason.endswith("has not taken its last checkpoint")


def test_storage_that_is_known_to_be_away_is_no_stall() -> None:
    pace = stepping(0.01)
    for _ in range(100):
        pace.passed(10.0, asked=False)
        pace.answered(9, waiting=True)
        assert pace.stall() is None


def test_a_stall_that_ended_by_itself_does_not_set_the_pace() -> None:
    pace = Pace()
    pace.heard(2)
    pace.silent = 80.0
    pace.heard()
    assert pace.limit == 80.0, "not 20 times as much"


def test_an_evaluator_is_given_up_by_the_pace_of_its_jobs_and_before_that_by_its_process() -> None:
    pace, slowest = EvaluatorPace(), dict[str, float]()
    pace.passed(301.0, asked=False)
    assert pace.stall(slowest, "a job", 0) == Stall(301.0, "a job is not answered"), "10 times 30 s"
    pace.passed(5000.0, asked=False)
    assert pace.stall(slowest, "a job", 0) == Stall(5301.0, "a job is not answered"), "libraries are loaded"
    assert pace.stall(slowest, "a job", 5) is None, "each loss doubles the limit: 9600 s"
    pace.did(slowest, "a job", 0)
    pace.passed(2.0, asked=False)
    pace.did(slowest, "a job", 0)
    assert slowest == {"a job": 2.0}
    pace.passed(41.0, asked=True)
    assert pace.stall(slowest, "a job", 0) == Stall(41.0, "a job is not answered"), "20 times 2 s"
    assert pace.stall(slowest, "another", 0) is None, "whose pace is not known"
    pace.passed(80.0, asked=True)
    assert pace.stall(slowest, "a job", 0) == Stall(121.0, "a job is not answered", given_up=True), "3 times as long"
    pace.passed(1700.0, asked=True)
    stall = pace.stall(slowest, "another", 0)
    assert stall == Stall(1821.0, "another is not answered, nor is its worker", given_up=True), "60 times 30 s"
    assert stall.loss == "another is not answered, nor is its worker for 1821 s"
