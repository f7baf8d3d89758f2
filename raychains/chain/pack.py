"""Pack: several chains of one kind as one vectorised program, in which each keeps its own spec, streams and bytes.

Small networks spend most of a step between operations, not in them. A pack holds parameters, gradients, sampler's states and
noise of up to ``width`` chains as rows of static buffers and makes a step of all of them by one sequence of operations. A
member's tensors are views of its row, so that its samples and checkpoints are made as those of any other chain.

A chain's bytes depend neither on the other rows nor on its place: `raychains.models.stacked` says how, and behind the last
row the loss and the update have one more that no chain has. Rows without a chain compute on zeros. A density's gradient is
elementwise over points (`LogDensity.pointwise`), so that a row can have lanes of its own as well.
Members may be at different steps, begin and end when they like; each lane's numbers of the update (step size, noise, …) are
columns that the host prepares for several steps at once, on a CPU with their noise; a density's steps may be compiled, several into one. A sampler without such an update (`Sampler.apply`) moves each row by
itself, after the gradients of all, and one of several gradients a step (`ClosureSampler`) after each of these. The microcanonical samplers' step, which may be compiled, is `raychains.chain.isokinetic_pack`: there those members that
are behind move until all are at one step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from raychains import priors, samplers
from raychains.chain.compiler import compiled
from raychains.chain.isokinetic_pack import NOISE_AHEAD, Batch, Drawn, IsokineticRows
from raychains.chain.packable import check, key, moves_together
from raychains.chain.random_streams import RandomStreams
from raychains.core import gpus
from raychains.core.errors import require
from raychains.core.sample import Progress
from raychains.core.spec import ChainSpec, canonical_json
from raychains.data.source import EpochOrder
from raychains.models import stacked
from raychains.models.stacked import VECTOR
from raychains.samplers import LastLayerLaplace, Sampler
from raychains.samplers.closure import ClosureSampler
from raychains.samplers.isokinetic import Isokinetic
from raychains.schedules import Schedule, ScheduleValues
from raychains.tasks import Task
from raychains.tasks.base import LogDensity, PredictiveTask

Stop = Callable[[], bool]
AHEAD = 64
"""Steps at most whose batches and numbers are prepared together."""
COMPILED = 8
"""Steps of a density that one call of a compiled function makes: 8 take about 14 s to compile, and 16 some twice as long."""
HELD = 0.2
"""Seconds after which progress is returned without a sample."""


class Member(Protocol):
    """The chain as a pack sees it."""

    spec: ChainSpec
    task: Task
    device: torch.device
    model: nn.Module
    sampled: dict[str, nn.Parameter]
    sampler: Sampler
    schedule: Schedule
    step: int
    num_data: int
    streams: RandomStreams

    @property
    def done(self) -> bool:
        """True if every step has been made."""

    def stepping(self) -> AbstractContextManager[None]:
        """Return a context around steps, in which torch's process-wide switches are as the spec says."""

    def order(self, epoch: int) -> Sequence[Any]:
        """Return an epoch's batches."""

    def logs(self, step: int) -> bool:
        """Return whether there is a progress record after ``step`` steps."""

    def measures(self, step: int) -> bool:
        """Return whether the loss on held-out examples is measured after ``step`` steps."""

    def moved(self, steps: int, setting: ScheduleValues) -> list[Any]:
        """Note steps that were made, the last of them under ``setting``; return the events."""

    def apply(self, setting: ScheduleValues) -> None:
        """Give the sampler a step's learning rate and temperature."""

    def settle(self, losses: Tensor) -> None:
        """Take a place for the sum of losses."""

    def room(self) -> int:
        """Return how many draws can be kept before one is an event."""

    def keep(self, draws: Tensor) -> None:
        """Keep draws [n, …] of the one parameter of a density, at most `room`."""

    def measure_last_layer(self) -> Tensor | None:
        """Measure the last layer on the next step's batch and return its loss, if the sampler's settings are such; else None."""


