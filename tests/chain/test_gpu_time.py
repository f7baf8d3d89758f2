"""The estimated time of a step on a GPU: its operators against formulas and torch's own count, its seconds by hand."""

from __future__ import annotations

import dataclasses
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from raychains import Task, tasks
from raychains.api.commands import mean_rate, plan, steps_on_gpu
from raychains.chain import gpu_time
from raychains.chain.gpu_time import Gpu, Step, estimate
from raychains.chain.operators import Operators
from raychains.core.config import Plan, Run
from raychains.core.spec import ChainSpec
from raychains.models.resnet import ResNet18
from raychains.planning import methods
from raychains.planning.budget import gradient_evaluations
from raychains.tasks.digits import Digits
from tests.checks import refused
from tests.processes import RAYCHAINS, SECONDS

LAYERS = (64 * 100, 100 * 100, 100 * 10)
"""Weights of the digits' MLP."""


@pytest.fixture(scope="module")
def digits() -> Task:
    return tasks.make("digits")


def spec(task: Task, sampler: str = "sghmc", **options: Any) -> ChainSpec:
    return methods.resolve(Run(task="digits", **options), task=task, name="digits", sampler=sampler).spec


def test_an_mlps_products_are_those_of_its_layers(digits: Task) -> None:
    first, *others = LAYERS
    for batch, sampler, times in ((50, "sghmc", 1), (173, "sgld", 1), (50, "sam", 2)):
        step = estimate(spec(digits, sampler, batch_size=batch), digits, "H100")
        assert step.flops == times * 2 * batch * (2 * first + 3 * sum(others))  # no gradient of the inputs
        assert (step.examples, step.gradients) == (batch, times * batch)


