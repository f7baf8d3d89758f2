"""The command killed with SIGKILL and repeated with --resume, at moments that a chain's or its own publishes decide."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

import raychains as rc
from raychains.core.spec import ChainSpec
from raychains.store import Storage
from raychains.tasks.linear_regression import LinearRegression
from tests.chaos import command, plans, tally, worlds
from tests.chaos.nodes import Nodes
from tests.chaos.plans import Kill
from tests.orchestration import lives

COMMAND = [
    "run", "--sampler", "sghmc", "--schedule", "cyclical", "--chains", "3", "--repeats", "2", "--checkpoint-every",
    str(worlds.CADENCE), "--steps", "800", "--cycles", "8", "--name", "r",
]  # fmt: skip
SEEDS = range(1)
OWN = [Kill("plan", 1, "written", "driver"), Kill("results", 1, "half", "driver")]
"""Where a driver kills itself."""
KILLS = 3 * len(SEEDS) + len(OWN)


@pytest.mark.long
def test_drivers_killed_and_resumed_end_with_the_results_of_an_undisturbed_run(cluster: Nodes, tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    by_chain = [kill for seed in SEEDS for kill in places(seed)]
    plans.write(deaths, {chain_key(0): by_chain, chain_key(1): [], chain_key(2): [], "driver": OWN})

    killed = 0
    while (status := called(cluster, tmp_path, resume=killed > 0)) == -signal.SIGKILL:
        killed += 1
        assert killed <= KILLS
    assert status == 0
    markers = plans.achieved(deaths)
    assert len(markers) == killed == plans.planned(deaths) == KILLS
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


def places(seed: int) -> list[Kill]:
    """The deaths that a chain brings to its drivers, as they follow from a seed."""
    rng = random.Random(seed)
    return [
        Kill("sample", rng.randint(2, 3), "half", "driver"),
        Kill("checkpoint", rng.randint(1, 2), "written", "driver"),
        Kill("step", rng.randint(20, 100), "gradient", "driver"),
    ]


def chain_key(chain: int) -> str:
    """Key of the command's chain of this number, which its digest does not move."""
    spec = worlds.comparison(LinearRegression(), {"sghmc": {}}).arms[0].chains[0][0]
    return plans.key(ChainSpec.from_json({**spec.to_json(), "seed": 0, "chain": chain}))


def called(cluster: Nodes, tmp_path: Path, *, resume: bool) -> int:
    """Run the command on the cluster to its end, or to its death; its exit status."""
    arguments = [*COMMAND, "--store", str(tmp_path / "store"), "--address", cluster.address, *["--resume"] * resume]
    told = tmp_path / "told"
    status = lives.elsewhere(command.forked, str(tmp_path / "deaths"), arguments, str(told), name="driver")
    text = told.read_text()
    assert status in (0, -signal.SIGKILL) and "Traceback" not in text, text[-6000:]
    return status
