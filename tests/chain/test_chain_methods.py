"""Chains of the methods that ask for more: two gradients a step, several variables, BatchNorm's statistics, a prior
object."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import nn

from raychains import samplers
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec, Part
from raychains.schedules import Cyclical
from tests.chain.chain_cases import SAMPLERS, chain_spec, run
from tests.chain.chain_tasks import VariedDigits
from tests.checks import refused

STEPS = 20


def spec(
    sampler: str, own: dict[str, Any], *, temperature: float = 0.0, keep: int = 1, task: dict[str, Any], **change: Any
) -> ChainSpec:
    """A chain of 20 steps, 4 epochs of 5 batches, on a variant of the digits."""
    made = VariedDigits(**task)
    schedule = Cyclical(
        steps=STEPS, lr=0.1, cycles=1, exploration=0.0, samples_per_cycle=keep, thinning=5, temperature=temperature
    )
    return chain_spec(made, sampler, schedule, own, steps_per_epoch=5, batch_size=20, **{"seed": 1, **change})


def last(chain: Chain) -> dict[str, torch.Tensor]:
    """The last sample's tensors."""
    return dict([e for e in run(chain) if isinstance(e, Sample)][-1].tensors)


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], atol: float) -> bool:
    return all(torch.allclose(a[n].double(), b[n].double(), rtol=0, atol=atol) for n in a)


def test_both_gradients_of_a_step_see_the_same_dropout_and_batchnorm_learns_from_the_first() -> None:
    """With a vanishing radius SAM is SGD with momentum, if nothing between the two gradients is drawn anew."""
    task = {"dropout": 0.5, "batchnorm": True}
    sgdm = last(Chain(spec("sgdm", {"momentum": 0.9}, task=task)))
    sam = last(Chain(spec("sam", {"momentum": 0.9, "rho": 1e-9}, task=task)))
    assert close(sam, sgdm, 1e-5)
    other = last(Chain(dataclasses.replace(spec("sgdm", {"momentum": 0.9}, task=task), seed=2)))
    assert not close(other, sgdm, 1e-2)


def test_sub_batches_partition_the_batch() -> None:
    """SAM of vanishing radius on four sub-batches averages to the whole batch's gradient."""
    sgdm = last(Chain(spec("sgdm", {"momentum": 0.9}, task={})))
    sam = last(Chain(spec("sam", {"momentum": 0.9, "rho": 1e-9, "m_sharpness": 4}, task={"train": 100})))
    same = last(Chain(spec("sgdm", {"momentum": 0.9}, task={"train": 100})))
    assert close(sam, same, 1e-5) and not close(sam, sgdm, 1e-3)


def test_a_last_batch_smaller_than_the_number_of_sub_batches_is_no_error() -> None:
    task = {"train": 82}  # batches of 20, 20, 20, 20 and 2
    chain = Chain(spec("bsam", {"m_sharpness": 8}, task=task, batchnorm="reestimate", temperature=1.0))
    assert all(torch.isfinite(t).all() for t in last(chain).values())


@pytest.mark.parametrize("sampler", ["emcmc", "bsam", "entropy-sgd"])
def test_reestimated_statistics_are_those_of_the_draw_itself(sampler: str) -> None:
    own = {"emcmc": {"eta": 0.01}, "bsam": {"m_sharpness": 1}, "entropy-sgd": {"inner_steps": 4}}[sampler]
    made = spec(
        sampler, own, task={"train": 100, "batchnorm": True}, batchnorm="reestimate",
        temperature=0.0 if sampler == "entropy-sgd" else 1.0,
    )  # fmt: skip
    chain = Chain(made)
    samples = [e for e in run(chain) if isinstance(e, Sample)]
    assert [s.meta.variable for s in samples] == (["theta", "anchor"] if sampler == "emcmc" else ["theta"])
    task: Any = chain.task
    for sample in samples:
        t = {n: v.double() for n, v in sample.tensors.items()}
        out = task.raw().double() @ t["0.weight"].T + t["0.bias"]
        # Equal batches: the average of the batches' means is the mean over all data.
        torch.testing.assert_close(t["1.running_mean"], out.mean(0), rtol=1e-5, atol=1e-6)
        assert int(sample.tensors["1.num_batches_tracked"]) == 5
    if sampler == "emcmc":
        assert not torch.equal(samples[0].tensors["0.weight"], samples[1].tensors["0.weight"])
        assert not torch.equal(samples[0].tensors["1.running_mean"], samples[1].tensors["1.running_mean"])


