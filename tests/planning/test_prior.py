"""The option ``prior``: what it makes of a chain, its gradient in every sampler and pack, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, distributions, nn

from raychains import Task, priors, tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.chain.pack import Pack
from raychains.core.config import Local, Run
from raychains.core.spec import Part
from raychains.planning import methods
from tests.chain.chain_cases import run
from tests.chain.test_pack import together
from tests.checks import refused

N = 30
PATTERNS = {"*.weight": "laplace:0.3", "*.bias": "student-t:4,0.5"}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))


def task(**settings: Any) -> Task:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(N, 3, generator=drawn)
    data = (x, (x[:, 0] > 0).long())
    return Task.from_module(network, data, data, name="prior", **settings)


def method(of: Task, sampler: str = "sghmc", **options: Any) -> methods.Method:
    given = Run(task="prior", **{"epochs": 6, "batch_size": 10, "lr": 0.02, **options})
    return methods.resolve(given, task=of, sampler=sampler, schedule="constant")


def expected(p: Tensor, text: str) -> Tensor:
    """log p of one parameter by torch's distributions."""
    name, _, numbers = text.partition(":")
    settings = [float(number) for number in numbers.split(",") if number]
    if name == "fan-in":
        std = settings[0] / math.sqrt(p.shape[1]) if p.ndim > 1 else 1.0
        return distributions.Normal(0.0, std).log_prob(p).sum()
    if name == "student-t":
        return distributions.StudentT(settings[0], 0.0, settings[1]).log_prob(p).sum()
    kind = {"gaussian": distributions.Normal, "laplace": distributions.Laplace}[name]
    return kind(0.0, settings[0]).log_prob(p).sum()


def of_name(prior: str | Mapping[str, str], name: str) -> str:
    return prior if isinstance(prior, str) else prior[f"*.{name.rpartition('.')[2]}"]


@pytest.mark.parametrize("prior", ["gaussian:0.1", "fan-in:1.4", "laplace:0.3", "student-t:4,0.5", PATTERNS], ids=str)
def test_the_gradient_is_that_of_loss_and_prior(prior: str | Mapping[str, str]) -> None:
    """With every way in: the gradients of a chain's U/N against autograd of the loss and torch's log densities."""
    own = task()
    texts = priors.as_texts(prior)
    found = method(own, prior=texts)
    chain = Chain(found.chain(0, 0), own)
    batch = torch.arange(10)
    chain._gradient(batch)
    decay = found.spec.sampler.settings["weight_decay"]
    ours = {name: p.grad + decay * p.detach() for name, p in chain.sampled.items() if p.grad is not None}
    by_name = dict(chain.model.named_parameters())
    log_p = torch.stack([expected(p, of_name(prior, name)) for name, p in by_name.items()]).sum()
    u = own.loss(chain.model, batch, torch.Generator()) - log_p / N
    for (name, _), gradient in zip(by_name.items(), torch.autograd.grad(u, list(by_name.values())), strict=True):
        torch.testing.assert_close(ours[name], gradient)
    stated = task(prior=prior)
    assert method(stated).spec.prior == found.spec.prior and method(stated).spec.digest == found.spec.digest


def test_a_gaussian_on_all_parameters_is_a_weight_decay() -> None:
    found = method(task(), prior="gaussian:0.1")
    assert found.spec.prior is None and math.isclose(found.spec.sampler.settings["weight_decay"], 1 / (N * 0.01))
    assert "prior: N(0, 0.01) on every parameter" in found.notes()
    assert "prior: N(0, 333) on every parameter: very wide" in method(task()).notes()
    stated = task(prior="gaussian:0.1")
    assert method(stated).spec == found.spec
    assert method(stated, weight_decay=1e-3).spec.sampler.settings["weight_decay"] == 1e-3  # options before the task's
    assert method(stated, prior="fan-in").spec.prior == Part.from_json(priors.FanIn().to_json())


def test_the_prior_weighs_as_the_sampler_weighs_the_data() -> None:
    """With N doubled by the sampler's own setting, the share of the prior in a step's gradient halves."""
    found = []
    for n in (N, 2 * N):
        chain = Chain(method(task(), prior="laplace:0.3", sampler_settings={"num_data": n}).chain(0, 0), task())
        chain._gradient(torch.arange(10))
        found.append({name: p.grad.clone() for name, p in chain.sampled.items() if p.grad is not None})
    for name, p in chain.sampled.items():
        share = p.detach().sign() / 0.3
        torch.testing.assert_close(found[0][name] - found[1][name], share / N - share / (2 * N))


