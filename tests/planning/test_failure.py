"""The failure policy: deterministic errors are final, losses are survived up to a number."""

from __future__ import annotations

import pytest

from raychains.planning.failure import MAX_FAILURES, Decision, decide


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
