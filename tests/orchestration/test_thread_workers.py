"""Workers in this process: calls, what they raise, and the end of an actor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

from raychains.orchestration.cluster.thread_workers import ThreadWorkers, settle
from raychains.orchestration.cluster.workers import ActorOptions, CallFailed


class Counter:
    """An actor that waits, fails, and counts."""

    concurrency_groups: ClassVar = {"control": 1}

    def __init__(self, start: int) -> None:
        if start < 0:
            raise ValueError("start is below 0")
        self.count, self.go, self.halted = start, threading.Event(), False

    def add(self, other: int) -> int:
        self.count += other
        return self.count

    def pair(self) -> tuple[int, str]:
        return self.count, "two"

    def fail(self) -> None:
        raise KeyError("no such thing")

    def hold(self) -> str:
        return "released" if self.go.wait(30) else "late"

    def halt(self) -> None:
        self.halted = True
        self.go.set()


@pytest.fixture
def workers() -> Iterator[ThreadWorkers]:
    made = ThreadWorkers(cpus=3)
    yield made
    made.close()


def started(workers: ThreadWorkers, start: int = 1) -> Any:
    return workers.start(Counter, "run", ActorOptions(name="counter"), start)


def answered(workers: ThreadWorkers, call: Any) -> Any:
    assert workers.wait([call], 30) == [call]
    return workers.result(call)


def test_calls_run_in_order_and_take_results_of_others(workers: ThreadWorkers) -> None:
    actor = started(workers)
    first = workers.call(actor, "add", 2)
    second = workers.call(actor, "add", first)
    assert answered(workers, second) == 6 and workers.result(first) == 3
    number, text = workers.call_parts(2, actor, "pair")
    assert (answered(workers, number), answered(workers, text)) == (6, "two")


def test_a_group_of_methods_answers_while_another_waits(workers: ThreadWorkers) -> None:
    actor = started(workers)
    held = workers.call(actor, "hold")
    assert answered(workers, workers.call(actor, "add", 1, group="control")) == 2
    assert workers.wait([held], 0.0) == []
    workers.call(actor, "halt", group="control")
    assert answered(workers, held) == "released"


def test_what_a_method_raises_is_a_failed_call_and_the_actor_lives(workers: ThreadWorkers) -> None:
    actor = started(workers)
    for call in (workers.call(actor, "fail"), workers.call_parts(2, actor, "fail")[1]):
        with pytest.raises(CallFailed, match="no such thing") as caught:
            answered(workers, call)
        assert caught.value.raised and not caught.value.died and isinstance(caught.value.cause, KeyError)
    assert answered(workers, workers.call(actor, "add", 1)) == 2


def test_a_killed_actor_fails_its_calls_and_stops_what_it_does(workers: ThreadWorkers) -> None:
    actor = started(workers)
    held = workers.call(actor, "hold")
    workers.kill(actor)
    for call in (held, workers.call(actor, "add", 1)):
        with pytest.raises(CallFailed) as caught:
            answered(workers, call)
        assert caught.value.died
    assert actor.made.result().halted


def test_an_actor_that_cannot_be_made_died(workers: ThreadWorkers) -> None:
    with pytest.raises(CallFailed, match="below 0") as caught:
        answered(workers, workers.call(started(workers, -1), "add", 1))
    assert caught.value.died


def test_the_cluster_is_this_process(workers: ThreadWorkers) -> None:
    (node,) = workers.nodes()
    assert (node.cpus, node.gpus) == (3.0, 0.0) and workers.free() == [node]
    assert workers.in_process and workers.started_here and not workers.grows()
    assert not workers.unplaced([]) and not list(workers.draining([])) and workers.put(7) == 7


class Late(Future[int]):
    """An answer that another thread gives between a look at it and its own."""

    def done(self) -> bool:
        return False


def test_an_answer_of_two_threads_is_that_of_the_first() -> None:
    answer = Late()
    settle(answer, 1)
    settle(answer, error=CallFailed("the actor was killed", died=True))
    assert answer.result(0) == 1


def test_a_call_of_an_actor_whose_threads_end_fails_as_that_of_a_dead_one(workers: ThreadWorkers) -> None:
    actor = started(workers)
    for threads in actor._threads.values():
        threads.shutdown()
    with pytest.raises(CallFailed) as raised:
        answered(workers, workers.call(actor, "add", 1))
    assert raised.value.died
