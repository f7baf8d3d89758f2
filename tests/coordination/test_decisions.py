"""Single decisions of the coordinator, one after another."""

from __future__ import annotations

import pytest

from raychains.coordination import coordinator as c
from raychains.coordination.coordinator import Coordinator
from raychains.coordination.failure import Policy
from tests.coordination.worlds import Claiming


def machine(*digests: str, max_failures: int = 2) -> Coordinator:
    return Claiming(dict.fromkeys(digests, 0), max_failures)


def test_chains_start_in_order_and_a_slot_without_work_is_released() -> None:
    m = machine("a", "b")
    assert m.handle(c.SlotReady(7)) == [c.Start(7, "a", 1)]
    assert m.handle(c.SlotReady(8)) == [c.Start(8, "b", 1)]
    assert m.handle(c.SlotReady(9)) == [c.Release(9)]
    assert not m.over
    assert m.handle(c.Ended("a", 1, "finished")) == [c.Release(7)]
    assert m.handle(c.Ended("b", 1, "finished")) == [c.Release(8)]
    assert m.over and m.with_status("finished") == ["a", "b"]


def test_attempts_continue_from_the_last_that_ever_began() -> None:
    assert Claiming({"a": 41}).handle(c.SlotReady(0)) == [c.Start(0, "a", 42)]


def test_a_chain_is_given_up_after_one_loss_more_than_it_survives() -> None:
    m = machine("a", max_failures=2)
    for slot in range(2):
        assert m.handle(c.SlotReady(slot)) == [c.Start(slot, "a", slot + 1)]
        assert m.handle(c.SlotLost(slot, "gone")) == [] and m.with_status("waiting") == ["a"]
    m.handle(c.SlotReady(2))
    [failed] = m.handle(c.SlotLost(2, "gone"))
    assert failed == c.Fail("a", "gone (3 losses in a row without progress)")
    assert m.over and m.with_status("failed") == ["a"]


@pytest.mark.parametrize("progress", ["sample", "checkpoint"])
def test_a_chain_that_progresses_between_losses_is_never_given_up(progress: str) -> None:
    """Hours may lie between two samples, so that a checkpoint further on counts as well."""
    m = machine("a", max_failures=1)
    for n in range(20):
        [start] = m.handle(c.SlotReady(n))
        assert isinstance(start, c.Start)
        if progress == "sample":
            assert m.handle(c.Began("a", start.attempt, n, 0)) == []
            assert m.handle(c.Sampled("a", start.attempt, n)) == [c.Accept("a", n)]
        else:
            assert m.handle(c.Began("a", start.attempt, 0, 100 * n)) == []
        assert m.handle(c.SlotLost(n, "gone")) == []


def test_the_same_checkpoint_again_and_samples_drawn_again_are_no_progress() -> None:
    m = machine("a", max_failures=2)
    m.handle(c.SlotReady(0))
    m.handle(c.Began("a", 1, 0, 100))
    m.handle(c.Sampled("a", 1, 0))
    m.handle(c.SlotLost(0, "gone"))
    for n in (1, 2):
        m.handle(c.SlotReady(n))
        assert m.handle(c.Began("a", n + 1, 0, 100)) == []
        assert m.handle(c.Sampled("a", n + 1, 0)) == []
        actions = m.handle(c.SlotLost(n, "gone"))
    assert [type(a) for a in actions] == [c.Fail]


def test_an_error_that_the_chain_raised_is_not_tried_again() -> None:
    m = machine("a", "b")
    m.handle(c.SlotReady(0))
    assert m.handle(c.Ended("a", 1, "failed", "lr too large")) == [c.Fail("a", "lr too large"), c.Start(0, "b", 1)]


