"""Shares of GPUs: what evaluators hold is none of the chains', and who holds none sees none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from raychains.coordination.capacity import Node
from raychains.core.config import Run
from raychains.orchestration.chains.messages import EvaluationConfig, EvaluatorConfig
from raychains.orchestration.cluster.resource_config import ResourceConfig, Slots
from raychains.orchestration.run.evaluation_worker import EvaluationWorker
from raychains.orchestration.run.evaluator_pool import Evaluators
from tests.checks import refused
from tests.orchestration.recorded import Recorded
from tests.orchestration.threads import ThreadWorkers
from tests.processes import json_of


def slots_of(cluster: Recorded, gpus_per_chain: float | None, evaluator: float) -> Slots:
    return ResourceConfig(gpus_per_worker=gpus_per_chain, gpus_per_evaluator=evaluator).slots(cluster)


@pytest.mark.parametrize(
    ("gpus", "per_chain", "held", "count"),
    [
        (1, 0.25, 0.25, 3),
        (1, 0.25, 0.0, 4),
        (2, None, 1.0, 1),
        (4, None, 0.5, 3),
        (1, 0.0, 1.0, 8),
        (1, 1 / 3, 1 / 3, 2),
    ],
)
def test_chains_have_what_evaluators_leave(gpus: float, per_chain: float | None, held: float, count: int) -> None:
    cluster = Recorded(Node(8, gpus))
    slots = slots_of(cluster, per_chain, held)
    assert slots.count == slots.room() == count
    cluster.found.clear()  # every node went
    assert slots.room() == 0


@pytest.mark.parametrize(
    ("nodes", "per_chain", "held", "chains", "share"),
    [
        ([2], 0.5, 0.0, 2, 1.0),
        ([2], 0.25, 0.0, 3, 0.5),
        ([2], 0.25, 0.0, 5, 1 / 3),
        ([2], 0.25, 0.0, 8, 0.25),
        ([2], 0.25, 0.0, 20, 0.25),
        ([1, 3], 0.25, 0.0, 4, 1.0),
        ([2], 0.25, 1.0, 2, 0.5),
        ([2], 0.0, 0.0, 1, 0.0),
    ],
)
def test_few_chains_with_shares_are_spread_over_the_gpus(
    nodes: list[int], per_chain: float, held: float, chains: int, share: float
) -> None:
    cluster = Recorded(*(Node(20, gpus) for gpus in nodes))
    joined = slots_of(cluster, per_chain, held)
    assert joined.with_largest_shares(chains) is joined, "runs of others may hold the rest of each GPU"
    cluster.started_here = True
    spread = slots_of(cluster, per_chain, held).with_largest_shares(chains)
    assert spread.gpus == pytest.approx(share) and spread.at_once(chains) == joined.at_once(chains)


HALVES = """
import json, sys
from pathlib import Path
import ray
import raychains as rc
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.store import Storage
from tests.cluster.tasks import Gated, places
from tests.orchestration.worlds import Diary, comparison
ray.init("local", num_cpus=2, num_gpus=2, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False)
folder = Path(sys.argv[1])
plan = comparison(Gated(str(folder), -1), chains=2, steps=300)
root = Storage(str(folder / "store"))
run_chains(plan, root, ResourceConfig(gpus_per_worker=0.5, evaluate=False), Diary(), lease=Lease(root))
run = sorted(place["gpus"] for place in places(folder))
rc.sweep(
    task="tests.sweeps.tasks:Placed", task_settings={"folder": str(folder), "pause": 0.0},
    grid={"lr": [0.01, 0.02]}, epochs=4, cycles=1,
    exploration=0.0, val_split=0.2, gpus_per_chain=0.5, store=str(folder / "store"), name="s", progress=False,
)
seen = [file.read_text() for file in folder.glob("gpus-*")]  # this process tries the task, too, without any
print(json.dumps({"run": run, "sweep": sorted(filter(None, seen))}))
"""


@pytest.mark.long
def test_two_halves_on_a_machine_with_two_gpus_have_one_each(tmp_path: Path) -> None:
    assert json_of("-c", HALVES, str(tmp_path)) == {"run": ["0", "1"], "sweep": ["0", "1"]}


GROUP = """
import json, sys
from pathlib import Path
import ray
import raychains as rc
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.sweeps.tasks import Tested
ray.init("local", num_cpus=8, num_gpus=8, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False)
folder = Path(sys.argv[1])
store = str(folder / "store")
result = rc.run(
    task="tests.sweeps.tasks:Tested", task_settings={"folder": str(folder), "pause": 0.0},
    chains=1, epochs=2, cycles=1, exploration=0.0,
    batch_size=64, micro_batch=8, workers_per_chain=8, store=store, progress=False,
)
seen = sorted(filter(None, (file.read_text() for file in folder.glob("gpus-*"))))
undisturbed = undisturbed_hashes(result.comparison, Tested(str(folder)))
print(json.dumps([seen, stored_hashes(store, result.comparison) == undisturbed]))
"""


@pytest.mark.long
def test_eight_ranks_of_a_chain_have_a_gpu_each_and_give_one_processs_samples(tmp_path: Path) -> None:
    seen, equal = json_of("-c", GROUP, str(tmp_path))
    assert seen == [str(n) for n in range(8)] and equal


@pytest.mark.parametrize(("gpus", "per_chain", "held"), [(1, None, 0.5), (0, None, 0.5), (1, 0.5, 1.0), (2, 0.0, 3.0)])
def test_evaluators_that_leave_no_chain_a_gpu_are_refused(gpus: float, per_chain: float | None, held: float) -> None:
    with refused("gpus_per_evaluator", f"{gpus:g}", f"{held:g}"):
        slots_of(Recorded(Node(8, gpus)), per_chain, held)


@pytest.mark.parametrize("share", [0.3, -1.0, 1.5, float("nan")])
def test_a_share_that_ray_cannot_give_is_one_line(share: float) -> None:
    with refused("gpus_per_evaluator", "1/k"):
        ResourceConfig(gpus_per_evaluator=share)


def test_the_option_reaches_the_resources() -> None:
    assert ResourceConfig.of(Run(gpus_per_evaluator=0.5)).gpus_per_evaluator == 0.5
    assert ResourceConfig.of(Run()).gpus_per_evaluator == 0


@pytest.mark.parametrize("gpus", [0.0, 0.25])
def test_an_evaluator_is_started_with_its_share(gpus: float) -> None:
    cluster: Any = Recorded()
    work = EvaluationConfig(task={}, split="test", bins=15)
    Evaluators(cluster, "store", work, 1, ResourceConfig(gpus_per_evaluator=gpus)).start()
    [actor] = cluster.actors
    assert (actor.options.gpus, actor.options.cpus, actor.args[0].gpus) == (gpus, 0, gpus)


def test_an_evaluator_without_a_share_sees_no_gpu_and_one_with_a_share_its_own(
    tmp_path: Path, threads: ThreadWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gpus, seen in ((0.5, "3"), (0.0, "")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # as Ray sets it for one that holds a share
        EvaluationWorker(EvaluatorConfig(store=str(tmp_path), gpus=gpus))
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
