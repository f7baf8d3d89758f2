"""Crew: chain workers and evaluators that outlast a driver, so that a process that runs many pays for their start once."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from raychains.orchestration.evaluators import Evaluators
from raychains.orchestration.luggage import Luggage
from raychains.orchestration.names import Names
from raychains.orchestration.placement import Placement
from raychains.orchestration.session import Slots
from raychains.orchestration.workers import Workers
from raychains.planning.comparison import Comparison
from raychains.store import Root


class Crew:
    """The actors of several drivers that come one after another. Ray must be connected until it is closed.

    A driver that is given a crew takes its workers and evaluators from it and leaves them there at its end: ``with Crew()
    as crew``. Tasks may differ from driver to driver; an actor holds the data of the last one only. Nothing of it changes a
    sample. Where the store, the data root, or what a chain, an evaluator or a checkpoint is to cost differs, the actors
    that it concerns are ended and others started. A worker that was interrupted with a chain, or that is lost, is not used
    again.

    Workers hold their CPUs and GPUs until the crew is closed, also while the process evaluates or draws: other runs of
    the same cluster wait for them, and an autoscaler keeps their nodes. Evaluators hold no CPUs, but their shares of GPUs.
    All of them end with the process that made them, however it ends.

    Args:
        name: what the actors are called after.
    """

    def __init__(self, name: str = "crew") -> None:
        self._name = name
        self._workers: Workers | None = None
        self._made_for: tuple[object, ...] = ()
        """What the workers would have to be other ones for."""
        self._evaluators: Evaluators | None = None
        self._evaluate_for: tuple[object, ...] = ()
        """The same of the evaluators."""
        self._closed = False

    def workers(self, root: Root, slots: Slots, placement: Placement, luggage: Luggage) -> Workers:
        """For a driver whose predecessors are through; it lets them go with `Workers.close`.

        Args:
            root: the store.
            slots: what a worker holds.
            placement: checkpoints and data root.
            luggage: what building the driver's task needs.

        Raises:
            ValueError: the last driver is not through, or the crew is closed.
        """
        self._check_open()
        # How many slots there are, or may be used, is the driver's business alone.
        kind = replace(slots, count=0, concurrent=None, grows=False)
        cycles = placement.on_divergence == "restart-cycle"
        wanted = (root.uri, kind, placement.checkpoint_every, cycles, placement.data_root)
        if self._workers is not None and wanted == self._made_for:
            self._workers.serve(slots, luggage)
            return self._workers
        if self._workers is not None:
            self._workers.dismiss()
        self._made_for = wanted
        self._workers = Workers.of(root, slots, placement, luggage, Names(self._name), keeps=True)
        return self._workers

    def evaluators(
        self,
        comparison: Comparison,
        root: Root,
        placement: Placement,
        luggage: Luggage | None = None,
        *,
        slots: Slots | None = None,
    ) -> Evaluators:
        """For a comparison, whose drivers end none of them; arguments as for `Evaluators.of`.

        Raises:
            ValueError: the crew is closed.
        """
        self._check_open()
        share = placement.gpus_per_evaluator
        if self._workers is not None and share * (placement.evaluators or 1) > self._workers.slots.others_gpus:
            self._workers.dismiss()  # they may hold the GPUs that evaluators wait for
        held = (share, placement.evaluators, placement.accelerator_type) if share else ()
        wanted = (root.uri, placement.data_root, *held)
        if self._evaluators is not None and wanted == self._evaluate_for:
            self._evaluators.serve(comparison, placement, luggage, slots=slots)
            return self._evaluators
        if self._evaluators is not None:
            self._evaluators.close()
        self._evaluate_for = wanted
        self._evaluators = Evaluators.of(comparison, root, placement, luggage, slots=slots, names=Names(self._name))
        return self._evaluators

    def close(self) -> None:
        """End all of its actors; another call does nothing."""
        self._closed = True
        if self._workers is not None:
            self._workers.close()
            self._workers.dismiss()
        if self._evaluators is not None:
            self._evaluators.close()
        self._workers = self._evaluators = None

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the crew is closed")

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
