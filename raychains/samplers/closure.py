"""Methods that take two gradients a step: the step calls a closure at two points and then moves from where it was."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import torch
from torch import Tensor

from raychains.core.errors import UserError
from raychains.core.validation import positive_int
from raychains.samplers.sampler import Sampler, wide
from raychains.samplers.settings import setting

Closure = Callable[[], Any]
Grads = list[Tensor | None]
"""One gradient per parameter, in single precision at least; None where the loss does not depend on the parameter."""


class ClosureSampler(Sampler):
    """g = ∇ℓ at a first point;  g′ = ∇ℓ at a second one that g chooses;  the step is made from the start with g′.

    `step` takes one closure per sub-minibatch (``parts`` of them, or fewer where a minibatch has fewer examples; with
    one part the closure itself will do). A closure clears the gradients, evaluates the mean loss of its sub-minibatch
    at the parameters as they are, calls backward and returns the loss. Every closure is called twice per step and must
    then give the same loss function: the same examples, augmentation and dropout masks. Sub-minibatches have equal
    weights; each has its own second point (m-sharpness). BatchNorm statistics see both points unless the closure
    prevents it.
    """

    gradients_per_step = 2
    m_sharpness: int = setting("sub-minibatches of a step, each with its own closure.", group=False, check=positive_int)

    def __init__(self, params: Any, *, m_sharpness: int, **settings: Any) -> None:
        super().__init__(params, m_sharpness=m_sharpness, **settings)
        self.parts = m_sharpness

    @torch.no_grad()
    def step(self, closure: Closure | Sequence[Closure] | None = None) -> Any:
        """One update; returns the mean over sub-minibatches of the loss at the first point.

        The parameters are at the new iterate afterwards. If a closure raises they are back where the step began.

        Raises:
            UserError: no closure, more closures than ``parts``, one that returns no loss, a sparse gradient.
        """
        closures = self._closures(closure)
        with closing(self.stages(len(closures))) as stages:
            number = next(stages)
            while True:
                try:
                    number = stages.send(self._loss(closures[number]))
                except StopIteration as end:
                    return end.value

    def stages(self, parts: int) -> Generator[int, Any, Any]:
        """Make one step of a minibatch in ``parts`` sub-minibatches, whose gradients somebody else takes.

        Yields the number of a sub-minibatch, from 0, where its gradient is to be filled in at the parameters as they
        are, and is sent its loss; each comes `gradients_per_step` times in succession. Returns the mean over
        sub-minibatches of the loss at the first point.
        """
        params = self.parameters()
        losses: list[Any] = []
        mean: Grads = [None] * len(params)
        with self._returning(params) as start:
            for number in range(parts):
                place(params, self._first_points(start))
                losses.append((yield number))
                place(params, self._second_points(start, self._gradients(params)))
                yield number
                second = self._gradients(params)
                mean = [_plus(total, g, 1 / parts) for total, g in zip(mean, second, strict=True)]
        for group, places, grads in self._by_group(mean):
            self._update(group, [params[i] for i in places], grads)
        return sum(losses[1:], start=losses[0]) / len(losses)

    def _by_group(self, grads: Grads) -> Iterator[tuple[dict[str, Any], list[int], list[Tensor]]]:
        """Yield each group, which of all parameters are its own and have a gradient, and these gradients; none
        without."""
        end = 0
        for group in self.param_groups:
            begin, end = end, end + len(group["params"])
            found = [(i, g) for i, g in enumerate(grads[begin:end], start=begin) if g is not None]
            if found:
                yield group, [i for i, _ in found], [g for _, g in found]

    def _first_points(self, start: list[Tensor]) -> list[Tensor]:
        """Return the points of one sub-minibatch's first gradient: by default the iterate itself."""
        return start

    @abstractmethod
    def _second_points(self, start: list[Tensor], first: Grads) -> list[Tensor]:
        """Return the points of the same sub-minibatch's second gradient, given the first. Called once per
        sub-minibatch."""

    def _loss(self, evaluate: Closure) -> Any:
        """Call a closure with the parameters as they are; return its loss."""
        self.zero_grad()
        with torch.enable_grad():
            loss = evaluate()
        if loss is None:
            raise UserError(f"closure must return the loss of its minibatch, got None: {self.kind} reports it")
        return loss.detach() if isinstance(loss, Tensor) else loss

    def _gradients(self, params: list[Tensor]) -> Grads:
        """Return the gradients that all parameters have now, None of those that stay."""
        self._begin()
        groups = (group for group in self.param_groups for _ in group["params"])
        found = [self._gradient(p, group) for p, group in zip(params, groups, strict=True)]
        if params and all(g is None for g in found):
            raise UserError("closure must call backward() on the loss: no parameter has a gradient behind it")
        return [None if g is None else g.to(wide(p.dtype)) for p, g in zip(params, found, strict=True)]

    @contextmanager
    def _returning(self, params: list[Tensor]) -> Iterator[list[Tensor]]:
        """Yield copies of the parameters, and set the parameters back to them at the end, whatever happens."""
        start = [p.detach().clone() for p in params]
        try:
            yield start
        finally:
            place(params, start)

    def _closures(self, closure: Closure | Sequence[Closure] | None) -> list[Closure]:
        closures: list[Any] = list(closure) if isinstance(closure, Sequence) else [closure]
        if closure is None or not all(callable(c) for c in closures):
            got = "none" if closure is None else repr(closure)
            raise UserError(
                f"step must be given a closure for {self.kind}, got {got}: it evaluates one minibatch at two points"
            )
        if not 1 <= len(closures) <= self.parts:
            raise UserError(
                f"step must be given {self.parts} closure{'s' * (self.parts > 1)} for {self.kind}, got "
                f"{len(closures)}: one per sub-minibatch, as m_sharpness says (fewer for a minibatch of fewer examples)"
            )
        return closures


def _plus(total: Tensor | None, g: Tensor | None, weight: float) -> Tensor | None:
    """Return total + weight·g, where None counts as 0."""
    if g is None:
        return total
    return g * weight if total is None else total.add_(g, alpha=weight)


def place(params: list[Tensor], points: list[Tensor]) -> None:
    """Set parameters to points."""
    torch._foreach_copy_(params, points)
