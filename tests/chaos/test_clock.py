"""Workers killed from outside at moments that a clock chooses, wherever their chains happen to be."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from raychains.tasks.mixture import Mixture25
from tests.chaos import plans, tally, worlds
from tests.chaos.disturbed import lost_slots, run_and_check
from tests.chaos.nodes import Nodes
from tests.chaos.tasks import MortalMixture

CHAINS, KILLS = 4, 5
PAUSE = 0.01
"""Seconds that a step takes at least: chains last several seconds, so that the clock finds them."""


@pytest.mark.long
def test_workers_killed_by_the_clock_leave_the_samples_of_undisturbed_chains(cluster: Nodes, tmp_path: Path) -> None:
    task = MortalMixture(str(tmp_path / "deaths"), PAUSE)
    comparison = worlds.comparison(task, {"sgnht": worlds.SAMPLERS["sgnht"]}, CHAINS)
    no_plan = plans.spread([], comparison.chains().values())
    killer = Killer(tmp_path / "deaths", random.Random(0), KILLS)
    killer.start()
    try:
        diary = run_and_check(tmp_path, comparison, no_plan, Mixture25(gradient_noise=1.0))
    finally:
        killer.over.set()
        killer.join()
    assert len(killer.victims) == KILLS == lost_slots(diary)
    tally.add(killer.victims)
    tally.LINES.append("by the clock: " + ", ".join(v["where"] for v in killer.victims))


class Killer(threading.Thread):
    """Every second or so kills one process whose chain has begun, and notes what it was doing by what it left.

    Until all kills are done no chain makes its last step.
    """

    def __init__(self, deaths: Path, rng: random.Random, kills: int) -> None:
        super().__init__(name="killer")
        self._lives, self._hold, self._rng, self._kills = deaths / "lives", deaths / "hold", rng, kills
        deaths.mkdir()
        self._hold.write_text(str(worlds.STEPS - 1))
        self.over = threading.Event()
        self.victims: list[dict[str, Any]] = []

    def run(self) -> None:
        try:
            while len(self.victims) < self._kills and not self.over.wait(self._rng.uniform(0.2, 1.5)):
                if running := self._running():
                    file, life = self._rng.choice(running)
                    os.kill(life["pid"], signal.SIGKILL)
                    while _alive(life["pid"]) and not self.over.wait(0.01):
                        pass
                    left = plans.read_life(file)
                    self.victims.append({"target": "worker", "where": _place(left["writing"]), **left})
        finally:
            self._hold.unlink()

    def _running(self) -> list[tuple[Path, dict[str, Any]]]:
        """Lives of living processes that have made a step."""
        lives = [(f, plans.read_life(f)) for f in (self._lives.iterdir() if self._lives.is_dir() else ())]
        return [(f, life) for f, life in lives if life["steps"] and _alive(life["pid"])]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _place(writing: str) -> str:
    return f"step, writing {writing.rpartition('/')[0].rpartition('/')[2]}" if writing else "step"
