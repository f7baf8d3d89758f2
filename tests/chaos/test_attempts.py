"""Chains' processes killed at every moment of every kind of file, without Ray: forked processes, many of which can
die."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping
from multiprocessing import connection
from pathlib import Path

import pytest

from raychains.core.spec import ChainSpec
from raychains.store import Storage
from raychains.tasks.mixture import Mixture25
from tests.chaos import disturbed, plans, test_drivers, test_nodes, test_workers, worlds
from tests.chaos.tasks import MortalMixture
from tests.orchestration import lives
from tests.processes import SECONDS

AT_ONCE = 3
"""Seeds whose deaths come to the same chains."""
SEEDS = range(1, 16)
PROCESSES = 3
"""Chains that live at once: each sleeps for half of its time."""


def test_these_kill_at_least_three_hundred_processes() -> None:
    a_seed = len(plans.every_place(random.Random(0)))
    planned = (len(SEEDS) + len(test_workers.SEEDS)) * a_seed + len(test_workers.EVALUATORS)
    assert planned + test_nodes.KILLS + test_drivers.KILLS >= 300


@pytest.mark.long
@pytest.mark.parametrize("first", SEEDS[::AT_ONCE])
def test_processes_killed_anywhere_leave_the_samples_of_undisturbed_chains(first: int, tmp_path: Path) -> None:
    where, root = tmp_path / "deaths", Storage(tmp_path / "store")
    comparison = worlds.comparison(MortalMixture(str(where), worlds.PAUSE), steps=worlds.SHORT)
    deaths = test_workers.dealt(range(first, first + AT_ONCE), comparison)
    plans.write(where, deaths)
    chains = comparison.chains()
    assert codes(root, chains) == {
        digest: [-signal.SIGKILL] * len(deaths[plans.key(spec)]) + [0] for digest, spec in chains.items()
    }
    disturbed.check(tmp_path, comparison, Mixture25(gradient_noise=1.0))


def codes(root: Storage, chains: Mapping[str, ChainSpec]) -> dict[str, list[int | None]]:
    """Attempts at each chain until one does not die; their exit codes."""
    ended: dict[str, list[int | None]] = {digest: [] for digest in chains}
    waiting, running = [*chains], {}
    while waiting or running:
        while waiting and len(running) < PROCESSES:
            digest = waiting.pop()
            number, config = len(ended[digest]) + 1, {"checkpoint_every": worlds.OFTEN}
            process = lives.begun_elsewhere(root.uri, chains[digest].to_json(), number, config)
            running[process.sentinel] = digest, process
        over = connection.wait([*running], SECONDS)
        assert over, "no process ends"
        for sentinel in over:
            digest, process = running.pop(int(sentinel))  # type: ignore[call-overload]
            process.join()
            ended[digest].append(process.exitcode)
            if process.exitcode == -signal.SIGKILL:
                waiting.append(digest)
    return ended
