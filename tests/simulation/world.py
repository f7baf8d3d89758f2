"""One history: drivers that share a store, the cluster they run on, what goes wrong, and what must hold all the
same."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest import mock

from raychains.coordination.capacity import Node as Resources
from raychains.core import retry
from raychains.core.errors import RaychainsError, UserError
from raychains.orchestration import lease as lease_module
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.cluster.workers import ActorOptions
from raychains.orchestration.lease import Lease
from raychains.orchestration.run import driver as driver_module
from raychains.orchestration.run.evaluation_worker import EvaluationWorker
from raychains.orchestration.run.launch import driver_of
from raychains.orchestration.run.outcome import DriverOutcome
from raychains.planning import gradient_evaluations
from raychains.planning.comparison import Comparison
from raychains.store import ChainStore
from raychains.store import chain_store as chains_module
from tests.simulation import law
from tests.simulation.actors import Actor, Attempt, Evaluator, Node, Reference, Worker
from tests.simulation.disk import Disk, SimulatedStorage
from tests.simulation.machine import Lock, Machine, Process

CALM = 150.0
"""Seconds after which nothing more goes wrong."""
LATEST = 3000.0
"""Seconds within which every run must have ended."""
RESUMED = 30
"""Times that a run is resumed at most."""


@dataclass(frozen=True)
class Ending:
    """How a driver's process ended."""

    outcome: DriverOutcome | None
    error: BaseException | None
    spent: tuple[int, int] = (0, 0)


