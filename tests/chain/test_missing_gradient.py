"""Parameters that some batches do not use are sampled from their own law all the same; plans name those that none
uses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import raychains as rc
from raychains import tasks
from raychains.chain.chain import Chain
from raychains.chain.unreached import unreached
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec
from raychains.schedules import Constant
from tests.chain.chain_cases import SAMPLERS, WITH_LAYERS, chain_spec, temperature_of
from tests.checks import refused

N, WIDTH = 100, 400
"""Examples, of which one has x = 1 and the others 0; and coordinates, each with a posterior of its own."""
STEPS = 1200


class Branch(nn.Module):
    """y = t·x, where t is used by batches with an x that is not 0 alone, and ``idle`` by none."""

    def __init__(self) -> None:
        super().__init__()
        self.t, self.idle = (nn.Parameter(torch.randn(WIDTH)) for _ in range(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.t * x if bool((x != 0).any()) else x.new_zeros(len(x), WIDTH)


class Computed(Branch):
    """The same function, of which every batch computes everything."""

    def forward(self, x: Tensor) -> Tensor:
        return self.t * x + 0 * self.idle


def task(model: type[nn.Module] = Branch) -> tasks.Task:
    """y = 2 at x = 1 under unit noise."""
    x, y = torch.zeros(N, 1), torch.zeros(N, WIDTH)
    x[0], y[0] = 1.0, 2.0
    return tasks.give(rc.Task.from_module(model, (x, y), (x, y), loss="gaussian", name="branch"))


def spec(of: tasks.Task, sampler: str = "sgld", steps: int = STEPS, lr: float = 1.0, **change: Any) -> ChainSpec:
    """A chain of batches of 10 examples, of which 9 in 10 have x = 0 alone, under the prior N(0, 1)."""
    temperature = temperature_of(sampler)
    schedule = Constant(steps=steps, lr=lr, warm_up=0.25, thinning=20, temperature=temperature)
    fields = {"steps_per_epoch": 10, "batch_size": 10, "seed": 1, **change}
    return chain_spec(of, sampler, schedule, {"weight_decay": 1 / N, **SAMPLERS[sampler]}, **fields)


def drawn(made: ChainSpec) -> dict[str, Tensor]:
    """Return each parameter's draws, [draws, coordinates]."""
    samples = [e.tensors for e in Chain(made) if isinstance(e, Sample)]
    return {name: torch.stack([s[name] for s in samples]) for name in samples[0]}


@pytest.mark.parametrize("change", [{}, {"micro_batch": 5}], ids=["whole", "micro-batches"])
def test_a_branch_of_some_batches_has_its_posterior_and_one_of_none_its_prior(change: dict[str, Any]) -> None:
    """t ~ N(1, 1/2) and idle ~ N(0, 1); Euler's step adds .02 to the mean of t."""
    found = drawn(spec(task(), **change))
    assert bool((found["frozen"] == 1).all())
    # A coordinate forgets in N/lr·variance steps, so that WIDTH·steps·lr/N/(2·variance) draws are independent.
    for name, mean, variance in (("t", 1.02, 0.5), ("idle", 0.0, 1.0)):
        draws = WIDTH * 0.75 * STEPS / N / (2 * variance)
        assert abs(float(found[name].mean()) - mean) < 4 * math.sqrt(variance / draws)
        assert abs(float(found[name].var()) - variance) < 4 * variance * math.sqrt(2 / draws)


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name not in WITH_LAYERS])
def test_what_a_batch_does_not_use_is_what_it_uses_by_nothing(sampler: str) -> None:
    lr = 1e-4 if sampler == "psgld" else 0.1  # which it divides by its least gradient, 1e-5
    some, every = (drawn(spec(task(model), sampler, 60, lr)) for model in (Branch, Computed))
    for name, values in some.items():
        assert torch.equal(values, every[name]), name


def test_a_chain_that_an_older_version_began_goes_on_where_every_gradient_is_there_alone() -> None:
    for model in (Computed, Branch):
        made = spec(task(model), steps=60)
        chain = Chain(made)
        chain.advance(lambda chain=chain: chain.step >= 20)
        older = chain.state_dict()
        del older["without_gradient"]
        other = Chain(made)
        other.load_state_dict(older)
        assert "without_gradient" not in other.state_dict()
        if model is Computed:
            assert len([*other]) > 0 and other.done
        else:
            with refused("older", "store", "version"):
                list(other)


def test_a_micro_batch_chain_of_an_older_version_goes_on() -> None:
    """It had gradients of 0 before."""
    chain = Chain(spec(task(), steps=60, micro_batch=5))
    older = chain.state_dict()
    del older["without_gradient"]
    chain.load_state_dict(older)
    assert len([*chain]) > 0 and chain.done


def test_the_plan_names_what_no_loss_reaches() -> None:
    class Unheard(Branch):
        def forward(self, x: Tensor) -> Tensor:
            return self.t.detach() * x

    def told(model: type[nn.Module]) -> list[str]:
        made = task(model)
        built = made.build_model(seed=0, lanes=1)
        return unreached(made, built, dict(built.named_parameters()))

    (line,) = told(Branch)
    assert "idle" in line and "frozen" not in line and " t" not in line.partition("reaches")[2].partition(":")[0]
    assert told(Computed) == []
    with refused("branch", "no_grad"):
        told(Unheard)
