"""Money and energy from a price list of machines: on demand, and on spot machines, which are taken back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from raychains.core import bounded
from raychains.core.errors import UserError, reason, renamed, require, shown, unknown_name
from raychains.core.validation import at_least_0, positive, positive_int

LARGEST = 1_000_000
"""Bytes of the largest price list."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A type of machine in a price list."""

    name: str
    devices: int
    per_hour: float
    """Price of the whole machine on demand."""
    spot_per_hour: float | None = None
    preemptions_per_hour: float | None = None
    """Times that a spot machine is taken back in an hour, on average."""
    watts: float | None = None
    """Power of the whole machine."""
    images_per_second: float | None = None
    """Gradient evaluations a second of one device, where machines differ."""


_CHECKS = {f.name: positive for f in fields(Machine) if f.name != "name"}
_CHECKS |= {"devices": positive_int, "preemptions_per_hour": at_least_0}


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """Prices of machines in one currency."""

    currency: str
    machines: Sequence[Machine]

    @classmethod
    def read(cls, path: str) -> PriceList:
        """Read a price list from a JSON file.

        Raises:
            UserError: no such file, or something else in it; the message names the field as the file does.
        """
        try:
            with renamed({"file": "prices"}):
                data = bounded.read(os.fspath(Path(path).expanduser()), most=LARGEST)
            return cls.from_json(json.loads(data))
        except UserError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"prices must be a JSON file, got {path!r}: {reason(error)}") from None

    @classmethod
    def from_json(cls, read: Any) -> PriceList:
        """Return the price list in a JSON object; raises as `read`."""
        _check_names("prices", read, ["currency", "machines"], ["currency", "machines"])
        currency, machines = read["currency"], read["machines"]
        named = isinstance(currency, str) and 0 < len(currency) <= 20
        require(named, "currency", currency, "be a text of 1 to 20 characters, such as USD")
        require(isinstance(machines, dict) and bool(machines), "machines", machines, "be an object of machines by name")
        return cls(currency=currency, machines=[_machine(name, about) for name, about in machines.items()])

    def machine(self, name: str | None) -> Machine:
        """Return the machine of this name; None names the only one.

        Raises:
            UserError: there is none of this name, or several without one.
        """
        found = [machine for machine in self.machines if name in (None, machine.name)]
        if len(found) != 1:
            raise unknown_name("machine", name, [machine.name for machine in self.machines])
        return found[0]


def _machine(name: str, about: Any) -> Machine:
    where = f"machines[{shown(name)}]"
    needed = [f.name for f in fields(Machine) if f.default is MISSING and f.name != "name"]
    _check_names(where, about, _CHECKS, needed)
    for field, value in about.items():
        _CHECKS[field](f"{where}.{field}", value)
    return Machine(name=name, **about)


def _check_names(where: str, found: Any, known: Sequence[str] | Mapping[str, Any], needed: Sequence[str]) -> None:
    require(isinstance(found, dict), where, found, "be an object")
    for name in found:
        if name not in known:
            raise unknown_name(f"name in {where}", name, known)
    for name in needed:
        require(name in found, where, found, f"have {name}")


def spot_factor(preemptions_per_hour: float, loss: float, machines: int = 1) -> float:
    """Return device hours on spot machines for each hour of useful steps; inf where preemptions undo more than is done.

    Let a chain run on ``machines`` machines m, each taken back λ times an hour, as a Poisson process, and lose on average L hours at each
    preemption, on all of its devices. In T hours there are N preemptions, and T = W + Σ losses for W hours of useful steps. The end is a
    stopping time, so that E[N] = λ m E[T] (Wald), whatever a preemption during repeated steps does. Hence E[T] = W + λ m L E[T] =
    W / (1 − λ m L).

    Args:
        preemptions_per_hour: λ.
        loss: L, in seconds.
        machines: m.
    """
    lost = preemptions_per_hour * machines * loss / 3600
    return 1 / (1 - lost) if lost < 1 else math.inf


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The costs of device hours on one type of machine; None where the price list, the speed or the loss is unknown."""

    machine: Machine
    device_hours: float | None
    """Device hours of useful steps."""
    machines: int
    days: float | None
    """On demand."""
    on_demand: float | None
    spot: float | None
    """With what preemptions cost, if that is known."""
    preempted: float | None
    """The part of the spot money that preemptions cost."""
    kwh: float | None
    """On demand."""


def bill(
    machine: Machine, device_hours: float | None, *, devices: int, workers: int = 1, loss: float | None = None
) -> Bill:
    """Return what device hours cost on as many machines as have ``devices`` devices; the last one's idle devices are paid for.

    Args:
        machine: the type of machine.
        device_hours: of useful steps.
        devices: devices that are used at once.
        workers: devices of each chain; a chain leaves when any of its machines is taken back.
        loss: seconds of each of a chain's devices that a preemption costs.
    """
    count = math.ceil(devices / machine.devices)
    if device_hours is None:
        known: dict[str, float | None] = dict.fromkeys(("days", "on_demand", "spot", "preempted", "kwh"))
        return Bill(machine=machine, device_hours=None, machines=count, **known)
    hours = count * (device_hours / devices)
    spot = hours * machine.spot_per_hour if machine.spot_per_hour is not None else None
    preempted = None
    if spot is not None and loss is not None and machine.preemptions_per_hour is not None:
        factor = spot_factor(machine.preemptions_per_hour, loss, math.ceil(workers / machine.devices))
        spot, preempted = (spot * factor, spot * (factor - 1)) if math.isfinite(factor) else (factor, factor)
    return Bill(
        machine=machine,
        device_hours=device_hours,
        machines=count,
        days=device_hours / devices / 24,
        on_demand=hours * machine.per_hour,
        spot=spot,
        preempted=preempted,
        kwh=hours * machine.watts / 1000 if machine.watts is not None else None,
    )


@dataclass(frozen=True, kw_only=True)
class Quote:
    """The bills of a plan on all machines of a price list."""

    currency: str
    bills: Sequence[Bill]
    loss: float | None
    """Seconds that a preemption costs; None: unknown."""
    preemptions: int
    """Preemptions that the loss was measured on; 0: the user gave it."""

    @property
    def cheapest(self) -> tuple[float, Bill] | None:
        """The lowest price, on demand or spot, and its bill; None where no price is known."""
        known = [(p, b) for b in self.bills for p in (b.on_demand, b.spot) if p is not None and math.isfinite(p)]
        return min(known, key=lambda one: one[0]) if known else None
