"""Pack: several chains of one kind as one vectorised program, in which each keeps its own spec, streams and bytes.

Small networks spend most of a step between operations, not in them. A pack holds parameters, gradients, sampler's
states and noise of up to ``width`` chains as rows of static buffers and makes a step of all of them by one sequence of
operations. A member's tensors are views of its row, so that its samples and checkpoints are made as those of any other
chain.

A chain's bytes depend neither on the other rows nor on its place: `raychains.models.stacked` and `PackedParameters` say
how. Rows without a chain compute on zeros. A density's gradient is elementwise over points (`LogDensity.pointwise`), so
that a row can have lanes of its own as well.

Members may be at different steps, begin and end when they like. Where a sampler has an update for all rows
(`Sampler.apply`), `JointUpdate` makes it; another moves each row by itself, after the gradients of all, and one of
several gradients a step (`ClosureSampler`) after each of these. `PackedNetworks` computes networks' gradients, and
`PackedDensity` makes a density's steps, which may be compiled. The microcanonical samplers' step, which may be
compiled, is
`raychains.chain.isokinetic_pack`: there those members that are behind move until all are at one step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from raychains import samplers
from raychains.chain.isokinetic_pack import IsokineticRows
from raychains.chain.joint_update import JointUpdate
from raychains.chain.pack_row import AHEAD, Member, PackedParameters, Row, Stop
from raychains.chain.packable import check, key, moves_together
from raychains.chain.packed_density import COMPILED, PackedDensity
from raychains.chain.packed_networks import PackedNetworks
from raychains.core.errors import require
from raychains.core.sample import Progress
from raychains.core.spec import canonical_json
from raychains.samplers import LastLayerLaplace
from raychains.samplers.closure import ClosureSampler
from raychains.samplers.isokinetic import Isokinetic
from raychains.schedules import ScheduleValues
from raychains.tasks.base import LogDensity, PredictiveTask

HELD = 0.2
"""Seconds after which progress is returned without a sample."""


class Pack:
    """Steps its members together. Threads may each call `advance` for a chain of their own; they meet there.

    Args:
        chain: the first member's kind decides everything; it joins by `join`, as others do.

    Raises:
        UserError: chains of this kind cannot be packed.
    """

    def __init__(self, chain: Member) -> None:
        spec, task = chain.spec, chain.task
        check(spec, task, chain.model)
        self.key, self.width = key(spec), spec.pack
        self._meeting = threading.Condition()
        self._rows: dict[Member, Row] = {}
        compiles = spec.compile != "none"
        self._parameters = PackedParameters(chain.sampled, self.width, compiles=compiles)
        theta = self._parameters.theta
        self._losses = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
        self._several = chain.sampler.gradients_per_step > 1 and not isinstance(chain.sampler, Isokinetic)
        """A step takes several gradients, after each of which every row moves by itself."""
        self._measures = isinstance(chain.sampler, LastLayerLaplace)
        self._joint: JointUpdate | None = None
        self._isokinetic: IsokineticRows | None = None
        """What moves all rows at once; where there is neither, each chain's own sampler moves its row."""
        self._density: PackedDensity | None = None
        self._networks: PackedNetworks | None = None
        if isinstance(task, PredictiveTask):
            self._networks = PackedNetworks(chain, task, self._parameters, self.width, compiles=compiles)
        if not isinstance(chain.sampler, Isokinetic) and not moves_together(spec):
            return
        own = chain.sampler.param_groups[0]
        joint = samplers.build(
            spec.sampler, [theta], lr=own["lr"], temperature=own["temperature"], seed=0, lanes=len(theta)
        )
        if isinstance(joint, Isokinetic):
            assert self._networks is not None
            gradient = self._networks.traced_gradient if compiles else self._networks.gradient_at
            self._isokinetic = IsokineticRows(
                joint, theta, self._parameters.size, self._networks.batch, gradient, compiles=compiles
            )
            return
        self._joint = JointUpdate(joint, chain, self._parameters, COMPILED if compiles else 1)
        if isinstance(task, LogDensity):
            self._density = PackedDensity(task, self._parameters, self._joint, compiles=compiles)

    def __len__(self) -> int:
        return len(self._rows)

    # Members

    def join(self, chain: Member) -> Self:
        """Give a chain a row: from now on its tensors are views of it, until it leaves. Returns itself.

        Raises:
            UserError: the pack is full, or of another kind.
        """
        with self._meeting:
            require(key(chain.spec) == self.key, "chain", chain.spec.digest[:12], "be of the pack's kind")
            require(len(self._rows) < self.width, "chain", chain.spec.digest[:12], "find a free row: the pack is full")
            index = min(set(range(self.width)) - {row.index for row in self._rows.values()})
            kind = canonical_json([chain.spec.schedule.to_json(), chain.spec.sampler.to_json()])
            dropout = torch.Generator(self._parameters.theta.device)
            dropout.set_state(chain.streams.dropout[-1])
            row = self._rows[chain] = Row(chain, index, kind, dropout)
            self._parameters.join(row)
            if self._joint is not None:
                self._joint.join(row)
            chain.losses.move(self._losses[index])
            if self._networks is not None:
                self._networks.batches.join(row)
            if self._isokinetic is not None:
                self._isokinetic.forget()
        return self

    def leave(self, chain: Member) -> None:
        """Give a chain tensors of its own again, and its row to others."""
        with self._meeting:
            if (row := self._rows.pop(chain, None)) is None:
                return
            self._parameters.leave(row)
            if self._joint is not None:
                self._joint.leave(row)
            chain.losses.move(torch.zeros_like(self._losses[row.index]))
            if self._networks is not None:
                self._networks.batches.leave(row)
            if self._isokinetic is not None:
                self._isokinetic.forget()
            self._meeting.notify_all()

    # Steps

    def advance(self, chain: Member, stop: Stop) -> list[Any]:
        """Run to a member's next events, together with all others, and return them; empty if it is done or ``stop()``
        held.

        Nobody makes a step before every member's thread has come here: the last one steps for all.

        Raises:
            Exception: what ended this chain, which leaves; the others go on.
        """
        with self._meeting:
            if stop():
                self._meeting.notify_all()  # who waits for this chain may have to stop as well
                return []
            row = self._rows[chain]
            row.stop, row.result, row.since = stop, None, time.monotonic()
            while row.result is None:
                if all(other.stop is not None and other.result is None for other in self._rows.values()):
                    self._run()
                    self._meeting.notify_all()
                elif stop():
                    row.deliver()
                else:
                    self._meeting.wait()
            row.stop = None
            found, row.result = row.result, None
        if chain.done or isinstance(found, Exception):
            self.leave(chain)
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self) -> None:
        """Make steps until a row has a result; an error that is no chain's own ends them all."""
        rows = list(self._rows.values())
        try:
            with rows[0].chain.stepping():  # the members' threads wait: none restores a switch in the middle of a step
                self._steps(rows)
        except Exception as error:  # some rows may have moved and others not
            for row in rows:
                row.result = error

    def _steps(self, rows: Sequence[Row]) -> None:
        own = self._joint is None and self._isokinetic is None
        while True:
            if self._ended(rows):
                return
            moving, most = self._moving(rows)
            steps = min(most, self._prepare(moving))
            made = 0
            with torch.no_grad():  # once for many steps: what needs gradients says so
                while made < steps:
                    at_once = self._step(made, steps, moving)
                    made += at_once
                    for row in moving:
                        row.chain.step += at_once
                    if own and any(row.result is not None for row in rows):
                        break
                    if made < steps and any(row.stop() for row in rows):  # type: ignore[misc]
                        break
            if self._isokinetic is not None:
                self._isokinetic.give_back()
            self._note(moving, made)
            if any(row.result is not None for row in rows):
                return

    def _ended(self, rows: Sequence[Row]) -> bool:
        """Return whether rows are done or to stop; these have a result."""
        ended = False
        for row in rows:
            assert row.stop is not None
            if row.chain.done or row.stop():
                row.deliver()
                ended = True
        return ended

    def _moving(self, rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
        """Return the rows that make the next steps, and how many at most.

        All rows move; where they have to be at one step, those that are behind do, until they are level with the next.
        """
        if self._isokinetic is None:
            return rows, AHEAD
        least, *others = sorted({row.chain.step for row in rows})
        moving = [row for row in rows if row.chain.step == least]
        self._isokinetic.gather(moving)
        return moving, others[0] - least if others else AHEAD

    # Steps ahead

    def _prepare(self, rows: Sequence[Row]) -> int:
        """Make the coming steps' batches and numbers ready; return how many no row's event cuts short."""
        known: dict[Any, tuple[list[ScheduleValues], Any]] = {}
        steps = AHEAD
        for row in rows:
            if not 0 <= row.made < len(row.ahead):
                # Rows with equal settings at one step have their numbers computed once.
                step = row.chain.step
                which = (row.kind, step)
                if which not in known:
                    known[which] = self._look_ahead(row.chain)
                row.at, (row.ahead, row.numbers) = step, known[which]
            steps = min(steps, len(row.ahead) - row.made)
        if self._joint is not None:
            self._joint.prepare(rows, steps)
        if self._networks is not None:
            self._networks.batches.prepare(self._rows.values(), rows, steps)
        return steps

    def _look_ahead(self, chain: Member) -> tuple[list[ScheduleValues], Any]:
        """Return settings and coefficients from the next step on to the first that may have an event."""
        group: dict[str, Any] = dict(chain.sampler.param_groups[0])
        ahead: list[ScheduleValues] = []
        numbers = []
        epoch, room = chain.spec.steps_per_epoch, chain.draws.room
        whole = self._networks is None or self._networks.batches.whole
        for step in range(chain.step + 1, min(chain.step + AHEAD, chain.spec.steps) + 1):
            setting = chain.schedule.at(step)
            if ahead and setting.cycle != ahead[-1].cycle:  # a cycle's end may be checkpointed
                break
            group["lr"], group["temperature"] = setting.lr, setting.temperature
            ahead.append(setting)
            numbers.append(chain.sampler.coefficients(group, step) if self._joint is not None else ())
            room -= setting.keep
            event = step == 1 or chain.logs(step) or chain.measures(step)  # the first step's loss is noted by itself
            if room < 0 or event or not (whole or step % epoch):
                break
        return ahead, np.array(numbers)

    # One step

    def _step(self, number: int, steps: int, rows: Sequence[Row]) -> int:
        """Make the ``number``-th of the prepared steps; return how many were made, several where they are compiled."""
        if self._density is not None:
            return self._density.step(number, steps, rows)
        assert self._networks is not None
        if self._several:
            self._stages(number, rows, self._networks)
            return 1
        if self._networks.drops:
            self._networks.drop(number, rows)
        if self._isokinetic is not None:
            self._losses += self._isokinetic.step(number, rows[0].next_setting)
        else:
            self._losses += self._losses_of(number, rows, self._networks)
            self._update(number, rows)
        return 1

    def _losses_of(self, number: int, rows: Sequence[Row], networks: PackedNetworks) -> Tensor:
        """Return the losses, [rows], of the ``number``-th of the prepared steps, and fill in gradients, or measure the
        last layer."""
        measured: dict[Row, Tensor] = {}
        for row in rows if self._measures else ():
            row.chain.apply(row.next_setting)
            try:
                loss = row.chain.measure_last_layer()
            except Exception as error:  # of this chain alone
                row.result = error
            else:
                measured |= {} if loss is None else {row: loss}
        if len(measured) == len(rows):
            losses = torch.zeros_like(self._losses, dtype=self._parameters.theta.dtype)
        else:
            losses = networks.gradients(*networks.batch(number))
        for row, loss in measured.items():
            losses[row.index] = loss
        return losses

    def _update(self, number: int, rows: Sequence[Row]) -> None:
        """Move all rows by the ``number``-th of the prepared steps."""
        if self._joint is not None:
            self._joint.move(number, rows)
            return
        for row in rows:
            row.chain.apply(row.next_setting)
            try:
                row.chain.sampler.step()
            except Exception as error:  # of this chain alone
                row.result = error

    def _stages(self, number: int, rows: Sequence[Row], networks: PackedNetworks) -> None:
        """Make the ``number``-th of the prepared steps with several gradients, after each of which every row moves by
        itself."""
        going: dict[Row, Generator[int, Any, Any]] = {}
        gradients = rows[0].chain.sampler.gradients_per_step
        for row in rows:
            row.chain.apply(row.next_setting)
            assert isinstance(row.chain.sampler, ClosureSampler)
            going[row] = row.chain.sampler.stages(networks.batches.parts(number, row))
        self._send(going, None)
        for part in networks.batches.of_step(number):
            batch = networks.batch(part)
            if networks.drops:
                networks.drop(part, list(going))
            for _ in range(gradients):
                self._send(going, networks.gradients(*batch))

    def _send(self, going: dict[Row, Generator[int, Any, Any]], losses: Tensor | None) -> None:
        """Move every row to where its next gradient is taken, or to its step's end, with the last one's loss; ended
        rows go."""
        for row, stages in list(going.items()):
            try:
                stages.send(None if losses is None else losses[row.index])
                continue
            except StopIteration as end:
                self._losses[row.index] += end.value
            except Exception as error:  # of this chain alone
                row.result = error
            del going[row]

    # Events

    def _note(self, rows: Sequence[Row], made: int) -> None:
        """Give every chain what the last ``made`` steps have changed, and have its events."""
        for row in rows:
            if row.result is not None:  # its own update failed
                continue
            if self._networks is not None and self._networks.drops:
                row.chain.streams.set_dropout(row.dropout.get_state())
            if self._joint is not None:
                self._joint.rewind(row, made)
            if self._density is not None:
                self._density.keep(row, made)
            try:
                row.held += row.chain.moved(made, row.ahead[row.made - 1])
            except Exception as error:  # of this chain alone: it diverged, and says so again after what it told before
                row.result, row.held = row.held or error, []
            else:
                self._deliver_if_due(row)

    def _deliver_if_due(self, row: Row) -> None:
        """Return a row's events once a sample is among them, at the chain's end, and after `HELD`."""
        late = time.monotonic() - row.since > HELD
        if row.held and (late or row.chain.done or not all(isinstance(event, Progress) for event in row.held)):
            row.deliver()


class Packs:
    """The packs of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._packs: list[Pack] = []

    def join(self, chain: Member) -> Pack:
        """Give a chain a row in a pack of its kind, a new one where none has room, and return that."""
        with self._lock:
            self._packs = [pack for pack in self._packs if len(pack)]
            kind = key(chain.spec)
            pack = next((p for p in self._packs if p.key == kind and len(p) < p.width), None)
            if pack is None:
                pack = Pack(chain)
                self._packs.append(pack)
            pack.join(chain)
            return pack
