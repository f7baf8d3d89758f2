"""Chain: one Markov chain as a resumable producer of samples. Knows torch, nothing of Ray or disks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from raychains import priors, samplers, schedules, tasks
from raychains.chain import initialization, sample_index
from raychains.chain.backward import Backward
from raychains.chain.divergence import JUDGED_FROM, Diverged, loss_limit, non_finite
from raychains.chain.draw_capture import Block, Network, indices_to
from raychains.chain.early_stopping import EarlyStopping
from raychains.chain.last_layer import LastLayer
from raychains.chain.losses import Losses
from raychains.chain.microbatch import MicroBatches, compare
from raychains.chain.pack import Pack, Packs
from raychains.chain.packable import check as check_pack
from raychains.chain.precision import Execution, check_prior, like
from raychains.chain.process_group import Group
from raychains.chain.random_streams import RandomStreams, stream_seed
from raychains.core import gpus
from raychains.core.errors import UserError, require
from raychains.core.rng import GLOBALS, ReplayClosure
from raychains.core.sample import Progress, Sample, SampleMeta
from raychains.core.spec import ChainSpec, Environment
from raychains.core.validation import integer
from raychains.data.source import device_of
from raychains.samplers import LastLayerLaplace
from raychains.schedules import ScheduleValues
from raychains.tasks import Task
from raychains.tasks.user_model import train

Event = Progress | Sample
LOG_POINTS = 200
"""Progress records of a chain whose epoch is a single step; others report once per epoch."""

WITHOUT_GRADIENT = "sampled"
"""How checkpoints say that parameters move in steps whose batch does not use them; those of older versions do not say
it."""


class Chain:
    """Executes a `ChainSpec`: `advance` runs to the next events, `state_dict` resumes it anywhere, bit for bit.

    Args:
        spec: what to run.
        task: the spec's task when the caller has it already; built from the spec otherwise.
        device: where the chain lives.
        start: the tensors whose sha256 is ``spec.start``, or those of the last sample of the chain
            ``spec.start_chain``, named as in the model's ``state_dict()``.
        group: the ranks that run it together, each with a `Chain` of its own; without one it runs alone.

    Raises:
        UserError: the task, the device or the start does not support something in the spec.
    """

    def __init__(
        self,
        spec: ChainSpec,
        task: Task | None = None,
        *,
        device: torch.device | str = "cpu",
        start: Mapping[str, Tensor] | None = None,
        group: Group | None = None,
    ) -> None:
        _check_arguments(spec, task, start, group)
        self.spec, self.device, self.start = spec, device_of(device), start
        self.group = group if group is not None else Group()
        self.task = task if task is not None else tasks.build(spec.task)
        if spec.lanes > 1 and not self.task.supports_lanes:
            raise UserError(f"lanes must be 1 for task {spec.task.kind}, got {spec.lanes}: its parameters do not stack")
        self.schedule = schedules.build(spec.schedule)
        if self.schedule.steps != spec.steps:
            raise UserError(f"steps must equal the schedule's ({self.schedule.steps}), got {spec.steps}")
        self.task.to(self.device)  # first: its memory format may depend on the device
        self._execution = Execution(spec, self.task, self.device)
        with GLOBALS:  # other chains of the process may be built by other threads
            built = train(self.task.build_model(seed=stream_seed(spec, "init"), lanes=spec.lanes))
        initialization.begin(built, start, spec.start, spec.start_chain)
        self.model: nn.Module = self._execution.place(built)
        self.sampled = initialization.sampled(self.model, spec.sample_only)
        """The parameters that the sampler moves, by name."""
        if spec.sample_only:
            initialization.freeze(self.model, self.sampled.values())
        self._execution.equip(self.model)
        self.sampler = samplers.build(
            spec.sampler,
            list(self.sampled.values()),
            lr=self.schedule.at(1).lr,
            temperature=self.schedule.temperature,  # not step 1's, which may be 0: an optimiser refuses noise now
            seed=stream_seed(spec, "noise"),
            lanes=spec.lanes,
        )
        check_prior(self.task, spec)
        self._priors = priors.stated(self.task.prior, spec.prior, dict(self.model.named_parameters()), self.sampled)
        self._micro = self._micro_batches()
        self.step = 0
        self.index = 0
        """Kept draws, or blocks of them, so far."""
        self.noise_attempt = 0
        """Which noise streams the chain is on; above 0 after `restart_noise`."""
        self._older = False
        """True of a user's task whose chain goes on from a state of an older version, which sampled some otherwise."""
        self._failure: Diverged | None = None
        self.streams = RandomStreams(spec, self.task, self.device)
        self._backward = Backward(spec, self.task, self.model, self.streams.augmentation)
        self.losses = Losses(self.device)
        self.draws: Block | Network = (
            Block(spec.block_draws, self.model, self.sampler)
            if spec.block_draws
            else Network(spec, self.task, self.model, self.sampler, self.sampled, self._execution.place)
        )
        self._early = EarlyStopping(spec, self.task) if spec.early_stop is not None else None
        self._last_layer: LastLayer | None = None
        if isinstance(self.sampler, LastLayerLaplace):
            self._last_layer = LastLayer(spec, self.task, self.model, self.sampler, self.device)
        self.num_data = self.task.num_data if self._early is None else len(self._early.learned)
        """Examples that it learns from."""
        self._order: tuple[int, Sequence[Any]] = (-1, ())
        batches = len(self.order(0))
        if batches != spec.steps_per_epoch:
            raise UserError(
                f"steps per epoch must be {batches} for batches of {spec.batch_size} from "
                f"{self.num_data} data, got {spec.steps_per_epoch}"
            )
        self._log_every = spec.steps_per_epoch if spec.steps_per_epoch > 1 else max(1, spec.steps // LOG_POINTS)
        self._pack: Pack | None = None
        if spec.pack:
            check_pack(spec, self.task, self.model)
            require(self.group.size == 1, "pack", spec.pack, "be 0 for a chain of several workers")

    @property
    def drawn(self) -> int:
        """Samples of all variables so far: the next one's `position`."""
        return self.index * sample_index.samples_per_keep(self.spec)

    @property
    def done(self) -> bool:
        """True if every step has been made, or the chain stopped early."""
        return self.step >= self.spec.steps or (self._early is not None and self._early.over)

    @property
    def paused(self) -> bool:
        """With several ranks, True if rank 0 asked for a stop during the last step; the same on all of them."""
        return self._micro is not None and self._micro.paused

    def __iter__(self) -> Iterator[Event]:
        while events := self.advance():
            yield from events

    def advance(self, stop: Callable[[], bool] = lambda: False) -> list[Event]:
        """Run to the next events and return them; empty when the chain is done or ``stop()`` held.

        ``stop`` is called between steps. After `advance` returns, `state_dict` continues exactly after the
        events that it returned.

        Raises:
            Diverged: a non-finite loss at a log interval, a non-finite draw or sampler state, or a loss beyond
                `loss_limit`, where a sample is kept; and from then on always.
        """
        self._refuse_failed()
        if torch.get_num_threads() != self.spec.threads:
            torch.set_num_threads(self.spec.threads)  # counts are per calling thread
        if self.spec.pack:
            return self._advance_in_pack(stop)
        with nullcontext() if self.group.size > 1 else GLOBALS:  # ranks have processes of their own
            return self._advance(stop)

    def _advance(self, stop: Callable[[], bool]) -> list[Event]:
        with self.streams.active(), self._execution.stepping():
            together = self.group.size > 1
            while not self.done and (together or not stop()):
                if self._micro is not None:
                    self._micro.ask = together and stop()
                setting = self._one_step()
                if events := self._events(setting):
                    return events
                if self.paused:
                    break
            return []

    # In a pack

    def join(self, pack: Pack | Packs) -> None:
        """Step in ``pack`` from now on, together with its other members; without this a chain has a pack of its own."""
        self._pack = pack.join(self)

    @property
    def share(self) -> float:
        """The chain's share of the time that its pack takes; 1 without one."""
        return 1 / max(1, len(self._pack)) if self._pack is not None else 1.0

    def leave(self) -> None:
        """Leave the pack that the chain is in, if it is in one; the chain can go on in another."""
        if self._pack is not None:
            self._pack.leave(self)
            self._pack = None

    def _advance_in_pack(self, stop: Callable[[], bool]) -> list[Event]:
        if self.done:
            return []
        if self._pack is None:
            self.join(Pack(self))
        assert self._pack is not None
        try:
            return self._pack.advance(self, stop)
        finally:
            if self.done or self._failure is not None:
                self.leave()

    def stepping(self) -> AbstractContextManager[None]:
        """See `raychains.chain.pack_row.Member`."""
        return self._execution.stepping()

    def order(self, epoch: int) -> Sequence[Any]:
        """See `raychains.chain.pack_row.Member`."""
        # A full batch keeps epoch 0's order, so that a resumed chain sees the same.
        if self._order[0] != epoch and (self.spec.steps_per_epoch > 1 or self._order[0] < 0):
            seed = stream_seed(self.spec, "order", epoch)
            if self._early is None:
                order = self.task.epoch(seed=seed, batch_size=self.spec.batch_size)
            else:
                order = self._early.epoch(seed=seed)
            self._order = (epoch, indices_to(order, self.device))
        return self._order[1]

    def logs(self, step: int) -> bool:
        """See `raychains.chain.pack_row.Member`."""
        return step % self._log_every == 0 or step == self.spec.steps

    def measures(self, step: int) -> bool:
        """See `raychains.chain.pack_row.Member`."""
        return self._early is not None and (step % self.spec.steps_per_epoch == 0 or step == self.spec.steps)

    def moved(self, steps: int, setting: ScheduleValues) -> list[Event]:
        """See `raychains.chain.pack_row.Member`."""
        if not self.spec.block_draws:  # densities have no loss
            self.losses.count += steps
        self._measure()
        self.apply(setting)
        return self._events(setting)

    def apply(self, setting: ScheduleValues) -> None:
        """See `raychains.chain.pack_row.Member`."""
        for group in self.sampler.param_groups:
            group["lr"], group["temperature"] = setting.lr, setting.temperature

    def measure_last_layer(self) -> Tensor | None:
        """See `raychains.chain.pack_row.Member`."""
        if self._last_layer is None or self.sampler.param_groups[0]["temperature"] == 0:
            return None
        epoch, position = divmod(self.step, self.spec.steps_per_epoch)
        return self._last_layer.measure(self.order(epoch)[position])

    def _micro_batches(self) -> MicroBatches | None:
        if self.spec.micro_batch is None:
            require(self.group.size == 1, "micro_batch", None, "be given for a chain of several ranks")
            return None
        whole = "be left out for samplers that divide a batch"
        require(self.sampler.parts == 1, "micro_batch", self.spec.micro_batch, whole)
        return MicroBatches(self.spec, self.task, self.model, self.sampled, self.group)

    def _one_step(self) -> ScheduleValues:
        setting = self.schedule.at(self.step + 1)
        epoch, position = divmod(self.step, self.spec.steps_per_epoch)
        self.apply(setting)
        for group in self.sampler.param_groups:
            for p in group["params"]:
                p.grad = None
        batch = self.order(epoch)[position]
        if self._last_layer is not None and setting.temperature > 0:
            self.streams.begin_gradient(self.step)
            losses: list[Tensor | None] = [self._last_layer.measure(batch)]
            self.sampler.step()  # moves nothing
        elif self.sampler.gradients_per_step == 1:
            losses = [self._gradient(batch)]
            self.sampler.step()
        else:
            parts = self.task.divide(batch, self.sampler.parts)
            wanted = self.sampler.wants_objective
            again = [
                ReplayClosure(
                    self.model,
                    self.streams.augmentation,
                    partial(self._gradient, part, number),
                    partial(self._objective, part) if wanted else None,
                )
                for number, part in enumerate(parts)
            ]
            self.sampler.step(again)
            losses = [None if a.loss is None else self.sampler.shown_loss(a.loss) for a in again]
        if losses[0] is not None:
            several = len(losses) > 1
            self.losses.add(torch.stack([x for x in losses if x is not None]).mean() if several else losses[0])
        self.step += 1
        self._measure()
        return setting

    def _measure(self) -> None:
        if self.step == 1:
            self.losses.begin()
        if self.measures(self.step):
            assert self._early is not None
            self._early.measure(self.model, self.device)

    def _gradient(self, batch: Any, number: int = 0) -> Tensor | None:
        """Fill every gradient with that of the mean loss and of the prior's share of it; return the loss alone.

        A parameter that this batch does not use has gradient 0: it is sampled all the same. ``number`` is that of a
        part of the step's batch.
        """
        if self._micro is None:
            self.streams.begin_gradient(self.step * self.sampler.parts + number)
            loss = self._backward(batch)
        else:
            loss = self._micro.gradient(batch, self.step)
        for prior, parameters in self._priors:
            log_density = prior.log_density(parameters)
            if log_density.requires_grad:  # else it is that of frozen parameters alone
                (-log_density / self.sampler.num_data).backward()
        for name, p in self.sampled.items():
            if p.grad is None and p.requires_grad:
                if self._older:
                    self._refuse_older(f"where {name!r} made no step if a batch does not use it")
                p.grad = torch.zeros_like(p)
        return loss

    def _refuse_older(self, what: str) -> NoReturn:
        raise UserError(
            f"the checkpoint of chain {self.spec.digest[:12]} is of an older raychains, {what}: sample the chain anew, "
            "in another `store` or under another `version` of its task"
        )

    def _objective(self, batch: Any, loss: Tensor | None) -> Tensor:
        """Return the function whose gradient `_gradient` has filled in, one number or one for each lane, given its
        loss."""
        value = self.task.objective(self.model, batch, self.streams.augmentation, loss)
        for prior, parameters in self._priors:
            with torch.no_grad():
                log_density = prior.log_density(parameters)
            value = value - log_density / self.sampler.num_data
        return value

    def _events(self, setting: ScheduleValues) -> list[Event]:
        log = self.logs(self.step)
        sampled = self.draws.due(setting.keep if self._early is None else self.done, self.done)
        if not (log or sampled):
            return []
        loss, kinetic, found = self._numbers(log)
        at = self._place(setting if found is None else setting._replace(lr=found))
        events: list[Event] = []
        if sampled:
            if not self.spec.block_draws:
                self._check_loss(loss)
            if self._early is not None:
                self._early.restore(self.model)  # the chain's last event: nothing comes after it
            events += self._samples(at, loss)
        if log:
            self.losses.record(loss, first=self.step == self._log_every)
            held_out = self._early.loss if self._early is not None else None
            events.append(Progress(**at, loss=loss, kinetic_temperature=kinetic, held_out_loss=held_out))
        return events

    def _place(self, setting: ScheduleValues) -> dict[str, Any]:
        """Fields that samples and progress records have in common."""
        where = {name: getattr(setting, name) for name in ("cycle", "stage", "lr", "temperature")}
        return {"step": self.step, "epoch": (self.step - 1) // self.spec.steps_per_epoch, **where}

    def _numbers(self, log: bool) -> tuple[float | None, float | None, float | None]:
        """Mean loss since the last record; for a record the kinetic temperature; and the step size, where the sampler
        finds it.

        The device is waited for once.
        """
        kinetic, found = self.sampler.kinetic() if log else None, self.sampler.step_length()
        loss, value = self.losses.mean(kinetic if found is None else found)  # no sampler has both
        if loss is not None and not math.isfinite(loss):
            self._fail(f"the loss is {loss}")
        return loss, value if found is None else None, None if found is None else value

    def _samples(self, at: Mapping[str, Any], loss: float | None) -> list[Event]:
        """One sample per draw that the sampler yields here, each with the index that its variable counts."""
        samples: list[Event] = []
        per_keep, seen = sample_index.per_keep(self.spec), Counter[str]()
        for variable, draws, tensors in self.draws.take():
            self._check_finite(tensors)
            nth = seen[variable]
            seen[variable] += 1
            which: dict[str, Any] = {
                "index": self.index * per_keep[variable] + nth,
                "variable": variable,
                "draws": draws,
            }
            meta = SampleMeta(digest=self.spec.digest, **which, **at, train_nll=loss)
            samples.append(Sample(meta=meta, tensors=tensors))
        self._check_finite(self._sampler_tensors())
        self.index += 1
        return samples

    def _check_loss(self, loss: float | None) -> None:
        """Refuse a sample of a chain whose loss is beyond its limit; only the spec and the chain's state decide."""
        if self._early is not None and self._early.best_loss is not None:
            loss = self._early.best_loss  # that of the weights that are kept
        elif loss is not None and self.losses.count < self.spec.steps_per_epoch and self.losses.recorded is not None:
            loss = min(loss, self.losses.recorded)  # a few minibatches may be the worst examples alone
        start = self.losses.start
        if loss is None or start is None or self.step < JUDGED_FROM:
            return
        d, temperature = sum(p.numel() for p in self.sampled.values()), self.schedule.temperature
        limit = loss_limit(start, parameters=d, num_data=self.num_data, temperature=temperature)
        if loss > limit:
            self._fail(f"the mean loss is {loss:.3g}, where the chain began with {start:.3g},", loss)

    def _sampler_tensors(self) -> dict[str, Tensor]:
        """The sampler's states of every parameter, e.g. ``velocity of 0.weight``."""
        return {
            f"{key} of {name}": value
            for name, p in self.sampled.items()
            for key, value in self.sampler.state.get(p, {}).items()
            if isinstance(value, Tensor)
        }

    def _check_finite(self, tensors: Mapping[str, Tensor]) -> None:
        if (name := non_finite(tensors)) is not None:
            self._fail(f"{name} has a non-finite value")

    def _fail(self, what: str, loss: float | None = None) -> NoReturn:
        lr = self.sampler.param_groups[0]["lr"]
        self._failure = Diverged(f"{what} at step {self.step}: a smaller lr may help (lr is {lr:.3g})", self.step, loss)
        raise self._failure

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise Diverged(str(self._failure), self._failure.step, self._failure.loss)

    def restart_noise(self, attempt: int) -> None:
        """Draw the sampler's noise from now on from the fresh streams of ``attempt``; recorded in the state.

        A different attempt number gives a different path, the same number the same one. Initialisation, data order,
        augmentation and dropout stay: a sampler without noise repeats its path.

        Raises:
            UserError: ``attempt`` is no integer of at least 0.
        """
        integer("attempt", attempt)
        self.noise_attempt = attempt
        self.sampler.reseed(stream_seed(self.spec, "noise", attempt))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs to resume, as nested dicts of (live) tensors and JSON values.

        Raises:
            Diverged: anything in it is not finite, so that no checkpoint ever is; or `advance` raised it.
        """
        self._refuse_failed()
        block = self.draws.state()
        self._check_finite(self._stored())
        self._check_finite(self._sampler_tensors())
        self._check_finite({"the loss": self.losses.sum})
        for variable, tensors in (block or {}).items():
            self._check_finite({f"a draw of {variable}, {name},": t for name, t in tensors.items()})
        return {
            "digest": self.spec.digest,
            "step": self.step,
            "index": self.index,
            "model": self._stored(),
            "buffers": initialization.unsaved(self.model),
            "sampler": self.sampler.state_dict(),
            **self.streams.state_dict(),
            **self.losses.state_dict(),
            "block": block,
            "noise_attempt": self.noise_attempt,
            **({} if self._older else {"without_gradient": WITHOUT_GRADIENT}),
            **({} if self._early is None else {"early_stop": self._early.state_dict()}),
        }

    def _stored(self) -> dict[str, Tensor]:
        """The model's state without what stays at the start."""
        state = self.model.state_dict()
        return {name: state[name] for name in self.draws.names} if isinstance(self.draws, Network) else state

    def check_ranks(self) -> None:
        """Compare this rank's parameters, sampler's state and noise with rank 0's; all ranks call it at the same step.

        Raises:
            RankDiffers: on every rank.
        """
        compare(self.group, self.sampled, self._sampler_tensors(), self.sampler)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken.

        Raises:
            UserError: the state is another chain's.
        """
        if state["digest"] != self.spec.digest:
            raise UserError(f"the checkpoint is of chain {state['digest'][:12]}, not of {self.spec.digest[:12]}")
        self.streams.check_state(state)
        self.leave()
        self.step, self.index = state["step"], state["index"]
        self.noise_attempt = state["noise_attempt"]
        self._older = tasks.is_own(self.spec.task) and state.get("without_gradient") != WITHOUT_GRADIENT
        if self._older:
            saved = {**state["model"], **state.get("buffers", {})}
            for name, t in (*self.model.named_parameters(), *self.model.named_buffers()):
                if (kind := saved.get(name, t).dtype) != t.dtype:
                    self._refuse_older(f"which cast {name!r} of {t.dtype} to {kind}")
        self._failure = None
        self.model.load_state_dict({**self.model.state_dict(), **state["model"]})
        initialization.restore(self.model, state.get("buffers", {}))  # states of older versions have none
        self.sampler.load_state_dict(state["sampler"])
        for p, own in self.sampler.state.items():
            own.update({name: like(p, value) for name, value in own.items() if isinstance(value, Tensor)})
        self.streams.load_state_dict(state)
        self.losses.load_state_dict(state)
        self.draws.load(state["block"])
        if self._early is not None:
            self._early.load_state_dict(state["early_stop"], self.device)

    def environment(self) -> Environment:
        """Return what besides the spec decides this chain's bytes."""
        return Environment(
            torch=torch.__version__,
            cuda=torch.version.cuda if gpus.is_gpu(self.device) else None,
            device=gpus.name(self.device) if gpus.is_gpu(self.device) else "cpu",
            cpu_capability=torch.backends.cpu.get_cpu_capability(),
            threads=self.spec.threads,
            numpy=np.__version__,
        )


def _check_arguments(spec: Any, task: Any, start: Any, group: Any) -> None:
    require(isinstance(spec, ChainSpec), "spec", spec, "be a raychains.ChainSpec")
    require(task is None or isinstance(task, Task), "task", task, "be a raychains.Task")
    require(group is None or isinstance(group, Group), "group", group, "be a group of ranks")
    ok = start is None or (isinstance(start, Mapping) and all(isinstance(t, Tensor) for t in start.values()))
    require(ok, "start", start, "be tensors by name")