def test_samples_behind_a_checkpoint_that_the_pool_lacks_are_recovered_once() -> None:
    m = Claiming({"a": 4})
    m.handle(c.SlotReady(0))
    assert m.handle(c.Began("a", 5, 3, 30)) == [c.Recover("a", 3)]
    assert m.handle(c.Sampled("a", 5, 3)) == [c.Accept("a", 3)]
    m.handle(c.SlotLost(0, "gone"))
    m.handle(c.SlotReady(1))
    assert m.handle(c.Began("a", 6, 3, 30)) == []
    assert m.handle(c.Sampled("a", 6, 3)) == [], "index 3 is in the pool"
    assert m.handle(c.Sampled("a", 6, 4)) == [c.Accept("a", 4)]


def test_a_chain_that_is_not_exact_takes_another_path_from_its_checkpoint() -> None:
    m = Claiming({"a": 0, "b": 0}, 2, inexact={"a"})
    m.handle(c.SlotReady(0))
    m.handle(c.Began("a", 1, 0))
    assert [m.handle(c.Sampled("a", 1, n)) for n in range(3)] == [[c.Accept("a", n)] for n in range(3)]
    m.handle(c.SlotLost(0, "gone"))
    m.handle(c.SlotReady(1))
    assert m.handle(c.Began("a", 2, 1, 10)) == [c.Forget("a", 1)]
    assert m.handle(c.Sampled("a", 2, 1)) == [c.Accept("a", 1)]
    for n in (2, 3):  # what is drawn again is no progress: the third loss in a row gives it up
        m.handle(c.SlotLost(n - 1, "gone"))
        m.handle(c.SlotReady(n))
        assert m.handle(c.Began("a", n + 1, 1, 10)) == [c.Forget("a", 1)]
        assert m.handle(c.Sampled("a", n + 1, 1)) == [c.Accept("a", 1)]
        assert m.with_status("failed") == []
    m.handle(c.SlotLost(3, "gone"))
    assert m.with_status("failed") == ["a"]


def test_a_chain_that_is_not_exact_progresses_behind_what_it_ever_reached() -> None:
    m = Claiming({"a": 0}, 1, inexact={"a"})
    for n in range(4):
        m.handle(c.SlotReady(n))
        m.handle(c.Began("a", n + 1, n))
        for position in range(n, n + 2):
            assert m.handle(c.Sampled("a", n + 1, position)) == [c.Accept("a", position)]
        m.handle(c.SlotLost(n, "gone"))
    assert m.with_status("waiting") == ["a"]


def test_a_stopped_coordinator_stops_what_runs_and_keeps_what_waits() -> None:
    m = machine("a", "b")
    m.handle(c.SlotReady(0))
    assert m.handle(c.SuspendAsked()) == [c.Suspend(0, "a")]
    assert not m.over
    assert m.handle(c.SlotReady(1)) == [c.Release(1)]
    assert m.handle(c.Ended("a", 1, "suspended")) == [c.Release(0)]
    assert m.over and m.with_status("suspended") == ["a"] and m.with_status("waiting") == ["b"]


def test_a_worker_that_dies_before_it_was_ready_changes_nothing() -> None:
    m = machine("a")
    assert m.handle(c.SlotLost(5, "no such package")) == []
    assert list(m.queue) == ["a"] and m.chains["a"].failures == 0


# Divergence, and storage without room


def diverging(policy: Policy, max_failures: int = 2) -> Coordinator:
    """Chains a and b, of which a runs and has two samples in the pool."""
    m = Claiming({"a": 0, "b": 0}, max_failures, policy)
    m.handle(c.SlotReady(0))
    m.handle(c.Began("a", 1, 0))
    assert [m.handle(c.Sampled("a", 1, n)) for n in range(2)] == [[c.Accept("a", 0)], [c.Accept("a", 1)]]
    return m


def test_under_stop_a_diverged_chain_fails_and_the_next_one_starts() -> None:
    m = diverging("stop")
    assert m.handle(c.Ended("a", 1, "diverged", "too large")) == [c.Fail("a", "too large"), c.Start(0, "b", 1)]
    assert m.with_status("failed") == ["a"]


def test_under_drop_chain_it_is_dropped() -> None:
    m = diverging("drop-chain")
    assert m.handle(c.Ended("a", 1, "diverged", "too large")) == [c.Drop("a", "too large"), c.Start(0, "b", 1)]
    assert m.with_status("dropped") == ["a"] and m.with_status("failed") == []