class Interrupted:
    """Ctrl-C and SIGTERM of a simulated process."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Interrupted:
        running().interrupt = self
        return self

    def __exit__(self, *_: object) -> None:
        pass


_RUNNING: dict[int, Driver] = {}
"""Drivers by their main threads."""


def running() -> Driver:
    """Return the driver in whose main thread this is."""
    return _RUNNING[threading.get_ident()]


class Driver:
    """The process of a driver: it runs one run of the comparison, and is the `Workers` of that driver."""

    def __init__(self, world: World, run: str, number: int) -> None:
        self.world, self.run, self.number = world, run, number
        self.process = Process(world.machine, f"{run}-{number}", self._main)
        self.process.skew = world.uniform(-1e4, 1e4)
        self.ending: Ending | None = None
        self.interrupt: Interrupted | None = None
        self.crash_after = -1
        """Changes of the disk until the process dies; never below 0."""
        self.actors: list[Actor] = []
        self.attempts: dict[str, int] = {}
        """The last one of each chain that began."""
        self.was_stopped = False
        """It was stopped at some time, maybe so long that others counted it as dead."""

    def _main(self, process: Process) -> None:
        world, machine = self.world, self.world.machine
        storage = SimulatedStorage(world.disk, self.run, process=process, before=self._changes)
        _RUNNING[threading.get_ident()] = self
        try:
            lease = Lease(
                storage, self.run, patient=True, driver_id=hashlib.md5(process.name.encode()).hexdigest(),
                clock=process, identity=process, background=process.background,
            )  # fmt: skip
            with lease:
                made = driver_of(
                    world.comparison, storage, world.resources, self, lease=lease, workers=self, clock=process
                )
                outcome = made.run()
                if lease.lost is not None:
                    raise UserError(lease.lost)
                spent = made.results.spent
                self.ending = Ending(outcome, None, (spent.total, spent.planned))
        except RaychainsError as error:
            self.ending = Ending(None, error)
        machine.tell(f"{process.name} ended: {self.ending.error if self.ending else 'killed'}")

    def _changes(self) -> None:
        self.crash_after -= 1
        if self.crash_after == 0:
            self.world.machine.tell(f"{self.process.name} dies between two changes of the disk")
            self.process.dead = True
            self.process.check()

    def on(self, event: Any) -> None:
        """Hear of an event: callbacks are data here."""
        self.world.machine.tell(f"{self.process.name} {type(event).__name__} {_short(event)}")

    # Cluster

    started_here = False
    in_process = False

    def nodes(self, accelerator_type: str | None = None) -> list[Resources]:
        return [Resources(float(n.cpus), 0.0, n.name) for n in self.world.nodes if n.known and not n.draining]

    def free(self, accelerator_type: str | None = None) -> list[Resources]:
        return [Resources(float(n.free()), 0.0, n.name) for n in self.world.nodes if n.known and not n.draining]

    def grows(self) -> bool:
        return False

    def unplaced(self, actors: Collection[Actor]) -> int:
        return sum(actor.node is None and not actor.mourned for actor in actors)

    def draining(self, actors: Collection[Actor]) -> list[Actor]:
        return [actor for actor in actors if actor.node is not None and actor.node.draining and actor.node.known]

    # Actors

    def put(self, value: Any) -> Any:
        raise NotImplementedError

    def reserve(self, bundle: Mapping[str, float], number: int) -> Any:
        raise NotImplementedError

    def release(self, reservation: Any) -> None:
        raise NotImplementedError

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Actor:
        self.process.check()
        made = (Evaluator if kind is EvaluationWorker else Worker)(self.world, self, options.cpus, *args)
        self.actors.append(made)
        self.world.pending.append(made)
        self.world.place_soon()
        return made

    def kill(self, actor: Actor) -> None:
        self.process.check()
        self.world.kill(actor)

    def dismiss(self, actor: Actor) -> None:
        self.kill(actor)

    def call(self, actor: Actor, method: str, *args: Any, group: str | None = None) -> Reference:
        return self.call_parts(1, actor, method, *args)[0]

    def call_parts(self, parts: int, actor: Actor, method: str, *args: Any, group: str | None = None) -> list[Any]:
        self.process.check()
        references = [Reference(actor) for _ in range(parts)]
        actor.called(method, args, references)
        return references

    def wait(self, calls: Sequence[Reference], timeout: float) -> list[Reference]:
        ready = [reference for reference in calls if reference.ready]
        if not ready and timeout:
            self.process.wait(timeout)
            ready = [reference for reference in calls if reference.ready][:1]
        return ready

    def result(self, call: Reference) -> Any:
        self.process.check()
        if call.error is not None:
            raise call.error
        return call.answer

    def wake(self) -> None:
        """End the wait of its process: something came."""
        self.process.wake()


class World:
    """Everything there is.

    Args:
        seed: of all that happens.
        calm: nothing goes wrong.
    """

    def __init__(self, seed: int, *, calm: bool = False, told: Callable[[str], None] | None = None) -> None:
        self.machine = machine = Machine(seed, told=told)
        rng = machine.rng
        self.disk = Disk(machine, exclusive=rng.random() < 0.6, lag=0.0)
        self.comparison = _comparison(rng.choice((2, 3, 4)), seed % 7 == 2)
        policy = rng.choice(("stop", "restart-cycle"))
        self.torn = rng.random() < 0.5
        """Workers that die may leave half a file behind."""
        self.diverges: dict[str, int] = {}
        if policy == "restart-cycle" and rng.random() < 0.5:
            some = rng.choice(sorted(self.comparison.chains()))
            self.diverges[some] = rng.randint(2, law.STEPS)
        self.resources = ResourceConfig(
            checkpoint_every=rng.choice((1.0, 5.0, 60.0)),
            on_divergence=policy,
            max_failures=3,
            evaluators=rng.choice((1, 2)),
            stall_timeout=5.0,
            slot_timeout=200.0,
        )
        self.nodes = [Node(f"node{n}", rng.choice((1, 2))) for n in range(rng.choice((1, 2, 3)))]
        self.pending: list[Actor] = []
        self.drivers: list[Driver] = []
        self.runs = [f"run{n}" for n in range(rng.choices((1, 2, 3), (6, 3, 1))[0])]
        self.finished: dict[str, Ending] = {}
        self.resumes = dict.fromkeys(self.runs, 0)
        self.begun: set[str] = set()
        """Attempts that ever began."""
        self.whole: set[str] = set()
        """Chains that were finished at some time."""
        for run in self.runs:
            machine.after(rng.uniform(0.0, 10.0) if run != "run0" else 0.0, partial(self.begin, run))
        if not calm:
            from tests.simulation import faults

            faults.plan(self)

    def uniform(self, low: float, high: float) -> float:
        """Return a random number."""
        return self.machine.rng.uniform(low, high)

    # The cluster

    def place_soon(self) -> None:
        """Place actors that wait, in a moment."""
        self.machine.after(0.05, self._place)

    def _place(self) -> None:
        for actor in list(self.pending):
            room = [n for n in self.nodes if n.known and not n.draining and n.free() >= actor.cpus]
            if actor.mourned or actor.dead:
                self.pending.remove(actor)
            elif room:
                self.pending.remove(actor)
                actor.placed(self.machine.rng.choice(room))

    def kill(self, actor: Actor) -> None:
        """Have Ray kill an actor: where its node cannot be reached, that comes later."""
        if actor.node is None:
            actor.dead = actor.mourned = True
            return
        actor.mourned = True
        late = max(0.0, actor.node.cut_until - self.machine.now)
        self.machine.after(late, lambda: None if actor.dead else actor.end(notice=0.0))

    def lose(self, node: Node) -> None:
        """A node goes with all that is on it."""
        node.alive = False
        self.machine.tell(f"{node.name} is lost")
        for actor in list(node.actors):
            actor.end(with_node=True, notice=self.uniform(0.5, 6.0))

    def bury(self, node: Node) -> None:
        """Ray gives a node up that it cannot reach; its processes go on for a while."""
        node.buried = True
        self.machine.tell(f"{node.name} counts as dead")
        for actor in list(node.actors):
            actor.mourn(with_node=True, notice=0.1)
        self.machine.after(self.uniform(0.0, 40.0), lambda: self.lose(node))

    def has(self, node: str) -> bool:
        """Return whether objects on a node can be had."""
        return any(n.name == node and n.known for n in self.nodes)

    # Runs

    def begin(self, run: str) -> None:
        """Start a driver for a run, or one more that resumes it."""
        number = sum(driver.run == run for driver in self.drivers)
        driver = Driver(self, run, number)
        self.drivers.append(driver)
        self.machine.tell(f"{driver.process.name} begins")
        if self.machine.now < CALM and self.machine.chance(0.2):
            driver.crash_after = self.machine.rng.randint(1, 40)
        driver.process.start()
        self._look_later(driver)

    def _look_later(self, driver: Driver) -> None:
        self.machine.after(1.0, lambda: self._look(driver))

    def _look(self, driver: Driver) -> None:
        """See whether the process ended; whoever runs it resumes it."""
        if driver.process.error is not None:
            self.machine.violated(f"{driver.process.name} failed: {driver.process.error!r}")
            self.finished[driver.run] = Ending(None, driver.process.error)
            return
        if not (driver.process.over or driver.process.dead):
            self._look_later(driver)
            return
        for actor in driver.actors:  # Ray ends a driver's actors with it
            actor.driver = None
            self.machine.after(self.uniform(0.0, 3.0), partial(self.kill, actor))
        ending = driver.ending
        outcome = ending.outcome if ending is not None else None
        if outcome is not None and not outcome.interrupted and (not outcome.failed or self.machine.now > CALM + 400):
            self.finished[driver.run] = ending or Ending(None, None)
            return
        self.resumes[driver.run] += 1
        if self.resumes[driver.run] > RESUMED:
            self.machine.violated(f"{driver.run} was resumed {RESUMED} times; the last: {ending}")
            self.finished[driver.run] = ending or Ending(None, None)
            return
        self.machine.after(self.uniform(1.0, 20.0), partial(self.begin, driver.run))

    # What workers tell

    def began(self, attempt: Attempt) -> None:
        """Note an attempt: its number is its own and its driver's highest, and it takes a chain from nobody without an
        excuse."""
        name = f"{attempt.digest[:6]}/{attempt.number}"
        self.machine.tell(f"{name} begins at step {attempt.state.step}")
        if name in self.begun:
            self.machine.violated(f"{name} begins twice")
        self.begun.add(name)
        mine = attempt.worker.driver
        if mine is not None and not attempt.worker.mourned:
            before = mine.attempts.get(attempt.digest, 0)
            if attempt.number < before:
                self.machine.violated(f"{name} of {mine.process.name} begins after {before}")
            mine.attempts[attempt.digest] = attempt.number
        if not self.disk.exclusive or self.disk.was_wrong or any(driver.was_stopped for driver in self.drivers):
            return
        for other in self.drivers:
            if other is not mine and not (other.process.dead or other.process.over):
                theirs = [a for actor in other.actors if (a := actor.runs()) is not None and a.digest == attempt.digest]
                if theirs:
                    self.machine.violated(f"{name} takes its chain from {theirs[0].number} of {other.process.name}")

    def published(self, attempt: Attempt, record: Any) -> None:
        """Look at a sample that became durable."""
        self.machine.tell(f"{attempt.digest[:6]}/{attempt.number} sample {record.meta.index}")

    # The history

    def run(self) -> World:
        """Live through it, and check what must hold at the end."""
        with _seams(self):
            self.machine.until(LATEST, lambda: len(self.finished) == len(self.runs))
            for driver in self.drivers:
                driver.process.kill()
            self._check()
        return self

    def _check(self) -> None:
        self.disk.calm()  # some histories end in an outage
        for run in self.runs:
            if run not in self.finished:
                self.machine.violated(f"{run} has not ended after {self.machine.now:.0f} s")
        root = SimulatedStorage(self.disk, "observer")
        values = law.all_undisturbed(self.comparison, self.diverges)
        for digest, expected in values.items():
            records = ChainStore(root, digest).all_records(law.SAMPLES)
            if records is None:
                self.machine.violated(f"chain {digest[:6]} is not whole")
                continue
            if [r.meta.index for r in records] != list(range(law.SAMPLES)):
                self.machine.violated(f"chain {digest[:6]} has samples {[r.meta.index for r in records]}")
                continue
            found = tuple(float(ChainStore(root, digest).sample(r.file)[0]["theta"][0, 0, 0]) for r in records)
            if found != expected:
                self.machine.violated(f"chain {digest[:6]} has other values: {found} for {expected}")
        for run, ending in self.finished.items():
            if ending.outcome is not None:
                self._check_outcome(run, ending, values)

    def _check_outcome(self, run: str, ending: Ending, values: Mapping[str, tuple[float, ...]]) -> None:
        outcome, violated = ending.outcome, self.machine.violated
        assert outcome is not None
        if outcome.failed:
            violated(f"{run}: chains failed: {outcome.failed}")
            return
        if outcome.samples != law.SAMPLES * len(values):
            violated(f"{run}: {outcome.samples} samples of {law.SAMPLES * len(values)} in the pool")
        if ending.spent[0] != ending.spent[1] or ending.spent[1] != _planned(self.comparison):
            violated(f"{run}: the ledger has {ending.spent}, not {_planned(self.comparison)}")
        for a, arm in enumerate(self.comparison.arms):
            for g, group in enumerate(arm.chains):
                total = float(sum(int(v) for spec in group for v in values[spec.digest]))
                view = outcome.views.get((a, g))
                expected = [{"n": float(law.SAMPLES * len(group)), "sum": total}]
                if view is None or view.metrics != expected:
                    violated(f"{run}: view {a}, {g} is {view and view.metrics}, not {expected}")


@cache
def _comparison(chains: int, started: bool) -> Comparison:
    return law.comparison(chains, started=started)


def _planned(comparison: Comparison) -> int:
    return sum(gradient_evaluations(spec) for spec in comparison.chains().values())


class Serial:
    """A pool of threads without threads."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *_: object) -> None: ...

    map = staticmethod(map)


@contextmanager
def _seams(world: World) -> Iterator[None]:
    """Replace what is random or has threads of its own."""
    retry._JITTER.seed(0)
    randbelow = mock.Mock(side_effect=lambda n: world.machine.rng.randrange(n))
    logging.disable(logging.CRITICAL)
    try:
        with (
            mock.patch.object(chains_module, "ThreadPoolExecutor", Serial),
            mock.patch.object(chains_module, "secrets", mock.Mock(randbelow=randbelow)),
            mock.patch.object(driver_module, "Interrupt", Interrupted),
            mock.patch.object(lease_module, "threading", mock.Mock(Lock=lambda: Lock(running().process))),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _short(event: Any) -> str:
    shown = {k: v for k, v in vars(event).items() if isinstance(v, str | int | float)}
    return " ".join(f"{k}={v[:12] if k == 'digest' else v}" for k, v in shown.items())
