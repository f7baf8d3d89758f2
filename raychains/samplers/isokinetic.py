"""The step of microcanonical samplers: θ moves at unit speed along u, which the gradient turns; two gradients a step.

The dynamics dθ = u dt, du = (1 − uuᵀ)·∇log p/(d − 1) dt keep |u| = 1 and leave exp(−U/T) invariant in θ, with u uniform
on the sphere and noise that turns it. A gradient that is held for a time δ·(d − 1)/‖g‖ turns u exactly (`turned`), and
McLachlan's splitting b, a, 1 − 2b, a, b puts turns and moves of length h together into a step of second order with a
small error.

With g = ∇loss + λθ of the mean loss, ∇log p = −N·g/T. At T = 0, the limit, u is −g/‖g‖: steepest descent by steps of
length h.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from raychains.core.errors import UserError, require
from raychains.samplers.closure import Closure, ClosureSampler, Grads, place
from raychains.samplers.groups import MISSING_GRAD
from raychains.samplers.sampler import wide
from raychains.samplers.settings import setting

B = 0.1931833275037836
"""McLachlan's b, the share of the first and of the last turn."""
STILL = 1e-13
"""A gradient of a smaller norm does not turn u."""

MOST_TURNED = 50.0
"""h/L from which u is as good as new: its exponential needs no larger numbers."""

Evaluate = Callable[[Tensor], tuple[Any, Tensor]]
"""Takes θ [lanes, d]; returns the loss and g = ∇loss + λθ there, [lanes, d]."""