def test_plans_say_the_prior_in_words() -> None:
    for texts, words in (
        (["fan-in:1.4"], "N(0, 1.96/fan_in) on weights and N(0, 1) on other parameters"),
        (["*.weight=fan-in", "*.bias=flat"], "of parameters *.weight; flat on parameters *.bias"),
        (["student-t:4,0.5"], "student-t df 4, scale 0.5 on every parameter"),
    ):
        assert words in priors.in_words(priors.read(texts))


def test_texts_objects_and_mappings_are_one_prior() -> None:
    made = priors.Product(
        [priors.Laplace(scale=0.3, match="*.weight"), priors.StudentT(df=4, scale=0.5, match="*.bias")]
    )
    texts = priors.as_texts(PATTERNS)
    assert priors.read(texts) == made == priors.read(priors.as_texts(made)) == priors.read(list(texts))
    assert priors.read(["fan-in"]) == priors.FanIn() == priors.read(priors.as_texts([priors.FanIn()]))
    for prior in (made, priors.FanIn(gain=2)):
        assert priors.from_json(prior.to_json()) == prior


@pytest.mark.parametrize("sampler", ["sghmc", "sam", "swag"])
def test_chains_of_packs_have_the_prior(sampler: str) -> None:
    """Beside others the bytes of a chain alone in a pack, and the numbers of one that steps by itself."""
    own = task()
    options = {"prior": tuple(priors.as_texts(PATTERNS)), "temperature": None}
    packed = method(own, sampler, **options, pack="3")
    alone = Chain(packed.chain(0, 0), own)
    run(alone)
    several = [Chain(packed.chain(0, k), own) for k in (1, 0)]
    together(Pack(several[0]), several)
    by_itself = Chain(method(own, sampler, **options).chain(0, 0), own)
    run(by_itself)
    without = Chain(method(own, sampler).chain(0, 0), own)
    run(without)
    for name, p in alone.sampled.items():
        assert torch.equal(p, several[1].sampled[name])
        torch.testing.assert_close(p, by_itself.sampled[name], rtol=1e-3, atol=1e-4)
    assert not torch.allclose(alone.sampled["0.weight"], without.sampled["0.weight"], rtol=1e-3, atol=1e-4)


def test_what_is_refused() -> None:
    own = task()
    for prior, words in (
        ("gausian:1", ("prior must be one of", "gausian:1", "student-t:DF,SCALE")),
        ("gaussian", ("prior must be written gaussian:STD", "'gaussian'")),
        ("gaussian:1,2", ("prior must be written gaussian:STD", "'gaussian:1,2'")),
        ("gaussian:x", ("prior must be written gaussian:STD",)),
        ("gaussian:0", ("std of prior 'gaussian:0'", "above 0")),
        ("*.wieght=fan-in", ("match", "*.wieght")),
    ):
        with refused(*words):
            method(own, prior=prior)
    with refused("prior must cover parameter '0.bias' by exactly one factor"):
        method(own, prior=("0.weight=fan-in", "2.*=fan-in"))
    with refused("weight_decay must be left out beside", "prior", "0.001"):
        method(own, prior="fan-in", weight_decay=0.001)
    with refused("prior must be a text"):
        task(prior=3)
    with refused("weight_decay among the defaults", "left out beside a prior"):
        method(task(prior="fan-in", defaults={"weight_decay": 1e-3}))
    for sampler in ("laplace", "bsam"):
        with refused("prior must be gaussian:STD", sampler):
            method(own, sampler, prior="fan-in")
    with refused("pack must be left out", "mclmc is packed with a Gaussian prior on all parameters alone"):
        method(own, "mclmc", prior="fan-in", pack="2")
    density = tasks.make("mixture25")
    with refused("prior must be left out for task mixture25", "it is a density"):
        methods.resolve(Run(task="mixture25", prior="fan-in"), task=density, sampler="sgld")
    with refused("prior must be left out of a local posterior", "fan-in"):
        plans.local(Local(task="digits", init_from=("w.pt",), prior="fan-in"))
