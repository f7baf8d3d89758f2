"""Trials by their heartbeats, on heartbeats that the tests write; `tests/sweeps/test_disturbed.py` stops a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raychains.coordination.failure import Stall
from raychains.orchestration.chains.messages import AttemptStatus
from raychains.orchestration.cluster import ray_private
from raychains.orchestration.tune.trial_heartbeats import Heartbeat, TrialProcess, TrialWatch


class Cluster:
    """What Ray would answer: one actor, which may wait for a node."""

    def __init__(self) -> None:
        self.actor, self.waits = "a", False
        self.number, self.beat = 0, b""
        self.killed: list[str] = []

    def say(self, step: int | None, *, digest: str = "d", waiting: str | None = None, held: str | None = None) -> None:
        self.number += 1
        status = AttemptStatus(digest=digest, made=step, held=held, waiting=waiting)
        self.beat = Heartbeat(self.number, status).to_json()

    def heartbeats(self, kind: str) -> tuple[dict[str, bool], dict[str, bytes]]:
        assert kind == "digits"
        return {self.actor: self.waits}, {self.actor: self.beat} if self.beat else {}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster()
    monkeypatch.setattr(ray_private, "heartbeats", cluster.heartbeats)
    monkeypatch.setattr(ray_private, "kill_actor", cluster.killed.append)
    return cluster


def after(watch: TrialWatch, seconds: float) -> Stall | None:
    """How the trial stalls after so many seconds."""
    found: list[TrialProcess] = []
    while seconds > 0:
        found = list(watch.look(1.0))
        seconds -= 1
    [process] = found
    return process.pace.stall()


def running(cluster: Cluster, watch: TrialWatch) -> None:
    """Let the trial make 30 steps in three seconds."""
    for step in (0, 10, 20, 30):
        cluster.say(step)
        assert after(watch, 1) is None


def test_a_heartbeat_is_read_as_it_was_written() -> None:
    status = AttemptStatus(digest="d", step=7, made=9, held="x", waiting="y")
    beat = Heartbeat(3, status)
    assert Heartbeat.from_json(beat.to_json()) == beat


def test_a_trial_that_does_not_come_up_is_named_after_ten_timeouts_and_given_up_after_sixty(cluster: Cluster) -> None:
    watch = TrialWatch("digits", timeout=2.0)
    assert after(watch, 20) is None
    stall = after(watch, 1)
    assert stall is not None and not stall.given_up
    late = after(watch, 100)
    assert late is not None and late.given_up


def test_one_that_waits_for_a_node_is_not_late(cluster: Cluster) -> None:
    cluster.waits = True
    watch = TrialWatch("digits", timeout=2.0)
    assert after(watch, 200) is None


def test_a_stopped_one_does_not_answer_and_each_time_it_is_given_up_doubles_its_times(cluster: Cluster) -> None:
    watch = TrialWatch("digits", timeout=2.0)
    running(cluster, watch)
    assert after(watch, 2) is None
    assert after(watch, 19) == Stall(21.0, "its worker does not answer"), "a heartbeat a second: 20 s are allowed"
    assert after(watch, 40) == Stall(61.0, "its worker does not answer", given_up=True)
    process = watch.of("d")
    assert process is not None
    watch.give_up(process)
    assert cluster.killed == ["a"] and list(watch.look(1.0)) == [], "its death is on its way"
    cluster.actor, cluster.beat = "b", b""  # a new process, whose chain is known later
    assert after(watch, 15) is None
    running(cluster, watch)
    assert after(watch, 4) is None, "twice 2 s without a step"
    assert after(watch, 37) == Stall(41.0, "its worker does not answer"), "twice 20 s"


def test_a_chain_that_makes_no_step_is_told_from_a_trial_that_waits_or_evaluates(cluster: Cluster) -> None:
    watch = TrialWatch("digits", timeout=2.0)
    running(cluster, watch)
    for _ in range(30):
        cluster.say(30, waiting="for Tune")
        assert after(watch, 1) is None
    stalls = []
    for _ in range(7):
        cluster.say(30)
        stalls.append(after(watch, 1))
    assert stalls[-1] == Stall(pytest.approx(6.0, abs=1.0), "it makes no step", given_up=True)


def test_the_next_chain_of_a_process_has_a_pace_of_its_own(cluster: Cluster) -> None:
    watch = TrialWatch("digits", timeout=2.0)
    running(cluster, watch)
    for _ in range(15):
        cluster.say(None, digest="e")
        assert after(watch, 1) is None, "it builds its task"
    assert watch.of("d") is None and watch.of("e") is not None
