"""The likelihood of times to an event, some of them censored, by the hazards of bins of time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn import functional as F

from raychains.core.errors import UserError, require
from raychains.core.validation import as_number, is_number
from raychains.tasks.distributions import Distributed, flat
from raychains.tasks.likelihood_base import placed


class DiscreteHazard(Distributed):
    """Times to an event that happens in the bin (t_{j−1}, t_j], t_0 = 0, with the probability h_j = logistic(f_j) if it
    did not happen before: outputs [n, B], targets [n, 2], the time and 1 if it is that of the event, 0 if the
    observation ended there (censored).

    log p of an event in bin j is log h_j + Σ_{i < j} log(1 − h_i), and of a time c of censoring Σ log(1 − h_i) over the
    bins that had ended at c, t_i ≤ c: the bin in which it falls counts nothing. An event after t_B counts as survival
    of all bins, like a censored time there; an event at 0 as one in the first bin. Times are compared in single
    precision. The predictive's mean is the survival function S(t_j) = Π_{i ≤ j} (1 − h_i), [n, B]; errors and Brier
    score are those of the indicators 1[T > t_j] that were observed, not weighted for censoring.

    Args:
        edges: t_1 < … < t_B, all positive, in the unit of the times.

    Source: Tutz & Schmid 2016, ch. 3; Gensheimer & Narasimhan 2019 for networks.
    """

    labels = True
    allowed = "be a time of at least 0 and an event of 0 or 1"

    def __init__(self, edges: Sequence[float]) -> None:
        found = [as_number(t) for t in edges] if isinstance(edges, list | tuple | np.ndarray | Tensor) else []
        ok = bool(found) and all(is_number(t) and t > 0 for t in found)
        ok = ok and bool((np.diff(np.array(found, dtype=np.float32)) > 0).all())
        require(ok, "edges", edges, "be a list of increasing positive times: the ends of the bins")
        self.edges = [float(t) for t in found]
        digest = hashlib.sha256(json.dumps(self.edges).encode()).hexdigest()[:12]
        self.name = f"discrete-hazard, {len(found)} bins to {self.edges[-1]!r}, edges {digest}"

    def distribution(self, outputs: Tensor) -> Distribution:
        return Hazards(outputs, placed(tuple(self.edges), outputs.device, torch.float32))

    def observed(self, targets: Tensor) -> Tensor:
        """Return the indicators 1[T > t_j] of targets [n, 2], [n, B]: NaN for the edges after censoring."""
        time, event = targets[:, :1].float(), targets[:, 1:] > 0
        edges = torch.tensor(self.edges, dtype=torch.float32)
        unknown = torch.where(event, 0.0, torch.nan).to(targets.dtype)
        after = torch.where(event, edges < time, edges <= time)
        return torch.where(after, torch.ones_like(unknown), unknown)

    def settings(self) -> dict[str, Any]:
        return {"edges": self.edges}

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        if flat(targets, 1).shape[1] != 2:
            raise UserError(
                f"loss {self.name} needs targets [n, 2], the time and 1 for the event or 0 for censoring, got "
                f"{[*targets.shape]}"
            )
        if (width := flat(outputs, 1).shape[1]) != len(self.edges):
            raise UserError(
                f"model_fn must give {len(self.edges)} outputs for each example under loss {self.name}, one for each "
                f"bin, got {width}"
            )
        super().check(outputs, targets)


class Hazards(Distribution):
    """The distribution of (time, event) in `DiscreteHazard`, from the logits of the hazards.

    Args:
        logits: [..., B].
        edges: [B], float32.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012  as torch's own classes

    def __init__(self, logits: Tensor, edges: Tensor) -> None:
        self.logits, self.edges = logits, edges
        super().__init__(logits.shape[:-1], torch.Size([2]), validate_args=False)

    @property
    def support(self) -> Any:
        return _TimeAndEvent()

    @property
    def mean(self) -> Tensor:
        """The survival function S(t_1), …, S(t_B), [..., B]."""
        return F.logsigmoid(-self.logits).cumsum(-1).exp()

    @property
    def variance(self) -> Tensor:
        """S(1 − S), that of the indicators 1[T > t_j], [..., B]."""
        survival = self.mean
        return survival * (1 - survival)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p of (time, event) [..., 2]."""
        time, event = value[..., :1].float(), value[..., 1:] > 0
        begins = F.pad(self.edges[:-1], (1, 0))
        begins[0] = -1.0  # an event at 0 is in the first bin
        happened = event & (begins < time) & (time <= self.edges)
        at_risk = happened | torch.where(event, self.edges < time, self.edges <= time)
        return (happened * self.logits - at_risk * F.softplus(self.logits)).sum(-1)

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Return draws of (time, event), [*sample_shape, ..., 2]: the end of the event's bin, or (t_B, 0) where it
        happens in none."""
        uniform = torch.rand(torch.Size(sample_shape) + self.logits.shape, device=self.logits.device)
        happens = uniform < self.logits.sigmoid()
        event = happens.any(-1)
        first = happens.to(torch.uint8).argmax(-1)  # of equal ones the first
        time = torch.where(event, self.edges[first], self.edges[-1])
        return torch.stack([time, event.to(time.dtype)], dim=-1).to(self.logits.dtype)


class _TimeAndEvent(constraints.Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        time, event = value.unbind(-1)
        return (time >= 0) & ((event == 0) | (event == 1))
