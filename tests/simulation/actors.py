"""Simulated nodes and actors: chain workers that follow `law` and write through the real store code, evaluators that
count."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raychains import __version__
from raychains.chain.sample_index import expected_samples
from raychains.coordination.coordinator import AttemptEvent, Began, Ended, Sampled
from raychains.core.errors import RaychainsError, StorageAway, StorageRefused
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains.checkpoint_policy import state_to_resume
from raychains.orchestration.chains.error_classification import outcome_of, reason_of
from raychains.orchestration.chains.messages import AttemptStatus, ChainAssignment, ViewSummary
from raychains.orchestration.cluster.workers import CallFailed
from raychains.store import ChainStore, codec, initial_states
from tests.simulation import law
from tests.simulation.disk import SimulatedStorage

if TYPE_CHECKING:
    from tests.simulation.world import World

UNDELIVERED = 2
AGAIN = 1.0
"""Seconds between tries to reach storage that is away."""
STOP_PATIENCE = 10.0


class Reference:
    """Stands for an object reference; ``node`` has the object."""

    __slots__ = ("answer", "error", "node", "owner", "ready")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.ready, self.answer, self.node = False, None, ""
        self.error: CallFailed | None = None


class Node:
    """A machine of the cluster."""

    def __init__(self, name: str, cpus: int) -> None:
        self.name, self.cpus, self.alive = name, cpus, True
        self.cut_until = 0.0
        """Until when messages between it and the drivers are held up."""
        self.buried = False
        """Ray counts it as dead although it may still work."""
        self.draining = False
        """It is draining, as Ray knows."""
        self.actors: list[Actor] = []

    @property
    def known(self) -> bool:
        """Whether Ray counts it as alive."""
        return self.alive and not self.buried

    def free(self) -> float:
        """CPUs that no actor holds."""
        return self.cpus - sum(actor.cpus for actor in self.actors)


class Actor:
    """Methods by the name that a driver calls, with an underscore; each is given the reference that it answers."""

    def __init__(self, world: World, driver: Any, cpus: float) -> None:
        self.world, self.driver, self.cpus = world, driver, cpus
        self.node: Node | None = None
        self.dead = False
        """Its process is gone."""
        self.mourned = False
        """The driver learns, or has learnt, that it is dead."""
        self.frozen_until = 0.0
        self.waiting: list[Callable[[], None]] = []
        self.outstanding: dict[Reference, None] = {}
        self._delivered = 0.0

    def runs(self) -> Attempt | None:
        """Return the attempt that it runs, if it is a worker that does."""
        return None

    def placed(self, node: Node) -> None:
        """Begin on a node: calls so far arrive once the process is up."""
        self.node = node
        node.actors.append(self)
        up, self.waiting = self.waiting, []

        def begin() -> None:
            self.waiting = []
            for call in up:
                call()

        self.after(self.world.uniform(0.5, 3.0), begin)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Have something happen in its process, if that lives then and is not stopped."""

        def due() -> None:
            if self.dead:
                return
            if self.frozen_until > self.world.machine.now:
                self.world.machine.after(self.frozen_until - self.world.machine.now, due)
                return
            do()

        self.world.machine.after(seconds, due)

    def called(self, method: str, args: tuple[Any, ...], references: list[Reference]) -> None:
        """Take a call, which arrives after those before it."""
        self.outstanding |= dict.fromkeys(references)
        if self.mourned:
            self._fail(references)
            return

        def call() -> None:
            self.after(0.0, lambda: getattr(self, f"_{method}")(references, *args))

        if self.node is None:
            self.waiting.append(call)
        else:
            self.world.machine.after(self._delay(), call)

    def _delay(self) -> float:
        """Seconds until a message arrives, never before an earlier one."""
        machine, node = self.world.machine, self.node
        at = machine.now + self.world.uniform(0.001, 0.01)
        if node is not None:
            at = max(at, node.cut_until)
        self._delivered = max(self._delivered, at)
        return self._delivered - machine.now

    def answer(self, references: list[Reference], *answers: Any) -> None:
        """Send the answer, unless the driver takes the actor for dead by then."""
        node = self.node

        def arrive() -> None:
            if not self.mourned:
                for reference, answer in zip(references, answers, strict=True):
                    self._set(reference, answer, node.name if node is not None else "")

        self.world.machine.after(self._delay(), arrive)

    def refuse(self, references: list[Reference], error: CallFailed) -> None:
        """Send an error."""

        def arrive() -> None:
            if not self.mourned:
                for reference in references:
                    reference.error = error
                    self._set(reference, None, "")

        self.world.machine.after(self._delay(), arrive)

    def _set(self, reference: Reference, answer: Any, node: str) -> None:
        reference.ready, reference.answer, reference.node = True, answer, node
        self.outstanding.pop(reference, None)
        if self.driver is not None:
            self.driver.wake()

    def end(self, *, with_node: bool = False, notice: float = 0.3) -> None:
        """End the process; the driver learns of it after ``notice`` seconds."""
        if not self.dead:
            self.dead = True
            self.died()
            if self.node is not None:
                self.node.actors.remove(self)
                self.world.place_soon()
        self.mourn(with_node=with_node, notice=notice)

    def died(self) -> None:
        """Deal with what its process leaves."""

    def mourn(self, *, with_node: bool, notice: float) -> None:
        """Tell the driver that it is dead, whether it is or not."""

        def learn() -> None:
            if not self.mourned:
                self.mourned = True
                self._fail(list(self.outstanding), with_node)

        self.world.machine.after(notice, learn)

    def _fail(self, references: list[Reference], with_node: bool = False) -> None:
        for reference in references:
            reference.error = CallFailed("the actor died", died=True, with_node=with_node)
            self._set(reference, None, "")