@dataclass(eq=False)
class _Lane:
    """A member and its row."""

    chain: Member
    row: int
    kind: str
    """Equal for lanes whose settings at a step are equal."""
    dropout: torch.Generator
    stop: Stop | None = None
    """Set while `Pack.advance` is asked for this lane."""
    result: list[Any] | Exception | None = None
    held: list[Any] = field(default_factory=list)
    """Progress that waits for a sample, a stop or `HELD`: to wake a thread for each would cost more than a small step."""
    since: float = 0.0
    """When `Pack.advance` was asked."""
    at: int = -1
    """The step before the first of `ahead`."""
    ahead: list[ScheduleValues] = field(default_factory=list)
    """The coming steps' settings, to the next step that may have an event."""
    numbers: Any = None
    """Their coefficients, [steps, coefficients]."""
    noise_from: int = 0
    """Position of its noise where the steps began that are prepared now."""


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
        self.key, self.width, self._model = key(spec), spec.pack, chain.model
        self._density = task if isinstance(task, LogDensity) else None
        self._meeting = threading.Condition()
        self._lanes: dict[Member, _Lane] = {}
        self._compiles = spec.compile != "none"
        self._compiled: Callable[..., Any] | None = None
        self._layout(chain)
        self._numbers = np.zeros((AHEAD, self._coefficients, len(self._theta), 1))
        noises = chain.sampler.noises if self._coefficients else 0
        # A GPU's generator cannot go back: it draws for the very steps that are made.
        ahead = NOISE_AHEAD // (self._theta.shape[1] * max(1, noises)) if self._theta.is_cpu else 1
        self._noise_steps = max(1, min(AHEAD, ahead))
        if self._compiles:
            self._noise_steps = max(1, self._noise_steps // COMPILED) * COMPILED
        self._noise_buffer = self._theta.new_zeros(self._noise_steps, noises, *self._theta.shape)
        self._gradients_per_step, self._parts = chain.sampler.gradients_per_step, chain.sampler.parts
        """`_parts`: sub-batches that a step's batch is divided into."""
        self._measures = isinstance(chain.sampler, LastLayerLaplace)
        self._whole = self._density is not None or (spec.steps_per_epoch == 1 and self._parts == 1)
        self._stale = True
        """The whole data of every row are to be gathered again."""
        self._prior: Callable[..., Any] | None = None
        """Returns each row's gradients of −log p(θ)/N, given parameters [rows, …] by name."""
        if spec.prior is not None:
            prior, num_data = priors.from_json(spec.prior.to_json()), chain.sampler.num_data

            def of_one(parameters: dict[str, Tensor]) -> Tensor:
                return -prior.log_density(parameters) / num_data

            self._prior = torch.func.vmap(torch.func.grad(of_one))
        if isinstance(task, PredictiveTask):
            self._task = task
            self._buffers(chain)
        else:
            self._path = self._theta.new_zeros(AHEAD, *self._theta.shape)
            """Positions after each of the prepared steps."""

    def _layout(self, chain: Member) -> None:
        rows = self.width + (not self._compiles)
        like = next(iter(chain.sampled.values()))
        self._shapes = {name: p.shape for name, p in chain.sampled.items()}
        self._size = sum(p.numel() for p in chain.sampled.values())
        # Whole vectors give every row the same bits in any place, which compiled chains do without.
        padded = self._size if self._compiles else -(-self._size // VECTOR) * VECTOR
        self._theta, self._grads = (torch.zeros(rows, padded, dtype=like.dtype, device=like.device) for _ in range(2))
        self._unpadded = [t[:, : self._size] for t in (self._theta, self._grads)]
        self._parameters, self._gradients = self._views(self._theta), self._views(self._grads)
        beside = stacked.beside(chain.model)
        self._of_loss = {n: v for n, v in self._parameters.items() if n in beside}
        """Parameters that the loss has beside the network's outputs."""
        self._of_network = [{n: v[: self.width] for n, v in d.items()} for d in (self._parameters, self._gradients)]
        self._losses = torch.zeros(rows, dtype=torch.float64, device=like.device)
        own = chain.sampler.param_groups[0]
        self._isokinetic: IsokineticRows | None = None
        self._joint: Sampler | None = None
        """The sampler that moves all rows at once; None where each chain's own moves its row."""
        self._coefficients = 0
        """How many numbers it needs at every step."""
        self._states: dict[str, tuple[Tensor, float | None]] = {}
        """Its states, as the parameters, and what each begins with: None is a copy of these."""
        if not isinstance(chain.sampler, Isokinetic) and not moves_together(chain.spec):
            return
        self._joint = samplers.build(
            chain.spec.sampler, [self._theta], lr=own["lr"], temperature=own["temperature"], seed=0, lanes=rows
        )
        if isinstance(self._joint, Isokinetic):
            gradient = self._traced_gradient if self._compiles else self._gradient_at
            self._isokinetic = IsokineticRows(
                self._joint, self._theta, self._size, self._batch_of, gradient, compiles=self._compiles
            )
            return
        self._noise = Drawn()
        self._joint._noise = self._noise  # type: ignore[assignment]  # whom its update asks
        self._coefficients = len(chain.sampler.coefficients(own))
        self._states = {
            name: (self._joint.state_of(self._theta, name), fill) for name, fill in chain.sampler.states(own).items()
        }

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return parameters as [rows, …], without a copy, of a buffer [rows, numbers]."""
        return stacked.views(flat, self._shapes)

    def _buffers(self, chain: Member) -> None:
        rows, examples = len(self._theta), chain.num_data
        self._batch = chain.spec.batch_size
        batch = min(self._batch, examples)
        size = -(-batch // self._parts)
        self._even = examples % batch == 0 and batch % self._parts == 0
        self._indices = np.zeros((AHEAD * self._parts, rows, size), dtype=np.int64)
        self._weights = np.zeros((AHEAD * self._parts, rows, size))
        self._full = self._divided(batch)
        one, _ = self._task.source.batch(torch.zeros(1, dtype=torch.int64, device=self._theta.device))
        one = self._task.network_inputs(one, self._theta.dtype)
        kind = stacked.TracedNetwork if self._compiles else stacked.StackedNetwork
        self._network = kind(self._model, self.width, size, one, self._theta)
        width = self._network.outputs.shape[1]
        self._outputs = self._theta.new_zeros(rows, width, size)
        self._targets = torch.empty(0)

    def __len__(self) -> int:
        return len(self._lanes)

    # Members

    def join(self, chain: Member) -> Self:
        """Give a chain a row: from now on its tensors are views of it, until it leaves. Returns itself.

        Raises:
            UserError: the pack is full, or of another kind.
        """
        with self._meeting:
            require(key(chain.spec) == self.key, "chain", chain.spec.digest[:12], "be of the pack's kind")
            require(len(self._lanes) < self.width, "chain", chain.spec.digest[:12], "find a free row: the pack is full")
            row = min(set(range(self.width)) - {lane.row for lane in self._lanes.values()})
            kind = canonical_json([chain.spec.schedule.to_json(), chain.spec.sampler.to_json()])
            dropout = torch.Generator(self._theta.device)
            dropout.set_state(chain.streams.dropout[-1])
            self._lanes[chain] = _Lane(chain, row, kind, dropout)
            for name, p in chain.sampled.items():
                self._views(self._theta)[name][row] = p.detach()
                p.data = self._views(self._theta)[name][row]
                p.grad = self._views(self._grads)[name][row]
            for state, (whole, fill) in self._states.items():
                whole[row] = self._theta[row] if fill is None else fill
                for p, view in zip(chain.sampled.values(), self._views(whole).values(), strict=True):
                    if (own := chain.sampler.state[p].get(state)) is not None:
                        view[row] = own
                    chain.sampler.state[p][state] = view[row]
            chain.settle(self._losses[row])
            if self._density is None:
                self._weights[:, row] = 1 / self._indices.shape[2]
            self._changed()
        return self

    def leave(self, chain: Member) -> None:
        """Give a chain tensors of its own again, and its row to others."""
        with self._meeting:
            if (lane := self._lanes.pop(chain, None)) is None:
                return
            for p in chain.sampled.values():
                p.grad = None
                p.data = p.data.clone()
                for state in self._states:
                    chain.sampler.state[p][state] = chain.sampler.state[p][state].clone()
            chain.settle(torch.zeros_like(self._losses[lane.row]))
            for whole in (self._theta, *(whole for whole, _ in self._states.values())):
                whole[lane.row] = 0
            self._noise_buffer[:, :, lane.row] = 0
            self._numbers[:, :, lane.row] = 0
            if self._density is None:
                self._indices[:, lane.row] = self._weights[:, lane.row] = 0
            self._changed()
            self._meeting.notify_all()

    def _changed(self) -> None:
        """Note that a row has another chain, or none."""
        self._stale = True
        if self._isokinetic is not None:
            self._isokinetic.forget()

    # Steps

    def advance(self, chain: Member, stop: Stop) -> list[Any]:
        """Run to a member's next events, together with all others, and return them; empty if it is done or ``stop()`` held.

        Nobody makes a step before every member's thread has come here: the last one steps for all.

        Raises:
            Exception: what ended this chain, which leaves; the others go on.
        """
        with self._meeting:
            if stop():
                self._meeting.notify_all()  # who waits for this chain may have to stop as well
                return []
            lane = self._lanes[chain]
            lane.stop, lane.result, lane.since = stop, None, time.monotonic()
            while lane.result is None:
                if all(other.stop is not None and other.result is None for other in self._lanes.values()):
                    self._run()
                    self._meeting.notify_all()
                elif stop():
                    lane.result, lane.held = lane.held, []
                else:
                    self._meeting.wait()
            lane.stop = None
            found, lane.result = lane.result, None
        if chain.done or isinstance(found, Exception):
            self.leave(chain)
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self) -> None:
        """Make steps until a lane has a result; an error that is no chain's own ends them all."""
        lanes = list(self._lanes.values())
        try:
            with lanes[0].chain.stepping():  # the members' threads wait: none restores a switch in the middle of a step
                self._steps(lanes)
        except Exception as error:  # some lanes may have moved and others not
            for lane in lanes:
                lane.result = error

    def _steps(self, lanes: Sequence[_Lane]) -> None:
        while True:
            if self._ended(lanes):
                return
            moving, most = self._moving(lanes)
            steps = min(most, self._prepare(moving))
            made = 0
            with torch.no_grad():  # once for many steps: what needs gradients says so
                while made < steps:
                    at_once = self._step(made, steps, moving)
                    made += at_once
                    for lane in moving:
                        lane.chain.step += at_once
                    if self._joint is None and any(lane.result is not None for lane in lanes):
                        break
                    if made < steps and any(lane.stop() for lane in lanes):  # type: ignore[misc]
                        break
            if self._isokinetic is not None:
                self._isokinetic.give_back()
            self._note(moving, made)
            if any(lane.result is not None for lane in lanes):
                return

    def _step(self, number: int, steps: int, lanes: Sequence[_Lane]) -> int:
        """Make the ``number``-th of the prepared steps; return how many were made, several where they are compiled."""
        if self._density is not None:
            if self._compiles and steps - number >= COMPILED:
                self._compiled_steps(number, lanes, self._density)
                return COMPILED
            self._gradients_of_density(self._density)
            self._update(number, lanes)
            self._path[number] = self._theta
            return 1
        if self._gradients_per_step > 1 and self._isokinetic is None:
            self._stages(number, lanes)
            return 1
        if self._network.drops:
            self._drop(number, lanes)
        if self._isokinetic is not None:
            (first, *_) = lanes
            self._losses += self._isokinetic.step(number, first.ahead[first.chain.step - first.at])
        else:
            self._losses += self._losses_of(number, lanes)
            self._update(number, lanes)
        return 1

    def _losses_of(self, number: int, lanes: Sequence[_Lane]) -> Tensor:
        """Return the losses, [rows], of the ``number``-th of the prepared steps, and fill in gradients, or measure the last layer."""
        measured: dict[_Lane, Tensor] = {}
        for lane in lanes if self._measures else ():
            self._set(lane)
            try:
                loss = lane.chain.measure_last_layer()
            except Exception as error:  # of this chain alone
                lane.result = error
            else:
                measured |= {} if loss is None else {lane: loss}
        if len(measured) == len(lanes):
            losses = self._theta.new_zeros(len(self._theta))
        else:
            losses = self._gradients_of_network(*self._batch_of(number))
        for lane, loss in measured.items():
            losses[lane.row] = loss
        return losses

    def _moving(self, lanes: Sequence[_Lane]) -> tuple[Sequence[_Lane], int]:
        """Return the lanes that make the next steps, and how many at most.

        All lanes move; where rows have to be at one step, those that are behind do, until they are level with the next.
        """
        if self._isokinetic is None:
            return lanes, AHEAD
        least, *others = sorted({lane.chain.step for lane in lanes})
        moving = [lane for lane in lanes if lane.chain.step == least]
        self._isokinetic.gather(moving)
        return moving, others[0] - least if others else AHEAD

    def _ended(self, lanes: Sequence[_Lane]) -> bool:
        """Return whether lanes are done or to stop; these have a result."""
        ended = False
        for lane in lanes:
            assert lane.stop is not None
            if lane.chain.done or lane.stop():
                lane.result, lane.held, ended = lane.held, [], True
        return ended

    def _note(self, lanes: Sequence[_Lane], made: int) -> None:
        """Tell every lane of the steps made, and have its events."""
        for lane in lanes:
            if lane.result is not None:  # its own update failed
                continue
            if self._density is None and self._network.drops:
                lane.chain.streams.set_dropout(lane.dropout.get_state())
            done = lane.chain.step - lane.at
            self._rewind(lane, lane.numbers[done - made : done])
            if self._density is not None:  # the last step's draw is the chain's own to keep
                kept = [i for i in range(made - 1) if lane.ahead[done - made + i].keep]
                if kept:
                    (shape,) = self._shapes.values()
                    places = gpus.sent(torch.tensor(kept), self._theta.device)
                    lane.chain.keep(self._path[places, lane.row, : self._size].unflatten(1, shape))
            try:
                lane.held += lane.chain.moved(made, lane.ahead[done - 1])
            except Exception as error:  # of this chain alone: it diverged, and says so again after what it told before
                lane.result, lane.held = lane.held or error, []
            else:
                late = time.monotonic() - lane.since > HELD
                if lane.held and (late or lane.chain.done or not all(isinstance(e, Progress) for e in lane.held)):
                    lane.result, lane.held = lane.held, []

    def _prepare(self, lanes: Sequence[_Lane]) -> int:
        """Make the coming steps' batches and numbers ready; return how many no lane's event cuts short."""
        known: dict[Any, tuple[list[ScheduleValues], Any]] = {}
        steps = AHEAD
        for lane in lanes:
            step = lane.chain.step
            if not 0 <= step - lane.at < len(lane.ahead):
                # Lanes with equal settings at one step have their numbers computed once.
                which = (lane.kind, step)
                if which not in known:
                    known[which] = self._look_ahead(lane.chain)
                lane.at, (lane.ahead, lane.numbers) = step, known[which]
            steps = min(steps, len(lane.ahead) - (step - lane.at))
        for lane in lanes:
            done = lane.chain.step - lane.at
            self._numbers[:steps, :, lane.row, 0] = lane.numbers[done : done + steps]
            if self._coefficients and self._theta.is_cpu:
                lane.noise_from = self._sequence(lane).position
        if self._density is None:
            for lane in self._lanes.values() if self._whole else lanes:
                self._fill_batches(lane, steps)
        device, dtype = self._theta.device, self._theta.dtype
        self._step_numbers = gpus.sent(torch.from_numpy(self._numbers[:steps]).to(dtype), device)
        if self._density is None and (not self._whole or self._stale):
            batches = slice(steps * self._parts)
            self._step_indices = gpus.sent(torch.from_numpy(self._indices[batches]), device)
            self._step_weights = gpus.sent(torch.from_numpy(self._weights[batches]).to(dtype), device)
        return steps

    def _look_ahead(self, chain: Member) -> tuple[list[ScheduleValues], Any]:
        """Return settings and coefficients from the next step on to the first that may have an event."""
        group: dict[str, Any] = dict(chain.sampler.param_groups[0])
        ahead: list[ScheduleValues] = []
        numbers = []
        epoch, room = chain.spec.steps_per_epoch, chain.room()
        for step in range(chain.step + 1, min(chain.step + AHEAD, chain.spec.steps) + 1):
            setting = chain.schedule.at(step)
            if ahead and setting.cycle != ahead[-1].cycle:  # a cycle's end may be checkpointed
                break
            group["lr"], group["temperature"] = setting.lr, setting.temperature
            ahead.append(setting)
            numbers.append(chain.sampler.coefficients(group, step) if self._coefficients else ())
            room -= setting.keep
            event = step == 1 or chain.logs(step) or chain.measures(step)  # the first step's loss is noted by itself
            if room < 0 or event or not (self._whole or step % epoch):
                break
        return ahead, np.array(numbers)

    def _fill_batches(self, lane: _Lane, steps: int) -> None:
        """Write the row's indices of the coming steps, all of one epoch, and the weights of its examples."""
        epoch, position = divmod(lane.chain.step, lane.chain.spec.steps_per_epoch)
        if self._whole and not self._stale:
            return
        order = lane.chain.order(epoch)
        assert isinstance(order, EpochOrder)
        parts, row, size = self._parts, lane.row, self._indices.shape[2]
        ahead = 1 if self._whole else steps
        taken = order.permutation.numpy()[position * self._batch : (position + ahead) * self._batch]
        batch = min(self._batch, lane.chain.num_data)
        full, rest = divmod(len(taken), batch)
        places, weights = self._full
        self._indices[: full * parts, row] = taken[: full * batch].reshape(full, batch)[:, places].reshape(-1, size)
        if not self._even or self._stale:
            self._weights.reshape(-1, parts, *self._weights.shape[1:])[:, :, row] = weights
        if rest:  # the last batch of an epoch is short
            last = slice(full * parts, (full + 1) * parts)
            places, self._weights[last, row] = self._divided(rest)
            self._indices[last, row] = taken[full * batch :][places]

    def _divided(self, examples: int) -> tuple[Any, Any]:
        """Return the places of each sub-batch's examples in a batch, [parts, size], and their weights; what is behind them counts nothing."""
        size = self._indices.shape[2]
        places, weights = np.zeros((self._parts, size), dtype=np.int64), np.zeros((self._parts, size))
        for part, own in enumerate(np.array_split(np.arange(examples), min(self._parts, examples))):
            places[part, : len(own)], weights[part, : len(own)] = own, 1 / len(own)
        return places, weights

    def _gradients_of_density(self, task: LogDensity) -> None:
        (points,), (gradients,) = self._parameters.values(), self._gradients.values()
        gradients.copy_(task.packed_gradient(points.flatten(0, 1)).view(points.shape))

    def _gradients_of_network(self, targets: Tensor, weights: Tensor) -> Tensor:
        """Fill in the gradients of the network's inputs with these targets; return the losses, [rows]."""
        network = self._network
        network.forward(self._of_network[0])
        self._outputs[: self.width] = network.outputs
        losses, after, others = self._task.likelihood.gradients(self._of_loss, self._outputs.mT, targets, weights)
        network.output_gradients.copy_(after.mT[: self.width])
        for name, gradient in others.items():
            self._gradients[name].copy_(gradient)
        network.backward(*self._of_network)
        if self._prior is not None:
            for name, gradient in self._prior(self._parameters).items():
                self._gradients[name].add_(gradient)
        return losses

    def _gradient_at(self, theta: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses, [rows], and their gradients at ``theta``, as `IsokineticRows` asks for them."""
        own, grads = self._unpadded
        own.copy_(theta)
        return self._gradients_of_network(targets, weights), grads

    def _traced_gradient(self, theta: Tensor, targets: Tensor, weights: Tensor, *read: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same for a compiler, without reading or writing the pack's buffers."""
        assert isinstance(self._network, stacked.TracedNetwork)
        network = self._network.reading(*read)
        parameters, gradients = (stacked.views(t, self._shapes) for t in (theta, torch.zeros_like(theta)))
        network.forward(parameters)

        def loss(outputs: Tensor, of_loss: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            losses = (self._task.likelihood.each(of_loss, outputs, targets) * weights).sum(1)
            return losses.sum(), losses

        of_loss = {name: parameters[name] for name in self._of_loss}
        (after, others), losses = torch.func.grad(loss, (0, 1), has_aux=True)(network.outputs.mT, of_loss)
        network.output_gradients.copy_(after.mT)
        network.backward(parameters, gradients)
        gradients |= others
        return losses, torch.cat([gradients[name].flatten(1) for name in self._shapes], 1)

    def _drop(self, number: int, lanes: Sequence[_Lane]) -> None:
        """Draw dropout of each row for the ``number``-th of the prepared sub-batches, of as many examples as it has."""
        for lane in lanes:
            examples = np.count_nonzero(self._weights[0 if self._whole else number, lane.row])
            self._network.drop(lane.row, int(examples), lane.dropout)

    def _stages(self, number: int, lanes: Sequence[_Lane]) -> None:
        """Make the ``number``-th of the prepared steps with several gradients, after each of which every row moves by itself."""
        parts = range(number * self._parts, (number + 1) * self._parts)
        going: dict[_Lane, Generator[int, Any, Any]] = {}
        for lane in lanes:
            self._set(lane)
            assert isinstance(lane.chain.sampler, ClosureSampler)
            own = np.count_nonzero(self._weights[parts, lane.row, 0])  # a short batch may have fewer
            going[lane] = lane.chain.sampler.stages(int(own))
        self._send(going, None)
        for part in parts:
            batch = self._batch_of(part)
            if self._network.drops:
                self._drop(part, list(going))
            for _ in range(self._gradients_per_step):
                self._send(going, self._gradients_of_network(*batch))

    def _send(self, going: dict[_Lane, Generator[int, Any, Any]], losses: Tensor | None) -> None:
        """Move every row to where its next gradient is taken, or to its step's end, with the last one's loss; ended rows go."""
        for lane, stages in list(going.items()):
            try:
                stages.send(None if losses is None else losses[lane.row])
                continue
            except StopIteration as end:
                self._losses[lane.row] += end.value
            except Exception as error:  # of this chain alone
                lane.result = error
            del going[lane]

    def _set(self, lane: _Lane) -> None:
        """Give a chain's own sampler the next step's setting."""
        lane.chain.apply(lane.ahead[lane.chain.step - lane.at])

    def _update(self, number: int, lanes: Sequence[_Lane]) -> None:
        """Move all rows by the ``number``-th of the prepared steps."""
        if self._joint is None:
            for lane in lanes:
                self._set(lane)
                try:
                    lane.chain.sampler.step()
                except Exception as error:  # of this chain alone
                    lane.result = error
            return
        self._apply(self._noise_of(number, lanes)[0], self._step_numbers[number], self._grads)

    def _apply(self, noise: Tensor, numbers: Tensor, gradients: Tensor) -> None:
        """Move all rows by one step's noise [noises, rows, numbers], coefficients [coefficients, rows, 1] and
        gradients."""
        assert self._joint is not None
        self._noise.left = iter(noise.unbind(0))
        self._joint.apply(self._joint.param_groups[0], numbers.unbind(0), [self._theta], [gradients])

    # Compiled steps of a density

    def _compiled_steps(self, number: int, lanes: Sequence[_Lane], task: LogDensity) -> None:
        """Make `COMPILED` of the prepared steps, from the ``number``-th on, by one call."""
        made = slice(number, number + COMPILED)
        tensors = (self._noise_of(number, lanes, COMPILED), self._step_numbers[made], self._path[made])
        moved = (self._theta, self._grads, *(whole for whole, _ in self._states.values()))

        def several(noise: Tensor, numbers: Tensor, path: Tensor, *moved: Tensor) -> None:
            for i in range(COMPILED):
                (points,), (gradients,) = (self._views(t).values() for t in (self._theta, self._grads))
                gradients.copy_(task.packed_gradient(points.flatten(0, 1)).view(points.shape))
                self._apply(noise[i], numbers[i], self._grads)
                path[i] = self._theta

        if self._compiled is None:
            before = [t.clone() for t in moved]
            self._compiled = compiled(several, *tensors, *moved)
            for t, old in zip(moved, before, strict=True):
                t.copy_(old)
        self._compiled(*tensors, *moved)

    def _batch_of(self, number: int) -> Batch:
        """Fill in the network's inputs of the ``number``-th of the prepared sub-batches; return its targets, [rows, examples, …], and weights."""
        if not self._whole or self._stale:
            indices = self._step_indices[0 if self._whole else number]
            inputs, targets = self._task.source.batch(indices.flatten())
            inputs = self._task.network_inputs(inputs, self._theta.dtype)
            self._targets = targets.unflatten(0, indices.shape)
            self._network.inputs.copy_(inputs.unflatten(0, indices.shape)[: self.width].flatten(2).mT)
            self._stale = False
        batch = self._targets, self._step_weights[0 if self._whole else number]
        return (*batch, *self._network.read()) if isinstance(self._network, stacked.TracedNetwork) else batch

    # Noise

    def _sequence(self, lane: _Lane) -> Any:
        return lane.chain.sampler._noise._sequence(self._theta.dtype)

    def _noise_of(self, number: int, lanes: Sequence[_Lane], steps: int = 1) -> Tensor:
        """Return the noise of the ``number``-th of the prepared steps and those after it, [steps, noises, rows, numbers]."""
        if not self._theta.is_cpu:
            self._fill_noise(steps, lanes)
            return self._noise_buffer[:steps]
        if number % self._noise_steps == 0:
            self._fill_noise(min(self._noise_steps, len(self._step_numbers) - number), lanes)
        return self._noise_buffer[number % self._noise_steps :][:steps]

    def _fill_noise(self, steps: int, lanes: Sequence[_Lane]) -> None:
        """Draw the noise of the next steps, at most as many as the buffer holds, from each row's own stream."""
        for lane in lanes:
            done = lane.chain.step - lane.at
            noisy = np.flatnonzero(lane.numbers[done : done + steps, 0] > 0)
            if not self._theta.is_cpu:
                for step in noisy:
                    lane.chain.sampler._noise.fill(self._noise_buffer[step, :, lane.row, : self._size])
            elif len(noisy):
                buffer = self._noise_buffer.numpy()
                drawn = np.empty((len(noisy), buffer.shape[1], self._size), dtype=buffer.dtype)
                self._sequence(lane).add([drawn.reshape(-1)], None)
                buffer[noisy, :, lane.row, : self._size] = drawn

    def _rewind(self, lane: _Lane, numbers: Any) -> None:
        """Put a row's noise where the steps that were made have left it; what was made ready beyond is made again."""
        if not self._coefficients or not self._theta.is_cpu:  # each draws what it needs
            return
        noisy = int((numbers[:, 0] > 0).sum())
        self._sequence(lane).position = lane.noise_from + noisy * self._noise_buffer.shape[1] * self._size


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