class Turned(nn.Module):
    """A network of products and convolutions of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2), nn.ConvTranspose2d(8, 6, 3)
        )
        self.last = nn.Linear(6, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x).flatten(2).mT
        attention = torch.baddbmm(x @ x.mT, x, x.mT).softmax(2)
        out: Tensor = self.last(attention @ x).mean(1)
        return out


@pytest.mark.parametrize(("make", "size"), [(Turned, 9), (partial(ResNet18, 10), 32)])
def test_products_and_convolutions_are_counted_as_torch_counts_them(make: Any, size: int) -> None:
    torch.manual_seed(0)
    model = make()
    inputs, labels = torch.randn(2, 3, size, size), torch.tensor([1, 3])

    def step() -> None:
        F.cross_entropy(model(inputs), labels).backward()

    with FlopCounterMode(display=False) as torchs:
        step()
    with Operators() as ours:
        step()
    assert sum(o.flops for o in ours.called) == torchs.get_total_flops() > 0
    if size == 32:  # .5556 · 10⁹ multiplications an image (He et al. 2016's network in CIFAR's form), three times
        assert torchs.get_total_flops() == pytest.approx(2 * 3 * 2 * 0.5556e9, rel=0.005)


def test_bytes_are_those_of_the_tensors_read_and_written() -> None:
    x, y = torch.zeros(10), torch.zeros(3, 10, dtype=torch.float64)
    with Operators() as seen:
        x.add_(x)
        z = y + x
        z.view(10, 3)
        torch.empty(5)
        torch._foreach_mul_([x, y], 2.0)
    assert [(o.name, o.bytes) for o in seen.called] == [("add_", 40), ("add", 520), ("_foreach_mul_", 280)]


@pytest.mark.parametrize("sampler", ["sghmc", "sgnht", "sam", "deep-ensemble", "mclmc"])
def test_two_small_batches_tell_the_operators_of_any(digits: Task, sampler: str) -> None:
    one = spec(digits, sampler, batch_size=60)
    told, made = gpu_time._at(one, digits, 60), gpu_time._operators(one, digits, 60)
    assert [(o.name, o.flops) for o in told] == [(o.name, o.flops) for o in made]
    assert [o.bytes for o in told] == pytest.approx([o.bytes for o in made])


def on(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, one: ChainSpec, task: Task) -> Step:
    monkeypatch.setitem(gpu_time.GPUS, "some", gpu)
    return estimate(one, task, "some")


def test_a_step_takes_what_its_slowest_part_does(digits: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    one = spec(digits)
    fast = dict.fromkeys(("fp64", "fp32", "tf32", "bf16"), 1e30)
    with monkeypatch.context() as patch:
        patch.setattr(gpu_time, "recorded", lambda spec, task: False)
        eager = on(patch, Gpu(flops=fast, bandwidth=1e30), one, digits)
    assert eager.seconds == pytest.approx(30e-6 * eager.operators) and eager.bound == "launches"
    at_least = on(monkeypatch, Gpu(flops=fast, bandwidth=1e30), one, digits)
    assert at_least.seconds == pytest.approx(max(250e-6, 8e-6 * eager.operators)) and at_least.bound == "launches"
    slow = on(monkeypatch, Gpu(flops=fast, bandwidth=1e3), one, digits)
    assert slow.seconds == pytest.approx(slow.bytes / 0.4e3, rel=1e-3) and slow.bound == "memory"
    weak = on(monkeypatch, Gpu(flops={**fast, "fp32": 1e3}, bandwidth=1e30), one, digits)
    assert weak.seconds == pytest.approx(weak.flops / 0.5e3, rel=1e-3) and weak.bound == "products"
    for precision in ("tf32", "bf16", "fp64"):
        other = dataclasses.replace(one, precision=precision)
        assert on(monkeypatch, Gpu(flops={**fast, "fp32": 1e3}, bandwidth=1e30), other, digits).bound == "launches"
        same = on(monkeypatch, Gpu(flops={**fast, precision: 1e3}, bandwidth=1e30), other, digits)
        assert same.seconds == pytest.approx(weak.seconds, rel=1e-3)
    assert weak.rate == 50 / weak.seconds


def test_a_pack_launches_once_for_all_rows_and_each_draws_its_noise(
    digits: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, fast = spec(digits), dict.fromkeys(("fp64", "fp32", "tf32", "bf16"), 1e30)
    free, slow = Gpu(flops=fast, bandwidth=1e30), Gpu(flops=fast, bandwidth=1e3)
    alone, pack = (on(monkeypatch, free, dataclasses.replace(one, pack=pack), digits) for pack in (1, 10))
    assert pack.seconds - alone.seconds == pytest.approx(9 * 30e-6) and pack.bound == "launches"
    assert pack.rate == pytest.approx(10 * alone.rate * alone.seconds / pack.seconds)
    alone, pack = (on(monkeypatch, slow, dataclasses.replace(one, pack=pack), digits) for pack in (1, 10))
    assert pack.seconds == pytest.approx(10 * alone.seconds) and pack.rate == pytest.approx(alone.rate)


def drawn(one: ChainSpec, task: Task) -> list[float]:
    """Bytes of each draw of noise in a step."""
    return [o.bytes for o in gpu_time._operators(one, task, 4) if o.name == "normal_"]


@pytest.mark.parametrize("hidden", [100, 4])
def test_noise_is_counted_as_a_gpu_draws_it(hidden: int) -> None:
    """In one call and one sum, though a cyclical chain begins without noise, and a CPU draws that of many numbers without torch."""
    task = tasks.make("digits", hidden=(hidden, hidden))
    cold, hot = (gpu_time._operators(spec(task, name), task, 4) for name in ("sgd", "sgld"))
    parameters = 64 * hidden + hidden * hidden + hidden * 10 + 2 * hidden + 10
    assert drawn(spec(task, "sgd"), task) == []
    for sampler in ("sgld", "csghmc", "psgld", "atmc"):
        assert drawn(spec(task, sampler), task) == [4 * parameters]
    names = [o.name for o in cold]
    assert [o.name for o in hot] == [*names[:-2], "normal_", "_foreach_add_", *names[-2:]]


def test_of_frozen_parameters_nothing_is_counted(digits: Task) -> None:
    last = dataclasses.replace(spec(digits), sample_only=("layers.4.*",), start="0" * 64)
    step = estimate(last, digits, "H100")
    assert step.flops == 2 * 50 * (sum(LAYERS) + LAYERS[-1])  # forward, and the gradient of the last layer's weight
    assert drawn(last, digits) == [4 * (LAYERS[-1] + 10)]


def test_a_device_has_its_share_of_a_batch(digits: Task) -> None:
    one = spec(digits, batch_size=100)
    assert [estimate(one, digits, "H100", workers=n).examples for n in (1, 3)] == [100, 34]
    assert estimate(dataclasses.replace(one, micro_batch=25), digits, "H100").examples == 25


def test_a_plans_rate_is_the_mean_over_its_gradient_evaluations(tmp_path: Path) -> None:
    options = Plan(task="digits", sampler=("sghmc", "sam"), epochs=40, gpu="A100", store=str(tmp_path))
    comparison, *_ = plan(options)
    steps = steps_on_gpu(options, comparison)
    seconds = [
        spec.steps * steps[digest].seconds for digest, spec in comparison.chains().items()
    ]  # every batch but an epoch's last is whole
    evaluations = sum(gradient_evaluations(s) for s in comparison.chains().values())
    assert evaluations / sum(seconds) == pytest.approx(mean_rate(comparison, steps), rel=0.01)
    assert len({id(step) for step in steps.values()}) == 2  # one of each sampler
    assert steps_on_gpu(dataclasses.replace(options, gpu=None), comparison) == {}


class Odd(Digits):
    """A task whose loss has another operator for some numbers of examples."""

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        found = super().loss(model, batch, generator)
        return found.exp().log() if len(batch) % 4 else found


def test_what_cannot_be_estimated_is_refused_in_one_line(digits: Task, tmp_path: Path) -> None:
    with refused("gpu", "H100", "it is a density"):
        mixture = tasks.make("mixture25")
        given = methods.resolve(Run(task="mixture25"), task=mixture, name="mixture25", sampler="sgld").spec
        estimate(given, mixture, "H100")
    odd = Odd()
    with refused("gpu", "how many examples", "images_per_second"):
        estimate(spec(odd), odd, "H100")
    with refused("gpu", "images_per_second", "H200"):
        plan(Plan(task="digits", gpu="H200", images_per_second=1.0, store=str(tmp_path)))
    with refused("gpu", "measured_on"):
        plan(Plan(task="digits", gpu="H200", measured_on="runs/runs/a", store=str(tmp_path)))


def test_the_command_prints_the_steps_and_says_that_they_are_estimated(tmp_path: Path) -> None:
    command = [*RAYCHAINS, "plan", "--task", "digits", "--sampler", "sghmc", "--price", "3", "--store", str(tmp_path)]
    done = subprocess.run([*command, "--gpu", "H100"], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")  # torch's compiler, were it loaded, would complain there
    assert (
        "a step on one H100, estimated" in done.stdout
        and "estimated, as steps of ResNet-18 were measured on an H200: kernels reach" in done.stdout
    )
    assert "device hours: " in done.stdout and "price: " in done.stdout and "bound" in done.stdout
    wrong = subprocess.run([*command, "--gpu", "B200"], capture_output=True, text=True, timeout=SECONDS)
    assert wrong.returncode == 2 and "--gpu must be one of A100, H100, H200, got 'B200'" in wrong.stderr
