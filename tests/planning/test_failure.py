"""The failure policies: deterministic errors are final, losses and restarts come up to a number."""

from __future__ import annotations

import pytest

from raychains.planning.failure import MAX_FAILURES, POLICIES, Decision, Policy, Remedy, decide, remedy


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_losses_are_survived_up_to_the_limit(limit: int) -> None:
    decisions = [decide(deterministic=False, failures=n, max_failures=limit) for n in range(1, limit + 3)]
    assert decisions == [Decision.RETRY] * limit + [Decision.GIVE_UP] * 2


def test_the_limit_is_three_unless_said_otherwise() -> None:
    assert MAX_FAILURES == 3
    assert decide(deterministic=False, failures=3) is Decision.RETRY
    assert decide(deterministic=False, failures=4) is Decision.GIVE_UP


@pytest.mark.parametrize("failures", [0, 1])
def test_an_error_of_the_chain_itself_is_never_tried_again(failures: int) -> None:
    assert decide(deterministic=True, failures=failures, max_failures=9) is Decision.GIVE_UP


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_diverged_chain_is_restarted_up_to_the_limit_and_then_fails(limit: int) -> None:
    found = [remedy("restart-cycle", restarts=n, max_failures=limit) for n in range(limit + 2)]
    assert found == [Remedy.RESTART] * limit + [Remedy.FAIL] * 2


@pytest.mark.parametrize(("policy", "expected"), [("stop", Remedy.FAIL), ("drop-chain", Remedy.DROP)])
@pytest.mark.parametrize("restarts", [0, 2])
def test_the_other_policies_never_restart(policy: Policy, expected: Remedy, restarts: int) -> None:
    assert policy in POLICIES and remedy(policy, restarts=restarts, max_failures=9) is expected
