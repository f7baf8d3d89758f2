"""A schedule as a `torch.optim.lr_scheduler`, for the user's own training loop."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from raychains.core.errors import UserError, require
from raychains.core.validation import integer
from raychains.schedules.schedule import Schedule, ScheduleValues


class ScheduleLR(LRScheduler):
    """Writes each step's ``lr``, and ``temperature`` where a parameter group has one, into an optimizer.

    Step 1's are written on construction and the next step's by every `step`, one call after each of the optimizer's::

        for inputs, labels in batches:
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()
            if scheduler.setting.keep:
                draws.append(copy.deepcopy(model.state_dict()))
            scheduler.step()

    `setting` is of the step whose values the optimizer holds: the next one before ``optimizer.step()``, the one just
    made after it and until ``scheduler.step()``. All groups get the schedule's values, whatever lr they were built
    with.

    The call that follows the schedule's last step leaves lr and temperature as they are, with nothing more to keep
    (`done`); one call more is refused.

    Args:
        optimizer: any `torch.optim.Optimizer`; those of raychains also get the temperature, others have no noise.
        schedule: what to apply.
        last_step: steps that were made already; `load_state_dict` restores them too.

    Raises:
        UserError: no schedule, a ``last_step`` out of range, or a temperature above 0 for a sampler without noise.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Schedule, last_step: int = 0) -> None:
        ok = isinstance(optimizer, torch.optim.Optimizer)
        require(ok, "optimizer", optimizer, "be a torch.optim.Optimizer")
        require(isinstance(schedule, Schedule), "schedule", schedule, "be one of raychains.schedules")
        integer("last_step", last_step, 0, schedule.steps, ": the steps made already")
        counterpart = getattr(optimizer, "noisy_counterpart", None)
        if counterpart is not None and schedule.temperature != 0:
            raise UserError(
                f"temperature must be 0 in a schedule for {type(optimizer).__name__}, got {schedule.temperature!r}: "
                f"it injects no noise; {counterpart} does"
            )
        self.schedule = schedule
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])  # torch asks for it when it does not start at 0
        super().__init__(optimizer, last_step - 1)  # makes one `step`

    @property
    def done(self) -> bool:
        """True once every step of the schedule has been made."""
        return self.last_epoch >= self.schedule.steps

    @property
    def setting(self) -> ScheduleValues:
        """The values that the optimizer holds now, and whether to keep the state after the step made with them."""
        if self.done:
            return self.schedule.at(self.schedule.steps)._replace(keep=False)
        return self.schedule.at(self.last_epoch + 1)

    def get_lr(self) -> list[float | torch.Tensor]:
        """Return the step size of every group; called by torch."""
        return [self.setting.lr] * len(self.optimizer.param_groups)

    def step(self, epoch: int | None = None) -> None:
        """Write the next step's values.

        Raises:
            UserError: the schedule is over, or an ``epoch`` is given, which torch has deprecated.
        """
        require(epoch is None, "epoch", epoch, "be left out: a schedule goes step by step")
        if self.done:
            raise UserError(
                f"steps must be at most the schedule's {self.schedule.steps}, got {self.schedule.steps + 1}: "
                "the schedule is over; build one with more steps"
            )
        super().step()
        self._write_temperature()

    def _write_temperature(self) -> None:
        temperature = self.setting.temperature
        for group in self.optimizer.param_groups:
            if "temperature" in group:
                group["temperature"] = temperature

    def state_dict(self) -> dict[str, Any]:
        """Return the steps made and the schedule, as JSON values."""
        return {"step": self.last_epoch, "schedule": self.schedule.part().to_json()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, and write that step's values into the optimizer.

        Raises:
            UserError: the state is of another schedule or of another scheduler.
        """
        if not {"step", "schedule"} <= state_dict.keys():
            raise UserError("ScheduleLR: the state has no 'step' and 'schedule': it was saved by another scheduler")
        mine = self.schedule.part().to_json()
        if state_dict["schedule"] != mine:
            raise UserError(f"the state is of the schedule {state_dict['schedule']}, not of {mine}")
        integer("step", state_dict["step"], 0, self.schedule.steps)
        self.last_epoch = state_dict["step"]
        self._step_count = self.last_epoch + 1
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(self.setting.lr)
            else:
                group["lr"] = self.setting.lr
        self._last_lr = self.get_lr()
        self._write_temperature()