def test_under_restart_cycle_it_goes_back_at_once_and_its_later_samples_are_forgotten() -> None:
    m = diverging("restart-cycle")
    again = m.handle(c.Ended("a", 1, "diverged", "too large"))
    assert again == [c.Restart("a", 1, "too large"), c.Start(0, "a", 2, 1)]
    assert m.handle(c.Began("a", 2, 1, 10, 1)) == [c.Forget("a", 1)]
    assert m.handle(c.Sampled("a", 2, 1)) == [c.Accept("a", 1)], "the sample of the other path is another one"


def test_a_restart_that_was_lost_is_asked_for_again_and_one_that_began_is_not() -> None:
    m = diverging("restart-cycle")
    m.handle(c.Ended("a", 1, "diverged", "too large"))
    m.handle(c.SlotLost(0, "gone"))
    assert m.handle(c.SlotReady(1)) == [c.Start(1, "a", 3, 1)]
    m.handle(c.Began("a", 3, 1, 10, 1))
    m.handle(c.SlotLost(1, "gone"))
    assert m.handle(c.SlotReady(2)) == [c.Start(2, "a", 4, 1)], "the same noise, whose checkpoint is there"
    assert m.handle(c.Began("a", 4, 1, 10, 1)) == []


def test_restarts_end_with_the_number_of_them_in_the_reason() -> None:
    m = diverging("restart-cycle", max_failures=2)
    for attempt in (1, 2):
        m.handle(c.Ended("a", attempt, "diverged", "too large"))
        m.handle(c.Began("a", attempt + 1, 0, 0, attempt))
    failed, following = m.handle(c.Ended("a", 3, "diverged", "too large"))
    assert failed == c.Fail("a", "too large (restarted 2 times with fresh noise)") and following == c.Start(0, "b", 1)


def test_restarts_before_a_driver_was_started_again_count() -> None:
    m = Claiming({"a": 4}, 2, "restart-cycle")
    m.handle(c.SlotReady(0))
    assert m.handle(c.Began("a", 5, 3, 30, 2)) == [c.Recover("a", 3)]
    [failed, _] = m.handle(c.Ended("a", 5, "diverged", "too large"))
    assert isinstance(failed, c.Fail)


def test_full_storage_stops_every_chain_and_keeps_the_first_reason() -> None:
    m = machine("a", "b", "c")
    m.handle(c.SlotReady(0))
    m.handle(c.SlotReady(1))
    assert m.handle(c.Ended("a", 1, "storage_refused", "no room")) == [c.Suspend(1, "b"), c.Release(0)]
    assert m.handle(c.Ended("b", 1, "storage_refused", "no room either")) == [c.Release(1)]
    assert m.over and m.suspending and m.storage_refused == "no room"
    assert m.with_status("suspended") == ["a", "b"] and m.with_status("waiting") == ["c"]


def running(m: Coordinator, slot: int) -> c.Start:
    [start] = m.handle(c.SlotReady(slot))
    assert isinstance(start, c.Start)
    return start


def test_a_chain_leaves_a_node_that_will_be_gone_and_goes_on_first_elsewhere() -> None:
    m = machine("a", "b")
    assert running(m, 0) == c.Start(0, "a", 1)
    assert m.handle(c.NodeDraining(0)) == [c.Suspend(0, "a")]
    assert m.handle(c.NodeDraining(0)) == [], "once"
    assert m.handle(c.Ended("a", 1, "suspended")) == [c.Release(0)], "it takes no other chain"
    assert running(m, 1) == c.Start(1, "a", 2) and not m.draining
    assert m.chains["a"].preemptions == 1 and m.chains["a"].failures == 0