def turned(u: Tensor, pull: Tensor, length: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return u after a time ``length`` along a constant gradient of log p, and (d − 1)·log of how much that stretches
    it.

    With e = pull/‖pull‖, p = u·e, δ = length·‖pull‖/(d − 1), ζ = e^−δ: u ← normalise(e·(1−ζ)(1+ζ+p(1−ζ)) + 2ζu), and
    ΔK = (d − 1)·[δ + log1p((1−p)·expm1(−2δ)/2)], the change of kinetic energy, in the form that stays exact in single
    precision at large d.

    Args:
        u: unit vectors, [lanes, d].
        pull: ∇log p, [lanes, d].
        length: c·h, [lanes, 1] or a number.
    """
    norm = torch.linalg.vector_norm(pull, dim=1, keepdim=True)
    e = pull / norm.clamp_min(STILL)
    # The few numbers of a lane are in double precision: ΔK is a small difference times d − 1.
    p, d = (u * e).sum(dim=1, keepdim=True).double(), u.shape[1]
    delta = length * norm.double() / (d - 1)
    zeta = torch.exp(-delta)
    rest = 1 - zeta
    toward = rest * (1 + zeta + p * rest)
    new = e * toward.to(u.dtype) + u * (2 * zeta).to(u.dtype)
    size = torch.linalg.vector_norm(new, dim=1, keepdim=True)
    stretched = (d - 1) * (delta + torch.log1p((1 - p) * torch.expm1(-2 * delta) / 2))
    moves = (norm < STILL).logical_not_()  # NaN must stay visible
    return torch.where(moves & (size != 0), new / size, u), torch.where(moves, stretched, 0.0)[:, 0]


def unit(v: Tensor, other: Tensor) -> Tensor:
    """Return the rows of ``v`` at length 1; rows of ``other`` where they are 0."""
    norm = torch.linalg.vector_norm(v, dim=1, keepdim=True)
    return torch.where(norm == 0, other, v / norm)


class Isokinetic(ClosureSampler):
    """Base of the microcanonical samplers; a leaf says what surrounds the deterministic step.

    State of a parameter: its part of u (``direction``), and g at the last step's end (``gradient``), which begins the
    next.
    """

    compilable: ClassVar[Mapping[str, int]] = {}
    """Methods that a pack may compile, and how often each draws noise. At one temperature they compute from nothing but
    that and their arguments, and change nothing."""

    m_sharpness: int = setting(default=1, init=False)

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **settings)
        self._adaptive: dict[str, Any] = {}
        """Numbers that adapt, and tensors with lanes on axis 0; in the entry ``sampler`` of the state."""

    @torch.no_grad()
    def step(self, closure: Closure | Sequence[Closure] | None = None) -> Any:
        """One step; returns the loss where it is first evaluated, in the step's middle.

        The closure is called twice, in the first step once or twice more. It clears the gradients, evaluates the mean
        loss of one minibatch at the parameters as they are, calls backward and returns the loss; where
        `wants_objective` is true, the function that it differentiates, with several lanes one number for each.

        Raises:
            UserError: no closure, more than one, one that returns no loss, a sparse gradient, or fewer than 2
                coordinates.
        """
        (evaluate,) = self._closures(closure)
        parameters, losses = self.parameters(), []
        grads: Grads = []
        with self._returning(parameters) as start:
            if not self._members():
                loss, grads = self._evaluate(evaluate, parameters, start)
                losses.append(loss)
                self._join(parameters, start, grads)
            members = self._members()
            if any(isinstance(p, nn.Parameter) and not p.requires_grad for p in members):
                raise UserError(
                    f"params must not be frozen between steps of {self.kind}, which moves all together: build another"
                )
            if not members:  # no parameter has a gradient
                return losses[0]
            index = {p: i for i, p in enumerate(parameters)}
            decay = self._of_groups(members, "weight_decay")

            def at(theta: Tensor) -> tuple[Any, Tensor]:
                nonlocal grads
                points = list(start)
                for p, part in zip(members, self._parts(theta, members), strict=True):
                    points[index[p]] = part
                loss, grads = self._evaluate(evaluate, parameters, points)
                losses.append(loss)
                found = [grads[index[p]] for p in members]
                g = self._flat([torch.zeros_like(p) if x is None else x for p, x in zip(members, found, strict=True)])
                return loss, g + decay * theta

            theta = self._flat([start[index[p]] for p in members])
            u, g = (self._flat([self.state[p][name] for p in members]) for name in ("direction", "gradient"))
            theta, u, g = self._step(theta, u, g, at)
        for p, *parts in zip(members, *(self._parts(t, members) for t in (theta, u, g)), strict=True):
            p.copy_(parts[0])
            self.state[p] |= {"direction": parts[1], "gradient": parts[2]}
        self._join(parameters, [p.detach() for p in parameters], grads)
        return losses[0]

    def _evaluate(self, evaluate: Closure, params: list[Tensor], points: list[Tensor]) -> tuple[Any, Grads]:
        """Return the loss and its gradients with the parameters at ``points``, where they stay."""
        place(params, points)
        return self._loss(evaluate), self._gradients(params)

    @abstractmethod
    def _step(self, theta: Tensor, u: Tensor, g: Tensor, at: Evaluate) -> tuple[Tensor, Tensor, Tensor]:
        """Return θ, u and g, [lanes, d] each, after a step that evaluates the gradient twice."""

    @abstractmethod
    def _first(self, g: Tensor) -> Tensor:
        """Return the u that the first step begins with, given g at its start, [lanes, d] each."""

    def _members(self) -> list[Tensor]:
        """Return the parameters that have had a gradient, or the gradient 0."""
        return [p for p in self.parameters() if "direction" in self.state.get(p, {})]

    def _join(self, parameters: list[Tensor], points: list[Tensor], grads: Grads) -> None:
        """Make the states of parameters that have their first gradient: u is drawn for all at once, and 0 of later
        ones."""
        first = not self._members()
        joining = [
            (p, x, g)
            for p, x, g in zip(parameters, points, grads, strict=True)
            if g is not None and "direction" not in self.state.get(p, {})
        ]
        if not joining:
            return
        params = [p for p, _, _ in joining]
        theta, g = self._flat([x for _, x, _ in joining]), self._flat([g for _, _, g in joining])
        if first and g.shape[1] < 2:
            raise UserError(
                f"params must have at least 2 coordinates with a gradient for {self.kind}, got {g.shape[1]}: it moves "
                "along a direction"
            )
        g = g + self._of_groups(params, "weight_decay") * theta
        u = self._first(g) if first else torch.zeros_like(g)
        for p, v, k in zip(params, self._parts(u, params), self._parts(g, params), strict=True):
            self.state[p] |= {"direction": v, "gradient": k}

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return tensors side by side, [lanes, d], in single precision at least."""
        device = tensors[0].device
        dtype = wide(tensors[0].dtype)
        for t in tensors:
            dtype = torch.promote_types(dtype, t.dtype)
        return torch.cat([t.detach().reshape(self.lanes, -1).to(device, dtype) for t in tensors], dim=1)

    def _parts(self, flat: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Return what `_flat` put together, each of its parameter's shape and in single precision at least; copies."""
        parts = flat.split([p.numel() // self.lanes for p in params], dim=1)
        return [
            part.reshape(p.shape).to(p.device, wide(p.dtype), copy=True) for part, p in zip(parts, params, strict=True)
        ]

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        first = self.param_groups[0]
        # torch adds names to the defaults of samplers that are loaded or copied, and to no group
        for name in (self.defaults.keys() & first.keys()) - {"lr", "weight_decay"}:
            common = first[name]
            allowed = f"be that of the first group, {common!r}: a step moves all parameters together"
            require(group[name] == common, name, group[name], allowed)
        together = "be 'zero': a step moves all parameters together"
        require(group.get(MISSING_GRAD) in (None, "zero"), MISSING_GRAD, group.get(MISSING_GRAD), together)

    def _of_groups(self, params: Sequence[Tensor], name: str) -> Tensor | float:
        """Return a setting of each coordinate's group, [d], or one number where all groups have the same."""
        if len({group[name] for group in self.param_groups}) == 1:
            return float(self.param_groups[0][name])
        values = {p: group[name] for group in self.param_groups for p in group["params"]}
        flat = [torch.full((p.numel() // self.lanes,), float(values[p]), dtype=wide(p.dtype)) for p in params]
        return torch.cat(flat).to(params[0].device)

    def _scales(self) -> Tensor | None:
        """Return how far each coordinate moves for one of the first group, [d], by their lr; None where all have the
        same."""
        lr = self._of_groups(self._members(), "lr")
        return lr / self.param_groups[0]["lr"] if isinstance(lr, Tensor) and self.param_groups[0]["lr"] > 0 else None

    def _mclachlan(
        self, theta: Tensor, u: Tensor, g: Tensor, at: Evaluate, h: Tensor | float, scales: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Any, Tensor]:
        """Return θ, u, g, the loss at the end, and ΔK, [lanes], after turns and moves of the whole length ``h``,
        [lanes, 1] or a number.

        With ``scales`` s the step is that of θ/s: the turns take g·s, and θ moves by u·s.
        """
        temperature = self.param_groups[0]["temperature"]
        moved = h.to(theta.dtype) if isinstance(h, Tensor) else h
        gained = theta.new_zeros(self.lanes, dtype=torch.float64)
        loss: Any = None
        for share, move in ((B, 0.5), (1 - 2 * B, 0.5), (B, 0.0)):
            uphill = g if scales is None else g * scales
            if temperature > 0:
                u, change = turned(u, uphill * (-self.num_data / temperature), share * h)
                gained = gained + change
            else:
                u = unit(-uphill, u)
            if move:
                theta = theta + (move * moved) * (u if scales is None else u * scales)
                loss, g = at(theta)
        return theta, u, g, loss, gained

    def _potential(self, theta: Tensor, loss: Tensor) -> Tensor:
        """Return U/N = loss + ½λ‖θ‖² of each lane, [lanes], given its loss by `each_lane`."""
        decay = self._of_groups(self._members(), "weight_decay")
        return loss + 0.5 * (decay * theta.double().square()).sum(dim=1)

    def step_length(self) -> Tensor | None:
        return self._adaptive["h"].mean() if "h" in self._adaptive else None

    def shown_loss(self, loss: Tensor) -> Tensor:
        """Return it; in lanes where it is no number, which do not stay there, that of where they are, with a task's own
        prior."""
        kept = self._adaptive.get("loss")
        if kept is None:
            return loss
        return torch.where(torch.isfinite(loss), loss, (kept if loss.ndim else kept.mean()).to(loss.dtype))

    def _own_state(self) -> dict[str, Any]:
        adaptive = {n: v.clone() if isinstance(v, Tensor) else v for n, v in self._adaptive.items()}
        return {**super()._own_state(), "adaptive": adaptive}

    def _load(self, own: dict[str, Any] | None, rest: dict[str, Any]) -> None:
        super()._load(own, rest)
        device = self.parameters()[0].device
        saved = (own or {}).get("adaptive", {})
        self._adaptive = {n: v.to(device, copy=True) if isinstance(v, Tensor) else v for n, v in saved.items()}


def each_lane(loss: Any, theta: Tensor) -> Tensor:
    """Return the loss of each lane, [lanes], in double precision."""
    return torch.as_tensor(loss, device=theta.device).double().reshape(-1)


def refreshed(u: Tensor, z: Tensor, h: Tensor, length: Tensor) -> Tensor:
    """Return u after half of a step's refresh: normalise(u + νz), ν = √((e^{h/L} − 1)/d), for standard normal z.

    Args:
        u, z: [lanes, d].
        h, length: the step's length h and the trajectory's L, [lanes, 1] or [].
    """
    nu = torch.sqrt(torch.expm1((h / length).clamp_max(MOST_TURNED)) / u.shape[1])
    return unit(u + nu.to(u.dtype) * z, u)