def test_reestimation_moves_nothing_of_the_chain() -> None:
    task = {"train": 100, "batchnorm": True, "dropout": 0.3}
    keep = last(Chain(spec("sghmc", {"momentum": 0.9}, task=task, temperature=1.0, keep=3)))
    again = last(Chain(spec("sghmc", {"momentum": 0.9}, task=task, temperature=1.0, keep=3, batchnorm="reestimate")))
    assert torch.equal(keep["0.weight"], again["0.weight"])
    assert not torch.equal(keep["1.running_mean"], again["1.running_mean"])


def test_a_choice_that_does_not_fit_the_model_is_refused() -> None:
    with refused("batchnorm", "keep or reestimate", "refuse"):
        Chain(spec("sgd", {}, task={"batchnorm": True}, batchnorm="refuse"))
    with refused("batchnorm", "reestimate", "emcmc", "keep"):
        Chain(spec("emcmc", {"eta": 1.0}, task={"batchnorm": True}))
    Chain(spec("sgd", {}, task={}, batchnorm="refuse"))


@pytest.mark.parametrize("sampler", ["sgld", "sam"])
def test_a_gaussian_prior_object_is_weight_decay(sampler: str) -> None:
    """N(0, 1/(Nλ)) as an object and as λ in the sampler give the same chain, to rounding."""
    decay = 0.02
    own: dict[str, Any] = {"momentum": 0.9} if sampler == "sam" else {}
    temperature = 0.0 if sampler == "sam" else 1.0
    std = 1 / math.sqrt(90 * decay)
    by_object = last(Chain(spec(sampler, own, task={"std": std}, temperature=temperature)))
    by_decay = last(Chain(spec(sampler, {**own, "weight_decay": decay}, task={}, temperature=temperature)))
    without = last(Chain(spec(sampler, own, task={}, temperature=temperature)))
    assert close(by_object, by_decay, 2e-5) and not close(without, by_decay, 1e-3)


def test_a_prior_counts_once() -> None:
    with refused("weight_decay", "0.1", "once"):
        Chain(spec("sgld", {"weight_decay": 0.1}, task={"std": 1.0}))


def test_a_task_that_adds_its_own_prior_takes_no_other() -> None:
    with refused("weight_decay", "0.5", "once"):
        plans.run(Run(task="linear-regression", sampler="sgld", weight_decay=0.5))


def test_a_draw_of_several_weight_samples_counts_each() -> None:
    made = spec("bsam", {"prediction_samples": 3}, task={}, batchnorm="reestimate", temperature=1.0, keep=2)
    samples = [e for e in run(Chain(made)) if isinstance(e, Sample)]
    assert [s.meta.index for s in samples] == list(range(6))
    assert [s.meta.step for s in samples] == [15] * 3 + [20] * 3
    assert len({s.tensors["0.weight"].sum().item() for s in samples}) == 6


@pytest.mark.parametrize("kind", samplers.KINDS)
def test_every_sampler_says_whether_running_statistics_fit_its_draws(kind: str) -> None:
    """They fit where every draw is a parameter itself, which is where the last gradient was taken."""
    p = nn.Parameter(torch.zeros(3))
    part = Part(kind=kind, revision=samplers.KINDS[kind].revision, settings={"num_data": 10, **SAMPLERS[kind]})
    sampler = samplers.build(part, [p], lr=0.1, temperature=0.0, seed=0)
    for _ in range(3):
        p.grad = torch.ones(3)

        def closure() -> torch.Tensor:
            p.grad = torch.ones(3)
            return torch.zeros(())

        sampler.step([closure] * sampler.parts if sampler.gradients_per_step == 2 else None)
    assert samplers.KINDS[kind].statistics_fit is all(t is p for _, tensors in sampler.draws() for t in tensors)
