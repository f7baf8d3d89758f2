"""A schedule as a `torch.optim.lr_scheduler`, for training loops of one's own."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from raychains.errors import UserError, require
from raychains.schedules.base import Schedule, Setting


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
    made after it and until ``scheduler.step()``. All groups get the schedule's values, whatever lr they were built with.

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
        require(isinstance(schedule, Schedule), "schedule", schedule, "be one of raychains.schedules")
        ok = isinstance(last_step, int) and not isinstance(last_step, bool) and 0 <= last_step <= schedule.steps
        require(ok, "last_step", last_step, f"be an integer in [0, {schedule.steps}]: the steps made already")
        relative = getattr(optimizer, "instead", None)
        if relative is not None and schedule.temperature != 0:
            raise UserError(
                f"temperature must be 0 in a schedule for {type(optimizer).__name__}, got {schedule.temperature!r}: "
                f"it injects no noise; {relative} does"
            )
        self.schedule = schedule
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])  # torch asks for it when it does not start at 0
        super().__init__(optimizer, last_step - 1)  # makes one `step`

    @property
    def done(self) -> bool:
        """Whether every step of the schedule has been made."""
        return self.last_epoch >= self.schedule.steps

    @property
    def setting(self) -> Setting:
        """What the optimizer holds now, and whether the state after the step made with it is to be kept."""
        if self.done:
            return self.schedule.at(self.schedule.steps)._replace(keep=False)
        return self.schedule.at(self.last_epoch + 1)

    def get_lr(self) -> list[float | torch.Tensor]:
        """The step size of every group; called by torch."""
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
        """The steps made and the schedule, as JSON values."""
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
        self.last_epoch = state_dict["step"]
        self._step_count = self.last_epoch + 1
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(self.setting.lr)
            else:
                group["lr"] = self.setting.lr
        self._last_lr = self.get_lr()
        self._write_temperature()