def test_a_loss_on_such_a_node_is_no_failure() -> None:
    m = machine("a", max_failures=0)
    for slot in range(5):
        running(m, slot)
        m.handle(c.NodeDraining(slot))
        assert m.handle(c.SlotLost(slot, "its node has died")) == []
    assert m.chains["a"].preemptions == 5 and m.with_status("waiting") == ["a"]
    running(m, 5)
    assert m.handle(c.SlotLost(5, "gone")) == [c.Fail("a", "gone (1 losses in a row without progress)")]


def test_preemptions_have_a_limit_of_their_own() -> None:
    m = Claiming({"a": 0}, max_preemptions=1)
    for slot in range(2):
        start = running(m, slot)
        m.handle(c.NodeDraining(slot))
        said = m.handle(c.Ended("a", start.attempt, "suspended"))
    assert said == [c.Fail("a", "it had to leave its node 2 times"), c.Release(1)] and m.over


def test_who_claims_a_chain_for_a_slot_that_leaves_puts_it_back() -> None:
    m = Coordinator(["a"])
    assert m.handle(c.SlotReady(0)) == [c.Claim(0, "a")]
    assert m.handle(c.NodeDraining(0)) == []
    assert m.handle(c.Claimed(0, "a", 1)) == [c.Release(0)] and list(m.queue) == ["a"]
    assert m.handle(c.NodeDraining(3)) == [c.Release(3)], "a worker that is not up yet"


def test_chains_that_the_user_stops_stay_stopped_on_a_node_that_leaves() -> None:
    m = machine("a")
    running(m, 0)
    m.handle(c.NodeDraining(0))
    m.handle(c.SuspendAsked())
    assert m.handle(c.Ended("a", 1, "suspended")) == [c.Release(0)] and m.with_status("suspended") == ["a"] and m.over


def test_a_chain_that_ends_on_a_node_that_leaves_has_ended() -> None:
    m = machine("a", "b")
    running(m, 0)
    m.handle(c.NodeDraining(0))
    assert m.handle(c.Ended("a", 1, "finished")) == [c.Release(0)]
    assert m.with_status("finished") == ["a"] and m.with_status("waiting") == ["b"]


def test_packed_chains_go_on_each_by_itself_before_the_loss_that_would_give_them_up() -> None:
    m = Claiming(dict.fromkeys("abc", 0), max_failures=2, kinds=dict.fromkeys("ab", "one"))
    for attempt in (1, 2):
        assert m.handle(c.SlotReady(0, "one")) == [c.Start(0, "a", attempt)]
        assert m.handle(c.SlotReady(1, "one")) == [c.Start(1, "b", attempt)]
        assert m.handle(c.SlotLost(1, "gone")) == m.handle(c.SlotLost(0, "gone")) == []
    assert m.kinds == {"a": "a", "b": "b"}
    assert m.handle(c.SlotReady(0, "one")) == [c.Release(0)]
    assert m.handle(c.SlotReady(1, "a")) == [c.Start(1, "a", 3)]
    assert m.handle(c.SlotReady(2, "b")) == [c.Start(2, "b", 3)]
    m.handle(c.SlotLost(1, "gone"))
    assert m.with_status("failed") == ["a"] and m.with_status("running") == ["b"]


def test_a_slot_takes_chains_of_its_own_kind_alone() -> None:
    m = Claiming(dict.fromkeys("abcd", 0), kinds={"b": "one", "c": "two", "d": "one"})
    assert m.handle(c.SlotReady(0, "one")) == [c.Start(0, "b", 1)]
    assert m.handle(c.SlotReady(1, "one")) == [c.Start(1, "d", 1)]
    assert m.handle(c.SlotReady(2, "one")) == [c.Release(2)], "others wait, which are not for it"
    assert m.handle(c.SlotReady(3)) == [c.Start(3, "a", 1)]
    assert m.handle(c.SlotLost(0, "gone")) == [] and list(m.queue) == ["b", "c"]
    assert m.handle(c.Ended("a", 1, "finished")) == [c.Release(3)]
    assert m.handle(c.SlotReady(0)) == [c.Release(0)], "a slot's kind is lost with it"
    assert m.handle(c.Ended("d", 1, "finished")) == [c.Start(1, "b", 2)]
