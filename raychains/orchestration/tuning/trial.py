"""A trial is a chain: the process that Ray Tune gives it runs the chain itself, judges its samples and reports.

Tune's own checkpoints are not used. Whatever a trial reports, and whatever it goes on from, is in the run store first:
a trial that is started again, by Tune after its process died or by a later driver, finds there what it had, tells it
again and goes on. The same samples, in the same order, give the same reports.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray import tune

from raychains.errors import RaychainsError

if TYPE_CHECKING:
    from raychains.orchestration.incarnation import Incarnation
    from raychains.orchestration.luggage import Luggage
    from raychains.orchestration.tuning.ensemble import Ensemble
    from raychains.planning.sweeping import Stop
    from raychains.store import SampleRecord

TICK = 0.5
"""Seconds without news after which a trial says where it is."""
ASK_AGAIN = 2.0
"""Seconds between looks at a chain that another driver runs."""
PATIENCE = 15.0
"""Seconds for which a trial that is stopped waits for its last checkpoint."""
Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all trials of a sweep share; plain data, since it travels."""

    store: str
    """URI of the run store."""
    sweep: str
    """The sweep's name."""
    driver_id: str
    """Of the driver's lease: other drivers leave its chains to it."""
    driver: str
    split: str
    checkpoint_every: float
    data_root: str | None
    bins: int
    gpus: float
    hold: bool
    """Whether a chain waits at each report for the scheduler's decision."""
    restarts: int
    """How often a chain that diverges goes back to its cycle's start."""
    luggage: Luggage


