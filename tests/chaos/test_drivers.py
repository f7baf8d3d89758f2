"""The command killed with SIGKILL and repeated with --resume, at moments that a chain's or its own publishes decide."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import raychains as rc
from raychains.core.spec import ChainSpec
from raychains.store import Storage
from raychains.tasks.linear_regression import LinearRegression
from tests.chaos import plans, tally, worlds
from tests.chaos.nodes import Nodes
from tests.chaos.plans import Kill
from tests.processes import ROOT, SECONDS

COMMAND = [
    "run", "--sampler", "sghmc", "--schedule", "cyclical", "--chains", "3", "--repeats", "2", "--checkpoint-every",
    str(worlds.CADENCE), "--name", "r",
]  # fmt: skip
BY_CHAIN = 3
"""Drivers that a chain kills."""
OWN = [Kill("plan", 1, "written", "driver"), Kill("results", 1, "half", "driver")]
"""Where a driver kills itself."""


@pytest.mark.long
def test_drivers_killed_and_resumed_end_with_the_results_of_an_undisturbed_run(cluster: Nodes, tmp_path: Path) -> None:
    disturb(cluster, tmp_path, seed=0, by_chain=BY_CHAIN)


def disturb(cluster: Nodes, tmp_path: Path, seed: int, by_chain: int, steps: int = 400, cycles: int = 2) -> None:
    rng = random.Random(seed)
    deaths = tmp_path / "deaths"
    places = [
        Kill("sample", rng.randint(2, 3), "half", "driver"),
        Kill("checkpoint", rng.randint(1, 2), "written", "driver"),
        Kill("step", rng.randint(20, 100), "gradient", "driver"),
    ]
    chains = {chain_key(c): [] for c in range(3)} | {chain_key(0): [places[n % 3] for n in range(by_chain)]}
    plans.write(deaths, {**chains, "driver": OWN})
    length = ["--steps", str(steps), "--cycles", str(cycles)]

    killed = 0
    while (status := command(cluster, tmp_path, length, resume=killed > 0)) == -signal.SIGKILL:
        killed += 1
        assert killed <= plans.planned(deaths)
    assert status == 0
    markers = plans.achieved(deaths)
    assert len(markers) == killed == plans.planned(deaths)
    for marker in markers:
        plans.check_where_it_hit(marker)
    tally.add(markers)

    result = rc.load(str(tmp_path / "store" / "runs" / "r"))
    clean = LinearRegression(num_data=100)
    hashes, tensors = worlds.undisturbed(result.comparison.chains(), clean)
    worlds.check_samples(Storage(str(tmp_path / "store")), hashes)
    work = worlds.check_work(deaths, result.comparison.chains())
    tally.LINES.append(f"{tmp_path.name}: {work}")
    expected = worlds.expected_results(result.comparison, clean, tensors)
    worlds.check_results(result.store.table("results"), expected)
    assert Path(result.report).is_file()


def chain_key(chain: int) -> str:
    """Key of the command's chain of this number, which its digest does not move."""
    spec = worlds.comparison(LinearRegression(), {"sghmc": {}}).arms[0].chains[0][0]
    return plans.key(ChainSpec.from_json({**spec.to_json(), "seed": 0, "chain": chain}))


def command(cluster: Nodes, tmp_path: Path, length: list[str], *, resume: bool) -> int:
    """Run the command on the cluster to its end, or to its death; its exit status."""
    arguments = [*COMMAND, *length, "--store", str(tmp_path / "store"), "--address", cluster.address]
    run = [sys.executable, "-m", "tests.chaos.command", str(tmp_path / "deaths"), *arguments, *["--resume"] * resume]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=SECONDS)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    return done.returncode
