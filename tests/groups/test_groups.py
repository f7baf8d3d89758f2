"""Chains of several workers on Ray: the samples of a single process, through the death of a rank, a stop and a resume."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

import raychains as rc
from raychains import methods
from raychains.chain import Chain
from raychains.errors import Interrupted
from raychains.options import Run
from raychains.planning.listener import SlotGone, Tick
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Root
from tests.checks import refused

pytestmark = pytest.mark.usefixtures("ray_session")

SETTINGS: dict[str, Any] = {
    "task": "digits", "sampler": "csghmc", "epochs": 160, "cycles": 2, "chains": 1, "batch_size": 50, "micro_batch": 25,
    "repeats": 1, "checkpoint_every": 0.3, "evaluators": 1,
}  # fmt: skip


def reference() -> dict[int, str]:
    """By one process, without Ray: sha256 by the sample's index."""
    given = Run(**SETTINGS)
    method = methods.resolve(given, task=methods.make_task(given, "digits"), name="digits", sampler="csghmc")
    chain = Chain(method.spec, method.task)
    return {e.meta.index: tensors_sha256(e.tensors) for e in chain if isinstance(e, Sample)}


def found(store: str, result: Any) -> dict[int, str]:
    (digest,) = result.comparison.chains()
    return {r.meta.index: r.sha256 for r in ChainStore(Root(store), digest).records()}


class Killing:
    """Kills the process of rank 1 once the chain has come so far; notes what the run said."""

    def __init__(self, store: str, at: int) -> None:
        self.store, self.at, self.gone, self.killed = store, at, [], 0

    def on(self, happening: Any) -> None:
        if isinstance(happening, SlotGone):
            self.gone.append(happening.reason)
        if (
            isinstance(happening, Tick)
            and happening.running
            and happening.running[0].step >= self.at
            and not self.killed
        ):
            self.killed = _follower()
            os.kill(self.killed, signal.SIGKILL)


def _follower() -> int:
    """The process of the actor that is rank 1."""
    import ray
    from ray._private.state import actors

    for told in actors().values():
        if ".1-" in (told.get("Name") or "") and told["State"] == "ALIVE":
            return int(told["Pid"])
    raise AssertionError([(t.get("Name"), t["State"]) for t in ray._private.state.actors().values()])


def test_two_workers_of_which_one_is_killed_give_one_processs_samples(store: str) -> None:
    listener = Killing(store, at=200)
    result = rc.run(**SETTINGS, workers_per_chain=2, store=store, name="pair", listener=listener)
    assert listener.killed and listener.gone and found(store, result) == reference()
    (digest,) = result.comparison.chains()
    stored = ChainStore(Root(store), digest)
    assert [stored.incarnation(n)["workers"] for n in range(1, stored.last_incarnation() + 1)] == [2, 2]
    assert result.table()["error"].notna().all()


class Stopping:
    """Asks for a stop, as Ctrl-C does, once the chain has come so far."""

    def __init__(self, at: int) -> None:
        self.at, self.asked = at, False

    def on(self, happening: Any) -> None:
        if (
            isinstance(happening, Tick)
            and happening.running
            and happening.running[0].step >= self.at
            and not self.asked
        ):
            self.asked = True
            os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_pair_goes_on_as_one(store: str) -> None:
    """Another number of workers continues the same chain, since its micro-batches are the same."""
    with pytest.raises(Interrupted):
        rc.run(**SETTINGS, workers_per_chain=2, store=store, name="stopped", listener=Stopping(200))
    result = rc.run(**SETTINGS, workers_per_chain=1, store=store, name="stopped", resume=True)
    assert found(store, result) == reference()
    (digest,) = result.comparison.chains()
    stored = ChainStore(Root(store), digest)
    told = [stored.incarnation(n) for n in range(1, stored.last_incarnation() + 1)]
    assert [t["workers"] for t in told] == [2, 1] and 200 <= told[1]["from_step"] < 1600


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"workers_per_chain": 3}, ("workers_per_chain", "3", "2")),
        ({"workers_per_chain": 0}, ("workers_per_chain", "0")),
        ({"workers_per_chain": 2, "micro_batch": 50}, ("workers_per_chain", "2", "1")),
        ({"micro_batch": 51}, ("micro_batch", "51", "50")),
        ({"workers_per_chain": 2, "gpus_per_chain": 4}, ("workers_per_chain", "2", "4")),
        (
            {"task": "gaussian", "epochs": None, "batch_size": None, "micro_batch": None, "workers_per_chain": 2},
            ("gaussian",),
        ),
    ],
)
def test_wrong_numbers_are_refused(store: str, given: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        rc.run(**{**SETTINGS, **given}, store=store)
