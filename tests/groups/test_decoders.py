"""Decoders that are Ray actors: the same bytes as beside the chain, through the death of one in mid-epoch."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raychains as rc
from raychains import methods
from raychains.api import placement
from raychains.chain import Chain
from raychains.data.prepared.carrier import Cutting
from raychains.data.prepared.feed import Feed
from raychains.data.prepared.rows import Rows, manifest_at
from raychains.experiments import comparisons
from raychains.options import Run
from raychains.orchestration.decoding import DecodingWorker, Reached, carry
from raychains.orchestration.driver import Driver
from raychains.planning.listener import Tick
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Root
from tests.checks import refused
from tests.cluster.machines import until
from tests.data.prepared.made import folder_of_classes, prepared
from tests.data.prepared.test_feed import BATCH, SIZE, WINDOW, joined, plainly
from tests.jobs.keeper import descendants

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    prepared(folder_of_classes(folder / "raw"), folder / "small")
    return folder


class Actors:
    """Decoders without CPUs of their own, so that three fit on a small machine; ended with the test."""

    def __init__(self, count: int) -> None:
        import ray

        kind = ray.remote(DecodingWorker).options(num_cpus=0, max_restarts=-1, max_task_retries=0)
        self.handles = [kind.remote() for _ in range(count)]
        ray.get([handle.ready.remote() for handle in self.handles])

    def kill(self, number: int) -> None:
        os.kill(process_of(self.handles[number]._actor_id.hex()), signal.SIGKILL)


@pytest.fixture(scope="module")
def three(ray_session: None) -> Iterator[Actors]:
    import ray

    made = Actors(3)
    yield made
    for handle in made.handles:
        ray.kill(handle)


def process_of(actor: str) -> int:
    from ray._private.state import actors

    return int(actors(actor)["Pid"])


def test_bytes_are_the_same_with_three_of_which_one_is_killed_in_mid_epoch(
    data: Path, three: Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = []
    plain = Reached.answer

    def noting(reached: Reached, decoder: int, asked: Any) -> Any:
        if (piece := plain(reached, decoder, asked)) is None:
            lost.append(decoder)
        return piece

    monkeypatch.setattr(Reached, "answer", noting)
    uri = str(data / "small")
    rows = Rows(uri, manifest_at(uri), "train")
    whole = Cutting(uri=uri, split="train", size=SIZE, batch_size=BATCH, window=WINDOW)
    found: list[tuple[Any, Any]] = []
    with Feed(whole, rows, ahead=2, carry=partial(carry, three.handles)) as feed:
        for step, (pixels, labels) in enumerate(feed.epoch(5)):
            found.append((pixels.copy(), labels.copy()))
            if step == 1:
                three.kill(1)
        found += [(p.copy(), t.copy()) for p, t in feed.epoch(6)]
        carrier: Any = feed._carrier
        assert carrier._decoders.count == 3 and carrier._beside is None and set(lost) == {1}
    for epoch, seed in enumerate((5, 6)):
        pixels, labels = joined(found[8 * epoch : 8 * (epoch + 1)])
        expected, expected_labels = plainly(rows, seed)
        assert (pixels == expected).all() and (labels == expected_labels).all()


def test_ranks_take_their_slices_and_a_chain_goes_on_when_all_decoders_end(data: Path, three: Actors) -> None:
    import ray

    uri = str(data / "small")
    rows = Rows(uri, manifest_at(uri), "train")
    expected = plainly(rows, 7)[0]
    by_rank: list[list[Any]] = [[], []]
    shares = [
        Cutting(uri=uri, split="train", size=SIZE, batch_size=BATCH, window=WINDOW, first=a, last=b, parts=3)
        for a, b in ((0, 1), (1, 3))
    ]
    feeds = [Feed(share, rows, ahead=2, carry=partial(carry, three.handles)) for share in shares]
    epochs = [feed.epoch(7) for feed in feeds]
    for step in range(8):
        for rank, epoch in enumerate(epochs):
            by_rank[rank].append(next(epoch)[0].copy())
        if step == 2:
            for handle in three.handles:
                ray.kill(handle)  # for good
    batches = [np.concatenate([part[step] for part in by_rank]) for step in range(8)]
    assert (np.concatenate(batches) == expected).all()
    carriers: list[Any] = [feed._carrier for feed in feeds]
    assert all(c._beside is not None for c in carriers), "processes beside the chain have taken over"
    for feed in feeds:
        feed.close()


class Killing:
    """Kills a process that cuts pictures once the chain has come so far."""

    def __init__(self, at: int, found: Callable[[], int]) -> None:
        self.at, self.found, self.killed = at, found, 0

    def on(self, happening: Any) -> None:
        if (
            not self.killed
            and isinstance(happening, Tick)
            and happening.running
            and happening.running[0].step >= self.at
        ):
            self.killed = self.found()
            os.kill(self.killed, signal.SIGKILL)


def actor_of(role: str) -> int:
    """The process of the run's first actor of this role."""
    from ray._private.state import actors

    (pid,) = (t["Pid"] for t in actors().values() if f"/{role}-0-" in (t.get("Name") or "") and t["State"] == "ALIVE")
    return int(pid)


