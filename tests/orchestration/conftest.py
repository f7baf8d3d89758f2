from __future__ import annotations

import pytest

from tests.orchestration.threads import ThreadWorkers, keep_this_process


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> ThreadWorkers:
    keep_this_process(monkeypatch)
    return ThreadWorkers()
