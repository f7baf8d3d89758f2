"""Options of the commands that plan and run chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from raychains.options.common import Sampling
from raychains.options.kinds import Integer, Names, Number, Text


@dataclass(frozen=True, kw_only=True)
class Run(Sampling):
    """Sample one posterior: one task, one sampler, one schedule, several chains.

    Writes samples, an evaluation and a report to STORE/runs/NAME. With --options FILE the options that a JSON file names,
    such as a sweep's best.json, have its values; the command line's come first.

    Example: raychains run --task digits --sampler csghmc --chains 2 --epochs 80
    """

    task: str = "digits"
    """What is sampled: digits, mnist-mlp, mnist-cnn, mnist-1v7, fashion-mnist-mlp, cifar10-resnet18, cifar100-resnet18,
    cifar10-resnet18-frn, cifar10-resnetpp56, cifar10-resnet20, cifar10-lenet, cifar100-lenet, the densities mixture25,
    gaussian, two-modes, linear-regression, blr-australian, blr-german, blr-heart, the prepared sets imagenet-resnet50,
    imagenet-resnetpp50, imagefolder-lenet, imagefolder-resnet18, imagefolder-resnet50, imagefolder-resnetpp; or
    module:make_task, a task of your own, searched from the current folder on (see raychains init-task)."""
    sampler: Text = None
    """Method; default the task's, csghmc for most. One of sgd sgdm snapshot-sgd snapshot-sgdm sgld csgld sghmc csghmc
    psgld cpsgld sgnht atmc emcmc entropy-sgd entropy-sgld sam bsam. The name gives update rule, schedule and the
    paper's settings."""
    schedule: Text = None
    """Step size: cyclical, decreasing, constant, linear, exponential or step; default the method's own."""


@dataclass(frozen=True, kw_only=True)
class Compare(Sampling):
    """Compare parallel with single chains at equal cost, as cSG-MCMC's Table 2 (classifiers) or Table 4 (densities).

    The arms are cyclical + parallel (E epochs, n chains), decreasing + parallel (E, n), decreasing + parallel (E/2, n)
    and cyclical + single (E, 1), for every sampler. Chains that two arms share run once. With --options FILE the options
    that a JSON file names have its values; the command line's come first.

    Example: raychains compare --task digits --sampler sgld sghmc --epochs 200 --repeats 5
    """

    task: str = "digits"
    """What is sampled: digits, mnist-mlp, mnist-cnn, mnist-1v7, fashion-mnist-mlp, cifar10-resnet18, cifar100-resnet18,
    cifar10-resnet18-frn, cifar10-resnetpp56, cifar10-resnet20, cifar10-lenet, cifar100-lenet, the densities mixture25,
    gaussian, two-modes, linear-regression, blr-australian, blr-german, blr-heart, the prepared sets imagenet-resnet50,
    imagenet-resnetpp50, imagefolder-lenet, imagefolder-resnet18, imagefolder-resnet50, imagefolder-resnetpp; or
    module:make_task, a task of your own, searched from the current folder on (see raychains init-task)."""
    sampler: Names = ()
    """Methods to compare, as for raychains run; default the task's. One that names its schedule, like csgld, has only
    that schedule's arms."""
    schedule: Names = ("cyclical", "decreasing")
    """Schedules whose arms are compared; default both, cyclical and decreasing."""
    preset: Text = None
    """A named comparison instead, of arms that differ in one setting: emcmc-eta, emcmc-temperature, emcmc-variables,
    emcmc-batchnorm, emcmc-burn-in, emcmc-augmentation, atmc-cycles (on digits), mnist-1v7, mnist-uncertainty,
    imagenet-table3, imagenet-emcmc, imagenet-atmc. It says task, sampler and schedule itself: docs/presets.md."""


@dataclass(frozen=True, kw_only=True)
class Plan(Compare):
    """Say what a comparison will cost, before anything is spent: the options are those of raychains compare.

    Prints arms and unique chains, gradient evaluations, device hours and money, and bytes of samples, checkpoints and
    predictions. Chains that the store holds already cost nothing.

    Example: raychains plan --preset imagenet-table3 --images-per-second 2500 --price 3
    """

    images_per_second: Number = None
    """Gradient evaluations a second of one device, for hours: measure it with benchmarks/chain.py --device cuda."""
    measured_on: Text = None
    """A run, STORE/runs/NAME, whose finished chains tell the gradient evaluations a second of one slot; instead of
    images_per_second."""
    price: Number = None
    """Of one device for an hour, in any currency."""
    devices: Integer = None
    """Devices that there are, for days; default one for every chain."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Run):
    """Find good settings by a sweep, judged on the split val; the test split is never read. Every point is one chain.

    Every point costs the same gradient evaluations. After each cycle it reports what the ensemble so far is worth, to
    STORE/sweeps/NAME; raychains run --options STORE/sweeps/NAME/best.json then runs the best one. Settings that all
    points share are given as for raychains run. docs/sweeps.md

    Example: raychains sweep --task digits --epochs 80 --grid exploration=0,.25,.5 cycles=2,4,8
    """

    chains: int = 1
    """Always 1: a point of a sweep is one chain."""
    grid: Annotated[tuple[str, ...], arg(metavar="NAME=A,B,C …", help_behavior_hint="")] = ()
    """Values of options, all combinations of which are run: exploration=0,.25,.5 cycles=2,4,8 lr=.1,.5. Any setting of
    chains may be varied, sampler, schedule and further settings such as eta too. Default, without --space: exploration
    (β) 0,.25,.5,.75 × cycles (M) 2,4,8, as far as they fit into the epochs."""
    space: Annotated[tuple[str, ...], arg(metavar="NAME=RANGE …", help_behavior_hint="")] = ()
    """Ranges to draw points from: lr=log:1e-3:1 exploration=uniform:0:.9 cycles=int:2:16, or lists as in a grid."""
    random: Integer = None
    """Draw this many points of the space, independently."""
    optuna: Integer = None
    """Let Optuna choose this many points of the space, each by the results so far; needs the extra raychains[optuna]."""
    metric: str = "nll"
    """What decides, a metric of the split val: nll, error, brier, ece, …"""
    asha: bool = False
    """Stop the worse points early: asynchronous successive halving, by reports at equal epochs."""
    asha_grace: float = 0.25
    """Share of the epochs before which no point is stopped."""
    asha_reduction: float = 3.0
    """Of the points that come as far as a rung, the best 1/asha_reduction go on; the next rung is as many times later."""
    repeats: Integer = None
    """Independent repetitions of every point, whose mean decides; default 1."""