class Worker(Actor):
    """A `ChainWorker`."""

    def __init__(self, world: World, driver: Any, cpus: float, config: Any) -> None:
        super().__init__(world, driver, cpus)
        self.config = config
        self.attempt: Attempt | None = None

    def runs(self) -> Attempt | None:
        attempt = self.attempt
        return None if self.dead or attempt is None or attempt.over or attempt.ended is not None else attempt

    def _load_user_code(self, references: list[Reference], payload: Any) -> None:
        self.answer(references, __version__)

    def _start(self, references: list[Reference], assignment: ChainAssignment) -> None:
        if self.attempt is not None:
            self.attempt.over = True
        self.attempt = Attempt(self, assignment)
        self.answer(references, None)
        self.attempt.begin()

    def _next(self, references: list[Reference], digest: str, number: int) -> None:
        attempt = self.attempt
        if attempt is None or (attempt.digest, attempt.number) != (digest, number):
            self.answer(references, Ended(digest, number, "stopped", "the worker runs another chain"), None)
        else:
            attempt.asked.append(references)
            attempt.deliver()

    def _status(self, references: list[Reference], digest: str) -> None:
        self.answer(references, self.attempt.status() if self.attempt is not None else None)

    def _stop(self, references: list[Reference], digest: str) -> None:
        if self.attempt is not None and self.attempt.digest == digest and self.attempt.stopped is None:
            self.attempt.stopped = self.world.machine.now
        self.answer(references, None)

    def died(self) -> None:
        if self.attempt is not None:
            self.attempt.died()


