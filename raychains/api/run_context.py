"""A run or a sweep as one driver works on it: its folder and resources, who is told, the lease on it, and Ray."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from raychains.api import callbacks
from raychains.callbacks import CallbackList
from raychains.core.config import Common
from raychains.core.errors import Interrupted, RayLost, StorageAway, StorageRefused, UserError
from raychains.core.validation import is_int
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.planning.events import Callback, Message
from raychains.store import ChainStore, RunStore
from raychains.tasks import Task

if TYPE_CHECKING:
    from raychains.orchestration.cluster.session import Session
    from raychains.orchestration.cluster.workers import Workers
    from raychains.orchestration.lease import Lease

AnyCommon = TypeVar("AnyCommon", bound=Common)


class RunContext:
    """What every run and sweep has: made before anything is written or started, it raises all errors of the options.

    Args:
        options: of the call; the callbacks that they request join ``callback`` once the run is leased.
        folder: of the run or the sweep.
        callback: called by the driver.
        task: the task where the user passed an object.
        workers: where actors run; None is on Ray.

    Raises:
        UserError: an option out of range, or a task that cannot travel to workers.
    """

    def __init__(
        self,
        options: Common,
        folder: RunStore,
        callback: CallbackList,
        task: Task | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.folder, self.callback, self.workers = folder, callback, workers
        self.plan: Mapping[str, Any] = {}
        """The stored plan; empty of a new run until it is written."""
        self._options = options
        self._requested = callbacks.requested(options, folder)
        self.resources = ResourceConfig.of(options)
        if not self.in_process:
            from raychains.orchestration.cluster import payload, session

            address, memory = options.address, options.object_store_memory
            if address is not None or memory is not None or session.connection():  # which warns when it is made
                session.check_address(address, object_store_memory=memory, warn=False)
            if task is not None:
                payload.check(task)

    @property
    def in_process(self) -> bool:
        """Whether the workers are threads of this process."""
        return self.workers is not None and self.workers.in_process

    @property
    def resumed(self) -> str:
        """How users go on with the run or the sweep."""
        return f"the same call with `resume=True`, `name={self.folder.name}`"

    @contextlib.contextmanager
    def leased(self, check_plan: Callable[[], None]) -> Iterator[Lease]:
        """Own the run or the sweep for the body.

        Args:
            check_plan: raises where the folder holds another plan.

        Raises:
            UserError: a name that is taken or that another living driver works on, or another plan.
        """
        from raychains.orchestration.lease import Lease

        resume, folder = self._options.resume, self.folder
        if resume and folder.exists():
            check_plan()
        with Lease(folder.root, folder.lease_name, patient=resume) as lease:
            if folder.exists():
                if not resume:
                    raise UserError(
                        f"name must be a new one, got {folder.name!r}: the {folder.kind} exists; continue it with "
                        "`resume=True` or choose another `name`"
                    )
                check_plan()
                self.plan = folder.plan()
                # A resumed run makes the same numbers.
                self.resources = ResourceConfig.of(with_bins(self._options, self.plan))
            for make in self._requested:
                self.callback.add(make(lease.driver_id))
            yield lease

    @contextlib.contextmanager
    def driving(self, lease: Lease, digests: Iterable[str], *, fresh: bool) -> Iterator[None]:
        """Connect to Ray for a body that runs the chains, unless the workers are of this process.

        Args:
            digests: of the chains.
            fresh: the plan was written just now.

        Raises:
            UserError: another driver has taken the run or the sweep over, or the body is refused.
        """
        with (
            self._free_if_refused(digests, fresh=fresh),
            contextlib.nullcontext() if self.in_process else on_ray(self._options, self.resumed, self.callback),
        ):
            lease.confirm()  # an entry that came at the same time is listed by now
            yield
        if lease.lost:
            raise UserError(f"{lease.lost}; this driver stopped, its chains go on from their last checkpoints")

    @contextlib.contextmanager
    def _free_if_refused(self, digests: Iterable[str], *, fresh: bool) -> Iterator[None]:
        """Leave a new name free where the body is refused before any chain began, as by a cluster without GPUs."""
        try:
            yield
        except (StorageAway, StorageRefused):
            raise
        except UserError:
            if fresh and not begun(self.folder, digests):
                self.folder.remove_plan()
            raise

    def interrupted(self, done: str) -> Interrupted:
        """Return the error of a run or a sweep that the user stopped with so much done."""
        return Interrupted(
            f"stopped with {done}; the others go on from their last checkpoints. To go on: {self.resumed}"
        )


def with_bins(options: AnyCommon, *plans: Mapping[str, Any]) -> AnyCommon:
    """Return the options with the bins of a run's calibration errors: those given, else those of its first plan that
    has any."""
    known = (options.bins, *(plan.get("bins") for plan in plans))
    return dataclasses.replace(options, bins=next((n for n in known if is_int(n) and n > 0), None))


def begun(folder: RunStore, digests: Iterable[str]) -> bool:
    """Return whether any of these chains has begun."""
    return any(ChainStore(folder.root, digest).last_attempt() for digest in digests)


@contextlib.contextmanager
def connected(options: Common, callback: Callback | None = None) -> Iterator[Session]:
    """Connect to Ray for the body; a connection that is made here ends with it. ``callback`` is told of it before."""
    from raychains.orchestration.cluster.session import connect, connection

    if callback is not None and (what := connection(options.address)):
        callback.on(Message(text=what))
    session = connect(options.address, object_store_memory=options.object_store_memory, namespace=options.namespace)
    try:
        yield session
    finally:
        session.close()


@contextlib.contextmanager
def on_ray(options: Common, again: str, callback: Callback) -> Iterator[None]:
    """Connect to Ray for a body that drives work on it.

    Args:
        again: how users go on if Ray is gone, such as "the same command".

    Raises:
        RayLost: Ray is gone.
    """
    with connected(options, callback) as session:
        try:
            with session.watch.driving():
                yield
        except RayLost:
            reason = session.watch.lost
            raise RayLost(f"{reason}; what the store holds is intact. To go on: {again}") from None
