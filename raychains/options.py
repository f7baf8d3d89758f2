"""What people can set: one flat dataclass per command, the same names on the command line and in Python.

A number that is left out takes the method's default for the task, which the printed plan shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

# What may be left out is shown by its kind alone: its default is the method's, or the docstring says it.
Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Integer = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], arg(metavar="NAME …", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Common:
    """Where results lie and where the work runs."""

    store: str = "runs"
    """Folder of the run store, or any URI that pyarrow knows (s3://bucket/prefix)."""
    name: Text = None
    """Name of the run; by default the task and the first digits of the plan's digest, so one plan has one name."""
    resume: bool = False
    """Continue the run of this name, if there is one: finished chains are not run again, stopped ones go on."""
    data_root: Text = None
    """Folder with the data sets (torchvision's layout); default RAYCHAINS_DATA, else a folder of the user's cache."""
    address: Text = None
    """Ray cluster to join, HOST:PORT; default RAY_ADDRESS, else Ray is started on this machine."""
    cpus_per_chain: int = 1
    """CPU cores per chain, which are also its torch threads."""
    gpus_per_chain: Number = None
    """GPUs per chain: 1/k shares one between k chains; default 1 where Ray has GPUs, else 0."""
    evaluators: Integer = None
    """Evaluation workers; default one for every two slots."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints of each chain."""
    object_store_memory: Integer = None
    """Bytes of Ray's object store when Ray is started here; default 1 GB or 20 % of the memory, whichever is less."""


@dataclass(frozen=True, kw_only=True)
class Sampling(Common):
    """Settings of the chains that run and compare share."""

    epochs: Integer = None
    """Passes over the data of each chain (tasks with data)."""
    steps: Integer = None
    """Gradient steps of each chain (densities)."""
    chains: int = 4
    """Parallel chains."""
    cycles: Integer = None
    """M: how often a cyclical step size restarts."""
    exploration: Number = None
    """β in [0, 1): share of each cycle spent without noise."""
    samples_per_cycle: Integer = None
    """Samples kept at the end of each cycle."""
    thinning: Integer = None
    """Steps between kept samples; default an epoch (1 for densities)."""
    lr: Number = None
    """Initial step size on the mean-loss scale, as in torch.optim.SGD."""
    momentum: Number = None
    """Momentum m in [0, 1) of sghmc and sgdm; the friction is 1 − m."""
    temperature: Number = None
    """Posterior temperature T: 1 samples the posterior, 0 optimises."""
    weight_decay: Number = None
    """Strength λ of the Gaussian prior N(0, 1/(Nλ)) on the mean-loss scale."""
    batch_size: Integer = None
    """Examples per gradient step."""
    seed: int = 0
    """Seed of all random streams."""
    repeats: Integer = None
    """Independent repetitions, for standard errors."""
    lanes: Integer = None
    """Repeats that one process stacks (densities); default all of them."""


@dataclass(frozen=True, kw_only=True)
class Run(Sampling):
    """Sample one posterior: one task, one sampler, one schedule, several chains.

    Writes samples, an evaluation and a report to STORE/runs/NAME.

    Example: raychains run --task digits --sampler sghmc --schedule cyclical --chains 2 --epochs 80
    """

    task: str = "digits"
    """What is sampled: digits, mixture25."""
    sampler: str = "sghmc"
    """Update rule: sgd, sgdm, sgld, sghmc."""
    schedule: str = "cyclical"
    """Step size: cyclical or decreasing."""


@dataclass(frozen=True, kw_only=True)
class Compare(Sampling):
    """Compare parallel with single chains at equal cost, as cSG-MCMC's Table 2 (classifiers) or Table 4 (densities).

    The arms are cyclical + parallel (E epochs, n chains), decreasing + parallel (E, n), decreasing + parallel (E/2, n)
    and cyclical + single (E, 1), for every sampler. Chains that two arms share run once.

    Example: raychains compare --task digits --sampler sgld sghmc --epochs 200 --repeats 5
    """

    task: str = "digits"
    """What is sampled: digits, mixture25."""
    sampler: Names = ()
    """Update rules to compare, one or more of sgd, sgdm, sgld, sghmc; default the task's."""
    schedule: Names = ("cyclical", "decreasing")
    """Schedules whose arms are compared; default both, cyclical and decreasing."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Common):
    """Evaluate a run's finished chains on a split of its task.

    Example: raychains evaluate runs/runs/digits-1a2b3c4d --split test
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
    split: Text = None
    """The task's split, e.g. test or train; default the run's own."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw a run's report again from its stored results.

    Example: raychains report runs/runs/digits-1a2b3c4d
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