class Attempt:
    """One attempt at a chain: what `raychains.orchestration.chains.attempt.Attempt` does, step by step."""

    def __init__(self, worker: Worker, assignment: ChainAssignment) -> None:
        self.worker, self.world = worker, worker.world
        self.assignment, self.number = assignment, assignment.attempt
        self.spec = ChainSpec.from_json(assignment.spec)
        self.digest = self.spec.digest
        name = worker.node.name if worker.node is not None else ""
        root = SimulatedStorage(self.world.disk, name).without_waiting()
        self.store = ChainStore(root, self.digest)
        self.asked: deque[list[Reference]] = deque()
        self.told: deque[tuple[AttemptEvent, Any]] = deque()
        self.ended: Ended | None = None
        self.undelivered = 0
        self.stopped: float | None = None
        self.over = False
        self.waiting: str | None = None
        self.state = law.State.of(self.digest, None)
        self.saved = -1
        self.seconds = 0.0
        self.pace = self.world.uniform(0.05, 0.4)
        self.checkpoint_due = self.world.machine.now + worker.config.checkpoint_every

    # Steps of the process

    def begin(self) -> None:
        self._do(self.world.uniform(0.2, 1.0), self._open)

    def _do(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something that needs the storage; later where that is away, and end where it refuses."""

        def due() -> None:
            if self.over or self.ended is not None:
                return
            try:
                what()
                self.waiting = None
            except StorageAway as error:
                self.waiting = reason_of(error)
                if self.stopped is not None and self.world.machine.now - self.stopped > STOP_PATIENCE:
                    self._end("stopped", reason_of(error))
                else:
                    self._do(AGAIN, what)
            except (StorageRefused, RaychainsError, OSError) as error:
                self._end(outcome_of(error), reason_of(error))

        self.worker.after(seconds, due)

    def _open(self) -> None:
        torn: list[tuple[str, str]] = []
        found = state_to_resume(self.spec, self.store, self.assignment.restart, lambda *what: torn.append(what))
        key, start = initial_states.key_of(self.spec), 0.0
        if key is not None:
            start = float(initial_states.read(self.store.root, key)["theta"][0, 0, 0])
        self.state = law.State.of(self.digest, found["chain"] if found is not None else None, start)
        self.seconds = found["seconds"] if found is not None else 0.0
        if self.state.noise < self.assignment.restart and self.state.step >= self.assignment.restart_from:
            self.state = law.State(self.state.step, self.state.index, self.state.value, self.assignment.restart)
            self._save()
        about = {**self.assignment.about, "from_step": self.state.step, "noise_attempt": self.state.noise}
        self.store.begin(self.spec, self.number, about)
        self.world.began(self)
        self._tell(Began(self.digest, self.number, self.state.index, self.state.step, self.state.noise, torn))
        self._do(self._take(), self._step)

    def _take(self) -> float:
        """Seconds until the next sample or a cycle's end, whatever is first; some steps at once, as events are dear."""
        return 5 * self.pace

    def _step(self) -> None:
        if self.stopped is not None:
            self._save()
            self._end("stopped")
            return
        if self.undelivered >= UNDELIVERED:
            self._do(0.2, self._step)
            return
        state = self.state
        for _ in range(5):
            state = state.next()
            if state.step == self.world.diverges.get(self.digest) and state.noise == 0:
                self._end("diverged", "the loss became nan", law.cycle_start(state.step))
                return
            if state.step in law.kept() or law.at_cycle_end(state.step) or state.step == law.STEPS:
                break
        if state.step in law.kept():
            sample = law.sample(self.digest, state)
            record, data = self.store.publish_sample(sample, self.number, {})
            self.world.published(self, record)
            self._tell(Sampled(self.digest, self.number, state.index - 1, record), data)
            self.undelivered += 1
        self.seconds += self.pace * (state.step - self.state.step)
        self.state = state
        self._do(0.01, self._after_step)

    def _after_step(self) -> None:
        now, step = self.world.machine.now, self.state.step
        if step == law.STEPS:
            self._do(0.01, self._finish)
            return
        if now >= self.checkpoint_due or law.at_cycle_end(step):
            self._save()
            self.checkpoint_due = now + self.worker.config.checkpoint_every
        self._do(self._take(), self._step)

    def _note_progress(self) -> None:
        step = self.state.step
        self.store.publish_progress([{"step": step, "seconds": self.seconds}], step, self.number)

    def _save(self) -> None:
        if self.saved == self.state.step:
            return
        step = self.state.step
        self._note_progress()
        state = {"chain": self.state.to_json(), "seconds": self.seconds}
        self.store.publish_checkpoint(state, step, self.number, cycle_end=law.at_cycle_end(step))
        self.saved = step

    def _finish(self) -> None:
        self._note_progress()
        whole = self.store.finish(attempt=self.number, expected=expected_samples(self.spec))
        self._end("finished" if whole else "stopped")

    def _end(self, outcome: Any, reason: str = "", cycle_start: int = 0) -> None:
        self._tell(Ended(self.digest, self.number, outcome, reason, self.seconds, cycle_start))
        self.over = True

    def died(self) -> None:
        """Leave half a file behind, where the filesystem does: one that was being written."""
        if self.over or self.ended is not None or not self.world.torn or not self.world.machine.chance(0.5):
            return
        state = self.state
        while state.step < law.STEPS and state.step not in law.kept()[state.index : state.index + 1]:
            state = state.next()
        if self.world.machine.chance(0.5) and state.index > self.state.index:
            data = codec.encode(law.sample(self.digest, state).tensors, {})
            name = f"samples/{state.index - 1:06d}-theta-{self.number}.safetensors"
        else:
            tensors, tree = codec.flatten({"chain": self.state.to_json(), "seconds": self.seconds})
            data = codec.encode(tensors, {"state": tree})
            name = f"checkpoints/{self.state.step:010d}-{self.number}.safetensors"
        path = f"simulated/chains/{self.digest}/{name}"
        if path not in self.world.disk.files:
            cut = self.world.machine.rng.randrange(len(data))
            self.world.disk.put(path, data[:cut], self.worker.node.name if self.worker.node else "")

    # What the driver hears

    def _tell(self, event: AttemptEvent, data: Any = None) -> None:
        self.told.append((event, data))
        self.deliver()

    def deliver(self) -> None:
        while self.asked and (self.told or self.ended is not None):
            event, data = self.told.popleft() if self.told else (self.ended, None)
            assert event is not None
            if isinstance(event, Ended):
                self.ended = event
            elif isinstance(event, Sampled):
                self.undelivered -= 1
            self.worker.answer(self.asked.popleft(), event, data)

    def status(self) -> AttemptStatus:
        return AttemptStatus(
            digest=self.digest, step=self.state.step, seconds=self.seconds, cycle=law.cycle_of(max(1, self.state.step)),
            stage="sampling", lr=0.1, temperature=1.0, waiting=self.waiting, made=self.state.step,
            held="its samples are not taken" if self.undelivered >= UNDELIVERED else None,
        )  # fmt: skip


class Evaluator(Actor):
    """An `EvaluationWorker`: a block is the sample's place and value, a summary the count and the sum."""

    def __init__(self, world: World, driver: Any, cpus: float, config: Any) -> None:
        super().__init__(world, driver, cpus)
        self.free = 0.0

    def _alive(self, references: list[Reference]) -> None:
        self.answer(references, None)

    def _serve(self, references: list[Reference], work: Any) -> None:
        self.answer(references, None)

    def _predict(self, references: list[Reference], split: str, sample: Any, ref: Any, kept_with: Any) -> None:
        def predict() -> None:
            root = SimulatedStorage(self.world.disk, self.node.name if self.node else "").without_waiting()
            data = self.fetched(ref)
            try:
                if data is None:
                    data = ChainStore(root, sample.digest).read_sample(sample.file)
                tensors, description = codec.decode_sample(data)
            except (StorageAway, StorageRefused) as error:
                away = isinstance(error, StorageAway)
                self.refuse(references, CallFailed(str(error), raised=True, storage_away=away, cause=error))
                return
            except Exception as error:
                self.refuse(references, CallFailed(str(error), raised=True, cause=error))
                return
            value = float(tensors["theta"][0, 0, 0])
            block = ((sample.digest, description["index"], value),)
            name = self.node.name if self.node is not None else ""
            self.answer(references, name, *[block] * (len(references) - 1))

        self._later(predict)

    def _fetch(self, references: list[Reference], *blocks: Any) -> None:
        for block in blocks:
            if block.ready and self.world.has(block.node) and self.node is not None:
                block.node = self.node.name
        self.answer(references, None)

    def fetched(self, ref: Any) -> Any:
        """Return an object, None where it went."""
        if ref is None or not isinstance(ref, Reference):
            return None
        return ref.answer if ref.ready and ref.error is None else None

    def _blocks(self, references: list[Reference], blocks: tuple[Any, ...]) -> list[Any] | None:
        """Return the objects of references; None where one went with its node: the call fails."""
        found: list[Any] = []
        for block in blocks:
            if block.error is not None or not block.ready or not self.world.has(block.node):
                self.refuse(references, CallFailed("an object was lost", lost_object=True))
                return None
            found += block.answer
        return found

    def _reduce(self, references: list[Reference], split: str, shard: int, weights: Any, *blocks: Any) -> None:
        self._later(lambda: self._combined(references, blocks, lambda found: found))

    def _summarise(self, references: list[Reference], split: str, rows: bool, *parts: Any) -> None:
        self._later(lambda: self._combined(references, parts, self._summary))

    def _alone(self, references: list[Reference], split: str, rows: bool, *blocks: Any) -> None:
        self._summarise(references, split, rows, *blocks)

    def _combined(self, references: list[Reference], blocks: tuple[Any, ...], make: Callable[[Any], Any]) -> None:
        if any(isinstance(b, Reference) and not b.ready for b in blocks):
            self._later(lambda: self._combined(references, blocks, make))  # its arguments are made
            return
        if (found := self._blocks(references, blocks)) is not None:
            self.answer(references, make(found))

    @staticmethod
    def _summary(found: list[Any]) -> ViewSummary:
        total = float(sum(int(value) for _, _, value in found))
        return ViewSummary(metrics=[{"n": float(len(found)), "sum": total}], curves=[{}], rows={})

    def _later(self, do: Callable[[], None]) -> None:
        now = self.world.machine.now
        self.free = max(self.free, now) + self.world.uniform(0.01, 0.1)
        self.after(self.free - now, do)