def beside_the_chain() -> int:
    """The decoder process that the chain's worker started."""
    below = descendants(actor_of("chain-worker"))
    (pid,) = (n for n in below if b"raychains.data.prepared.worker" in Path(f"/proc/{n}/cmdline").read_bytes())
    return pid


def settings(data: Path) -> dict[str, Any]:
    return {
        "task": "imagefolder-lenet", "task_settings": ("set=small", "size=32", "window=3"), "sampler": "csghmc",
        "epochs": 80, "cycles": 2, "chains": 1, "samples_per_cycle": 1, "batch_size": 8, "lr": 0.01,
        "data_root": str(data), "evaluators": 1,
    }  # fmt: skip


@pytest.mark.parametrize("elsewhere", [True, False], ids=["actor", "process"])
def test_a_run_with_a_decoder_that_is_killed_has_the_samples_of_a_chain_alone(
    data: Path, store: str, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    from ray._private.state import actors

    monkeypatch.setenv("RAYCHAINS_DATA", str(data))
    options = Run(**settings(data), decoders=1 if elsewhere else None, store=store)
    listener = Killing(30, partial(actor_of, "decoder") if elsewhere else beside_the_chain)
    plan = comparisons.run(options).comparison
    placed = replace(placement(options), evaluate=False)
    outcome = Driver(plan, Root(store), placed, listener).run()
    assert listener.killed and not outcome.failed and outcome.samples == 2
    until(lambda: not [t for t in actors().values() if "/decoder-" in t["Name"] and t["State"] != "DEAD"], "their end")
    given = Run(**settings(data))
    method = methods.resolve(given, task=methods.make_task(given, given.task), name=given.task, sampler="csghmc")
    assert plan.chains().keys() == {method.spec.digest}, "decoders are in no digest"
    chain = ChainStore(Root(store), method.spec.digest)
    alone = {e.meta.index: tensors_sha256(e.tensors) for e in Chain(method.spec, method.task) if isinstance(e, Sample)}
    assert {r.meta.index: r.sha256 for r in chain.records()} == alone
    assert chain.last_incarnation() == (1 if elsewhere else 2), "whose own decoder died begins again"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"task": "digits", "task_settings": ()}, ("decoders must be left out for task digits", "got 1")),
        ({"decoders": 0}, ("decoders", "0")),
        ({"decoders": 2}, ("decoders must be at most 1 here, got 2", "a chain takes 1", "1 node of 2 CPU")),
        ({"workers_per_chain": 2}, ("decoders must be left out here, got 1", "a chain takes 2")),
    ],
)
def test_decoders_that_make_no_sense_are_refused(
    data: Path, store: str, given: dict[str, Any], words: tuple[str, ...]
) -> None:
    with refused(*words):
        rc.run(**{**settings(data), "decoders": 1, **given}, store=store)
