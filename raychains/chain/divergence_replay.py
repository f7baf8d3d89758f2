"""The step and the cause of a divergence: a replay from a checkpoint that checks every loss, gradient and parameter.

A chain has diverged where a number is not finite, or the loss of a sample is beyond `raychains.chain.divergence`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from raychains.chain.chain import Chain, Event
from raychains.chain.divergence import Diverged
from raychains.core.spec import FORMAT, ChainSpec, check_format
from raychains.schedules import ScheduleValues
from raychains.tasks import Task

Kind = Literal["loss", "gradient", "parameter", "buffer", "state", "draw"]
"""The kind of the first non-finite number; ``state`` is a sampler's (velocity, thermostat, …), ``buffer`` a module's
running statistic."""
GROWN = 1e3
"""Parameters this many times larger than where the replay began ran away before the first non-finite number."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The first non-finite number of a chain, and the numbers before it. Steps count from 1, epochs and cycles from
    0."""

    digest: str
    """Digest of the chain's spec."""
    kind: Kind | None
    """None when the replay stayed finite: the divergence was another environment's."""
    step: int
    """The step that made it; where it was seen, if the replay stayed finite."""
    steps: int
    """Steps of the whole chain."""
    seen_at: int
    """The step at which the chain itself noticed."""
    replayed_from: int
    """Steps made in the state that the replay began with."""
    epoch: int
    cycle: int
    stage: str
    lr: float
    temperature: float
    noise_std: float
    """Standard deviation of the noise that the step injects into the parameters."""
    tensor: str | None
    """The first non-finite tensor; None for a loss."""
    nonfinite: int
    """Its non-finite entries (1 for a loss)."""
    size: int
    """Its entries."""
    infinite: int
    """Those among them that are infinite: overflowed, where NaN is undefined."""
    point: int | None
    """1 or 2: the point of a two-gradient method at which a loss or gradient was taken; None for other methods."""
    gradient_norm: float | None
    """Euclidean norm of the step's first gradient; None if the step had none yet."""
    gradient_norm_before: float | None
    """That of the step before; None if the replay began after it."""
    loss: float | None
    """The step's minibatch loss, or the finite mean loss beyond the limit of a sample; None for densities."""
    last_loss: float | None
    """The last finite minibatch loss."""
    last_loss_step: int | None
    parameter_scale: float
    """Root mean square of the parameters before the step."""
    start_scale: float
    """The same where the replay began."""
    precision: str
    error: str
    """The chain's own message."""

    def sentence(self) -> str:
        """Return one line: what became non-finite, where, under which settings, and what may help."""
        if self.kind is None:
            return (
                f"{self.error}; a replay from step {self.replayed_from} to {self.step} stayed finite, so this "
                "divergence belongs to the environment that it was seen in (another GPU, CPU or version of torch, or "
                "a hardware fault)"
            )
        loss = f"{self.loss:.4g}, far above the first one," if self._beyond_limit else self.loss
        what = f"the loss became {loss}" if self.kind == "loss" else self._tensor()
        place = f"{what} at step {self.step} of {self.steps} (epoch {self.epoch}, cycle {self.cycle}, {self.stage})"
        where = " at the step's second point" if self.point == 2 else ""
        numbers = [f"lr {self.lr:.3g}", f"temperature {self.temperature:.3g}", f"noise sd {self.noise_std:.3g}"]
        if self.gradient_norm is not None:
            before = "" if self.gradient_norm_before is None else f" after {self.gradient_norm_before:.3g}"
            numbers.append(f"gradient norm {self.gradient_norm:.3g}{before}")
        if self.last_loss is not None and not self._beyond_limit:
            numbers.append(f"last finite loss {self.last_loss:.4g} at step {self.last_loss_step}")
        return f"{place}{where}; {', '.join(numbers)}: {self.hint()}"

    @property
    def _beyond_limit(self) -> bool:
        return self.kind == "loss" and self.loss is not None and math.isfinite(self.loss)

    def _tensor(self) -> str:
        owner = {"gradient": "the gradient of ", "draw": "the draw of "}.get(str(self.kind), "")
        return f"{owner}{self.tensor} became non-finite ({self.nonfinite:,} of {self.size:,} entries)"

    def hint(self) -> str:
        """Return what to try first."""
        fresh = self.kind in ("loss", "gradient")
        if self.step <= 1 and fresh:
            return "the parameters are as initialised, so look at the task's data and loss"
        grown = self.parameter_scale >= GROWN * self.start_scale
        if fresh and self.infinite == 0 and not grown and not self._beyond_limit:
            return (
                f"it is undefined (NaN) though the parameters are of ordinary size ({self.parameter_scale:.3g}): look "
                "for 0/0, log or square root of 0 in the loss, then try a smaller lr"
            )
        if self.noise_std >= self.start_scale > 0:
            less = "lower lr or temperature" if self.temperature > 0 else "use less noise"
            return f"one step's noise is as large as the parameters (root mean square {self.start_scale:.3g}): {less}"
        if self.kind == "gradient" and self.infinite and self.precision != "fp64":
            return f"the gradient overflowed in {self.precision}: use a smaller lr, or precision fp64"
        return "use a smaller lr" + (
            f", parameters had grown from {self.start_scale:.3g} to {self.parameter_scale:.3g}" * grown
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON; numbers that JSON lacks are the texts ``inf``, ``-inf`` and ``nan``."""
        plain = dataclasses.asdict(self)
        return {"format": FORMAT} | {
            k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Diagnosis:
        """Return the diagnosis that `to_json` wrote; unknown fields are ignored.

        Raises:
            UserError: a newer format.
        """
        read = check_format(data, "diagnosis")
        fields = [f for f in dataclasses.fields(cls) if f.name in read]
        numbers = {f.name for f in fields if "float" in str(f.type) and read[f.name] is not None}
        values: dict[str, Any] = {f.name: float(read[f.name]) if f.name in numbers else read[f.name] for f in fields}
        return cls(**values)


def diagnose(
    spec: ChainSpec,
    state: dict[str, Any] | None,
    error: Diverged,
    *,
    task: Task | None = None,
    device: torch.device | str = "cpu",
    noise_attempt: int = 0,
    start: Mapping[str, Tensor] | None = None,
) -> Diagnosis:
    """Replay a chain from ``state`` to the step at which ``error`` was seen, checking every number on the way.

    ``state`` is that of a checkpoint before the divergence; None replays from the start. The chain was on the noise
    streams
    ``noise_attempt``: it turned to them where the state is, if that is of earlier ones. A divergence of one kind of
    device need not be another's.

    Raises:
        UserError: the state is another chain's.
    """
    chain = _Watched(spec, task, device=device, start=start)
    if state is not None:
        chain.load_state_dict(state)
    if noise_attempt > chain.noise_attempt:
        chain.restart_noise(noise_attempt)
    return chain.replay(error)


class _Found(Exception):
    """The first non-finite number, and the point of a two-gradient method."""

    def __init__(self, kind: Kind, tensor: str | None, values: Tensor, point: int | None = None) -> None:
        super().__init__(kind)
        self.kind, self.tensor, self.point = kind, tensor, point
        self.nonfinite = int((~torch.isfinite(values)).sum())
        self.infinite, self.size = int(torch.isinf(values).sum()), values.numel()


class _Watched(Chain):
    """The chain itself, step for step, raising `_Found` at the first non-finite number."""

    _gradient_norm: float | None = None
    _gradient_norm_before: float | None = None
    _loss: float | None = None
    _last_loss: float | None = None
    _last_loss_step: int | None = None
    _noise_std = 0.0
    _evaluations = 0

    def replay(self, error: Diverged) -> Diagnosis:
        """Run to the step of ``error``, or to its cause, and return the diagnosis."""
        self._begun, self._at = self.step, self.step
        self._start_scale = self._scale = self._root_mean_square()
        last = error.step or self.spec.steps
        found: _Found | None = None
        try:
            self._inspect(keep=False)
            while not self.done and self.step < last:
                self.advance(lambda: self.step >= last)
        except _Found as first:
            found = first
        except Diverged as seen:
            if seen.loss is not None:
                self._loss = seen.loss
                found = _Found("loss", None, torch.tensor(seen.loss))
            else:  # only re-estimated statistics of a draw are seen by nothing below
                found = _Found("draw", "re-estimated statistics", torch.tensor(math.nan))
        return self._diagnosis(found, error)

    def advance(self, stop: Callable[[], bool] = lambda: False) -> list[Event]:
        events: list[Event] = []
        while self.spec.pack and not self.done and not stop():  # in a pack no hook is called on the way
            at = self.step
            self._at, self._scale = at + 1, self._root_mean_square()
            try:
                events += super().advance(partial(self._past, at))
            finally:
                self._inspect(keep=self.schedule.at(self._at).keep)
        return events if self.spec.pack else super().advance(stop)

    def _past(self, step: int) -> bool:
        return self.step > step

    def _one_step(self) -> ScheduleValues:
        self._at, self._evaluations, self._loss = self.step + 1, 0, None
        self._gradient_norm_before, self._gradient_norm = self._gradient_norm, None
        self._scale = self._root_mean_square()
        setting = super()._one_step()
        self._inspect(keep=setting.keep)
        return setting

    def _gradient(self, batch: Any, number: int = 0) -> Tensor | None:
        if self._evaluations == 0:  # the step's lr and temperature are set, its state is still the old one
            self._noise_std = self.sampler.effective_noise_std()
        loss = super()._gradient(batch, number)
        two = self.sampler.gradients_per_step == 2
        point = 1 + self._evaluations % 2 if two else None  # each sub-minibatch is evaluated at both in turn
        self._evaluations += 1
        gradients = {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}
        norm = _norm(gradients)
        if self._gradient_norm is None:
            self._gradient_norm = norm
        if loss is not None:
            self._loss = float(loss)
            if not math.isfinite(self._loss):
                raise _Found("loss", None, loss.detach(), point)
            self._last_loss, self._last_loss_step = self._loss, self._at
        _look("gradient", gradients, norm, point)
        return loss

    def _inspect(self, *, keep: bool) -> None:
        """Check everything that the step changed."""
        _look("parameter", {n: p.detach() for n, p in self.sampled.items()})
        _look("buffer", dict(self.model.named_buffers()))
        _look("state", self._sampler_tensors())
        if not math.isfinite(float(self.losses.sum)):
            raise _Found("loss", None, self.losses.sum)
        if keep:
            for variable, tensors in self.sampler.draws():
                _look("draw", {f"{variable}, {n}": t for n, t in zip(self.sampled, tensors, strict=True)})

    def _root_mean_square(self) -> float:
        return _norm(self.sampled) / math.sqrt(sum(p.numel() for p in self.sampled.values()))

    def _diagnosis(self, found: _Found | None, error: Diverged) -> Diagnosis:
        setting = self.schedule.at(max(1, self._at))
        numbers = (
            "gradient_norm",
            "gradient_norm_before",
            "loss",
            "last_loss",
            "last_loss_step",
            "noise_std",
            "start_scale",
        )
        return Diagnosis(
            digest=self.spec.digest,
            kind=found.kind if found else None,
            step=self._at,
            steps=self.spec.steps,
            seen_at=error.step,
            replayed_from=self._begun,
            epoch=max(0, self._at - 1) // self.spec.steps_per_epoch,
            cycle=setting.cycle,
            stage=setting.stage,
            lr=setting.lr,
            temperature=setting.temperature,
            tensor=found.tensor if found else None,
            nonfinite=found.nonfinite if found else 0,
            size=found.size if found else 0,
            infinite=found.infinite if found else 0,
            point=found.point if found else None,
            **{name: getattr(self, f"_{name}") for name in numbers},
            parameter_scale=self._scale,
            precision=self.spec.precision,
            error=str(error),
        )


def _norm(tensors: Mapping[str, Tensor]) -> float:
    """Euclidean norm over all entries, in double precision; non-finite where an entry is, or a double's square
    overflows."""
    with torch.no_grad():
        norms = [torch.linalg.vector_norm(t, dtype=torch.float64) for t in tensors.values()]
        return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


def _look(kind: Kind, tensors: Mapping[str, Tensor], norm: float | None = None, point: int | None = None) -> None:
    """Raise `_Found` with the first non-finite tensor; their norm alone decides whether each is checked."""
    floating = {n: t for n, t in tensors.items() if t.is_floating_point()}
    if math.isfinite(_norm(floating) if norm is None else norm):
        return
    for name, t in floating.items():
        if not bool(torch.isfinite(t).all()):
            raise _Found(kind, name, t.detach(), point)
