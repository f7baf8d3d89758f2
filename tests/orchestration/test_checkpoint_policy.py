"""When checkpoints are due: at the ends of cycles as the schedule defines them, and by time."""

from __future__ import annotations

import pytest

from raychains.orchestration.chains.checkpoint_policy import APART, CheckpointPolicy, cycle_start
from raychains.schedules import Constant, Cyclical, Schedule

SCHEDULES = [
    Cyclical(lr=0.1, steps=12, cycles=3, exploration=0.5),
    Cyclical(lr=0.1, steps=11, cycles=3, exploration=0.0),
    Cyclical(lr=0.1, steps=7, cycles=7, exploration=0.0),
    Cyclical(lr=0.1, steps=1000, cycles=30, exploration=0.2),
    Cyclical(lr=0.1, steps=5, cycles=1, exploration=0.2),
    Constant(lr=0.1, steps=9),
]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("begin", [0, 1, 4])
def test_cycle_ends_are_where_the_next_step_belongs_to_another_cycle(schedule: Schedule, begin: int) -> None:
    cadence = CheckpointPolicy(schedule, 1e9, every_cycle=True)
    found = [k for k in range(begin, schedule.steps + 1) if cadence.at_cycle_end(k)]
    last = schedule.steps
    expected = [k for k in range(max(1, begin), last) if schedule.at(k).cycle != schedule.at(k + 1).cycle]
    assert found == expected


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_cycles_start_is_the_end_of_the_one_before(schedule: Schedule) -> None:
    ends = [0, *(k for k in range(1, schedule.steps) if schedule.at(k).cycle != schedule.at(k + 1).cycle)]
    for step in range(1, schedule.steps + 1):
        assert cycle_start(schedule, step) == max(end for end in ends if end < step)


def test_a_checkpoint_is_due_by_time_once_until_it_is_written() -> None:
    clock = Clock()
    cadence = CheckpointPolicy(Constant(lr=0.1, steps=100), 60.0, every_cycle=False, clock=clock)
    assert not cadence.due(1)
    clock.now = 60.5
    assert cadence.due(2) and cadence.due(3) and not cadence.must(3), "it may be put off until the writer is free"
    cadence.written(3)
    assert not cadence.due(3) and not cadence.due(4)
    clock.now = 121.0
    assert cadence.due(5)


def test_every_cycles_end_is_due_where_restarts_need_it_and_else_those_that_lie_apart() -> None:
    schedule, clock = Cyclical(lr=0.1, steps=12, cycles=3, exploration=0.5), Clock()
    always, apart = (CheckpointPolicy(schedule, 1e9, every_cycle=e, clock=clock) for e in (True, False))
    due = []
    for step in range(13):
        clock.now = 0.2 * step
        due.append((always.due(step), apart.due(step)))
        assert always.must(step) == due[-1][0] and not apart.must(step)
        if any(due[-1]):
            always.written(step)
            apart.written(step) if due[-1][1] else None
    assert [k for k, (d, _) in enumerate(due) if d] == [4, 8], "the chain's end needs none"
    assert 0.2 * 4 < APART < 0.2 * 8 and [k for k, (_, d) in enumerate(due) if d] == [8]
