"""The failure policy's verdicts and what the user is told."""

from __future__ import annotations

import pytest

from raychains.coordination.failure import ATTEMPTS, FailurePolicy, Verdict, check_job
from raychains.core.errors import RaychainsError


def test_a_chain_survives_losses_and_runs_alone_before_the_last_one() -> None:
    policy = FailurePolicy(max_failures=2)
    assert [policy.lost(n, "its node is gone") for n in (1, 2, 3)] == [
        Verdict("again"),
        Verdict("again", alone=True),
        Verdict("fail", "its node is gone (3 losses in a row without progress)"),
    ]


def test_draining_nodes_are_left_any_number_of_times_unless_that_is_limited() -> None:
    assert FailurePolicy(max_failures=0).preempted(1000) == Verdict("again")
    assert FailurePolicy(max_preemptions=1).preempted(1) == Verdict("again")
    assert FailurePolicy(max_preemptions=1).preempted(2) == Verdict("fail", "it had to leave its node 2 times")


def test_a_divergence_fails_drops_or_restarts_as_the_user_asks() -> None:
    assert FailurePolicy().diverged(0, "nan") == Verdict("fail", "nan")
    assert FailurePolicy(on_divergence="drop-chain").diverged(0, "nan") == Verdict("drop", "nan")
    restarting = FailurePolicy(max_failures=1, on_divergence="restart-cycle")
    assert restarting.diverged(0, "nan") == Verdict("restart", "nan")
    assert restarting.diverged(1, "nan") == Verdict("fail", "nan (restarted 1 time with fresh noise)")


def test_workers_that_die_before_they_are_up_and_jobs_that_kill_evaluators_end_the_run() -> None:
    FailurePolicy(max_failures=2).check_starts(2, "no memory")
    with pytest.raises(RaychainsError, match=r"^3 workers in a row died before they were up; the last: no memory$"):
        FailurePolicy(max_failures=2).check_starts(3, "no memory")
    check_job("a sample", ATTEMPTS, ValueError("no"))
    with pytest.raises(RaychainsError, match=r"^a sample lost 11 evaluators or objects in a row: no$"):
        check_job("a sample", ATTEMPTS + 1, ValueError("no"))