class Trial(tune.Trainable):
    """One chain. A class, not a function: Tune calls `cleanup` in the process, where the last checkpoint is written.

    `step` returns the next report, or after `TICK` seconds where the chain is; Tune's schedulers see the reports only.
    """

    def setup(self, config: dict[str, Any], setting: Setting | None = None) -> None:
        """Once per process; with `reset_config` a process serves one chain after another."""
        assert setting is not None
        self._setting = setting
        if not setting.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them
        if setting.data_root is not None:
            os.environ["RAYCHAINS_DATA"] = setting.data_root
        import torch

        import raychains.chain  # noqa: F401  # by the first chain else: seconds, which are start-up and no chain's
        from raychains.orchestration.luggage import unpack
        from raychains.store import Root

        torch.set_num_threads(1)
        unpack(setting.luggage)
        self._root = Root(setting.store)
        self._tasks: dict[str, Any] = {}
        self._evaluations: dict[str, Any] = {}
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next chain in the same process."""
        self._life.close()
        self._begin(new_config)
        return True

    def step(self) -> Result:
        """The next thing to tell."""
        return next(self._life)

    def cleanup(self) -> None:
        """A chain that runs writes a checkpoint first."""
        self._life.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the store has what a trial goes on from."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """The same."""

    def _begin(self, config: Mapping[str, Any]) -> None:
        from raychains.planning.sweeping import stops_of
        from raychains.spec import ChainSpec
        from raychains.store import ChainStore, SweepStore

        self._spec = ChainSpec.from_json(config["spec"])
        self._length = config["length"]
        self._store = ChainStore(self._root, self._spec.digest)
        # What is judged and reported waits for a storage that is away, as the chain itself does.
        patient = self._root.waiting(lambda reason: True)
        self._folder = SweepStore(patient, self._setting.sweep)
        self._drawn = ChainStore(patient, self._spec.digest)
        self._stops: list[Stop] = stops_of(self._spec)
        self._attempt = 0
        self._life = self._lives()

    # The chain's life

    def _lives(self) -> Generator[Result, None, None]:
        """Ticks and reports of one chain, then its end; nothing comes behind that."""
        from raychains.orchestration.lease import Lease
        from raychains.positions import expected_samples

        expected = expected_samples(self._spec)
        self._told = {report["cycle"]: report for report in self._folder.reports(self._spec.digest)}
        lease = Lease(self._root, f"sweep:{self._setting.sweep}")
        lease.driver_id = self._setting.driver_id  # its driver's, whose chain it is
        about = {"driver": self._setting.driver, "driver_id": lease.driver_id, "started": time.time()}
        digest = self._spec.digest
        while True:
            if self._drawn.finished(expected):
                ensemble = self._ensemble()
                yield from self._stored(ensemble, expected, free=True)
                yield from self._rest(ensemble, free=True)
                yield self._end("finished", seconds=self._drawn.seconds())
                return
            incarnation = lease.take(digest, about)
            if incarnation is None:
                yield self._tick({"waiting": "another driver runs this chain"})
                time.sleep(ASK_AGAIN)
                continue
            outcome, reason, seconds = yield from self._attempted(incarnation, about)
            if outcome == "finished":
                yield self._end("finished", seconds=seconds)
                return
            if outcome == "diverged" and self._attempt < self._setting.restarts:
                self._attempt += 1
                yield self._tick({"waiting": f"diverged: {reason}; back to the start of its cycle with fresh noise"})
            elif outcome == "lost":
                raise RaychainsError(reason)  # this process cannot be trusted any more: Tune starts another
            elif outcome != "stopped":  # that is another driver's later incarnation: asked for again
                yield self._end("full" if outcome == "full" else "failed", seconds=seconds, reason=reason)
                return

    def _attempted(self, number: int, about: Mapping[str, Any]) -> Generator[Result, None, tuple[str, str, float]]:
        """One incarnation of the chain, from its checkpoint on; (outcome, reason, seconds)."""
        from raychains.orchestration.incarnation import Incarnation, Orders
        from raychains.store import codec

        setting = self._setting
        ensemble = self._ensemble()  # before the threads begin: building a network uses torch's global generator
        holds = frozenset(stop.step for stop in self._stops[:-1]) if setting.hold else frozenset()
        orders = Orders(
            number=number,
            about=about,
            every=setting.checkpoint_every,
            every_cycle=True,
            attempt=self._attempt,
            holds=holds,
        )
        run = Incarnation(self._spec, self._store, orders, self._tasks)
        run.begin()
        ended = False
        try:
            while True:
                try:
                    event, data = run.take(timeout=TICK)
                except queue.Empty:
                    yield self._tick(run.status())
                    continue
                if event["kind"] == "began":
                    self._attempt = max(self._attempt, event["attempt"])
                    yield from self._stored(ensemble, event["drawn"], run=run)
                elif event["kind"] == "sample":
                    tensors, own = codec.decode(bytes(memoryview(data)))
                    self._add(ensemble, tensors, own["sha256"])
                    yield from self._due(ensemble, run=run)
                else:
                    ended = True
                    if event["outcome"] == "finished":
                        yield from self._rest(ensemble)
                    return event["outcome"], event["reason"], event["seconds"]
        finally:
            if not ended:
                run.stop()
                _drain(run)

    def _stored(
        self, ensemble: Ensemble, drawn: int, *, run: Incarnation | None = None, free: bool = False
    ) -> Generator[Result, None, None]:
        """Judge the first ``drawn`` samples, which the store holds, and tell again what is due by them."""
        from raychains.positions import position
        from raychains.store import codec

        records = {position(self._spec, r.meta): r for r in self._drawn.records()}
        for at in range(drawn):
            record: SampleRecord = records[at]
            tensors, own = codec.decode(self._drawn.read_sample(record.file))
            self._add(ensemble, tensors, own["sha256"])
            yield from self._due(ensemble, run=run, free=free)

    def _due(
        self, ensemble: Ensemble, *, run: Incarnation | None = None, free: bool = False
    ) -> Generator[Result, None, None]:
        """The report that the last sample completed, if any; the chain may go on once somebody asks for the next."""
        for stop in self._stops[:-1]:
            if stop.samples == ensemble.samples:
                yield self._report(ensemble, stop, free)
                if run is not None:
                    run.allow(stop.step)

    def _rest(self, ensemble: Ensemble, *, free: bool = False) -> Generator[Result, None, None]:
        """The report of the whole chain."""
        yield self._report(ensemble, self._stops[-1], free)

    # What is told

    def _report(self, ensemble: Ensemble, stop: Stop, free: bool) -> Result:
        """A report, durable before it is told."""
        from raychains.planning.budget import gradient_evaluations

        spec = self._spec
        known = self._told.get(stop.cycle)
        if known is None or known.get("samples_sha256") != ensemble.sha256:
            known = {
                "cycle": stop.cycle, "cycles": self._stops[-1].cycle + 1, "step": stop.step,
                "epoch": self._length * stop.step / spec.steps, "gradients": gradient_evaluations(spec) * stop.step // spec.steps,
                "samples": ensemble.samples, "samples_sha256": ensemble.sha256, "metrics": ensemble.metrics(),
            }  # fmt: skip
            self._folder.publish_report(spec.digest, known, self._drawn.last_incarnation())
            self._told[stop.cycle] = known
        return {"kind": "report", "report": known, "free": free, "step": stop.step}

    def _tick(self, status: Mapping[str, Any]) -> Result:
        names = ("step", "cycle", "loss", "waiting")
        return {"kind": "tick", **{name: status.get(name) for name in names}}

    def _end(self, status: str, *, seconds: float, reason: str = "") -> Result:
        return {"kind": "end", "done": True, "status": status, "reason": reason, "seconds": seconds}

    # Judging

    def _ensemble(self) -> Ensemble:
        """A new one, on the split val: no other split is ever asked for."""
        import torch

        from raychains import tasks
        from raychains.orchestration.tuning.ensemble import Ensemble
        from raychains.store import starts

        key = repr(self._spec.task.to_json())
        if key not in self._evaluations:
            task = self._tasks.get(key) or tasks.build(self._spec.task)
            self._tasks.clear()
            self._tasks[key] = task
            evaluation = task.splits()[self._setting.split]
            evaluation.bins = self._setting.bins
            if self._setting.gpus and torch.cuda.is_available():
                evaluation.to(torch.device("cuda"))
            self._evaluations = {key: evaluation}
        self._complete = starts.Completion(self._root)
        return Ensemble(self._evaluations[key])

    def _add(self, ensemble: Ensemble, tensors: Mapping[str, Any], sha256: str) -> None:
        from raychains.store import starts

        ensemble.add(self._complete(dict(tensors), starts.needed(self._spec)), sha256)


def _drain(run: Incarnation) -> None:
    """Wait until a chain that is asked to stop has written its checkpoint."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            event, _ = run.take(timeout=1.0)
        except queue.Empty:
            continue
        if event["kind"] == "ended":
            return
