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
Duration = Annotated[float | str, arg(metavar="TIME")]
Settings = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE …", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], arg(metavar="NAME …", help_behavior_hint="")]
Patterns = Annotated[tuple[str, ...], arg(metavar="PATTERN …", help_behavior_hint="")]


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
    gpus_per_evaluator: Number = None
    """GPUs per evaluation worker, 1/k or whole ones, which chains then do without; default 0: it predicts on the CPU."""
    checkpoint_every: Duration = 60.0
    """Time between checkpoints of each chain, in seconds or as 60s, 5min, 1h; ends of cycles have checkpoints as well."""
    max_failures: int = 3
    """Losses of its worker in a row, without progress, that a chain survives; also how often on_divergence restarts it."""
    on_divergence: Annotated[str, arg(metavar="{stop,restart-cycle,drop-chain}")] = "stop"
    """What becomes of a chain whose loss or parameters turn non-finite: stop gives it up, and its arms have no result;
    restart-cycle goes back to the start of its cycle with fresh noise; drop-chain evaluates its arms without it. The
    other chains carry on."""
    bins: int = 15
    """Bins of calibration errors and reliability diagrams; 8 is ATMC's number."""
    keep_predictions: Annotated[str, arg(metavar="{auto,all,none}")] = "auto"
    """Whether samples' predictions stay in the store, so that further measures need no forward pass; auto keeps up to
    1 GB of a run's."""
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
    final_lr: Number = None
    """Step size at the last step of a linear or exponential schedule; default a hundredth of lr."""
    burn_in: Integer = None
    """Epochs (steps of a density) without noise at the start of the run, or of each cycle; instead of β."""
    temperature_ramp: Number = None
    """Share of the run (or cycle) over which T grows linearly from 0 once the noise sets in; default 0, at once."""
    momentum: Number = None
    """Momentum m in [0, 1) of the methods that have it; the friction is 1 − m."""
    temperature: Number = None
    """Posterior temperature T: 1 samples the posterior, 0 optimises."""
    weight_decay: Number = None
    """Strength λ of the Gaussian prior N(0, 1/(Nλ)) on the mean-loss scale."""
    batch_size: Integer = None
    """Examples per gradient step."""
    batchnorm: Text = None
    """BatchNorm's running statistics in samples: keep the chain's, reestimate by a pass over the training data, shared (the
    chain's for draws of other variables, too: an ablation), or refuse."""
    precision: Annotated[str, arg(metavar="{fp32,tf32,bf16,fp64}")] = "fp32"
    """Arithmetic of the network: tf32 rounds factors of products (GPUs), bf16 runs the forward pass in half precision;
    parameters, sampler and loss stay in single precision then. docs/execution.md says what is exact where."""
    compile: Annotated[str, arg(metavar="{none,default,cuda-graphs}")] = "none"
    """torch.compile of the network's forward pass, with CUDA graphs on a GPU; the chain is then not exact on resume."""
    fast: bool = False
    """Let a GPU tune its kernels and use those that are not reproducible: the same law, other bytes on resume."""
    init_from: Text = None
    """File at which all chains start: safetensors, or a torch state dict (its content is part of the chain's digest)."""
    sample_only: Patterns = ()
    """Shell patterns of the parameters to sample, e.g. 'fc.*'; the others stay at init_from, which is needed."""
    sampler_settings: Settings = ()
    """Further settings of the samplers, e.g. eta=4e-4 update=gibbs; docs/samplers.md lists them."""
    schedule_settings: Settings = ()
    """Further settings of the schedules, e.g. sample_below=.01 or milestones=[.5,.75]."""
    task_settings: Settings = ()
    """Settings of the task, e.g. correlation=.5 for gaussian."""
    train_subset: Integer = None
    """Training examples that are used, each class's share kept (image tasks); default all."""
    val_split: Number = None
    """Share (below 1) or number of the training examples that is held out as the split val; default none."""
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

    Example: raychains run --task digits --sampler csghmc --chains 2 --epochs 80
    """

    task: str = "digits"
    """What is sampled: digits, mnist-mlp, mnist-cnn, mnist-1v7, fashion-mnist-mlp, cifar10-resnet18, cifar100-resnet18,
    cifar10-resnet18-frn, cifar10-resnetpp56, the densities mixture25, gaussian, two-modes, linear-regression,
    blr-australian, blr-german, blr-heart; or module:make_task, a task of your own, searched from the current folder on
    (see raychains init-task)."""
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
    and cyclical + single (E, 1), for every sampler. Chains that two arms share run once.

    Example: raychains compare --task digits --sampler sgld sghmc --epochs 200 --repeats 5
    """

    task: str = "digits"
    """What is sampled: digits, mnist-mlp, mnist-cnn, mnist-1v7, fashion-mnist-mlp, cifar10-resnet18, cifar100-resnet18,
    cifar10-resnet18-frn, cifar10-resnetpp56, the densities mixture25, gaussian, two-modes, linear-regression,
    blr-australian, blr-german, blr-heart; or module:make_task, a task of your own, searched from the current folder on
    (see raychains init-task)."""
    sampler: Names = ()
    """Methods to compare, as for raychains run; default the task's. One that names its schedule, like csgld, has only
    that schedule's arms."""
    schedule: Names = ("cyclical", "decreasing")
    """Schedules whose arms are compared; default both, cyclical and decreasing."""
    preset: Text = None
    """A named comparison instead, of arms that differ in one setting: emcmc-eta, emcmc-temperature, emcmc-variables,
    emcmc-batchnorm, emcmc-burn-in, emcmc-augmentation, atmc-cycles (on digits), mnist-1v7, mnist-uncertainty. It says
    task, sampler and schedule itself: docs/presets.md."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Common):
    """Evaluate a run's finished chains on a split of its task.

    Example: raychains evaluate runs/runs/digits-1a2b3c4d --views cycles without-chain --measures diversity diagnostics
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
    split: Text = None
    """The task's split, e.g. test or train; default the run's own."""
    views: Names = ()
    """Parts of each arm's samples to evaluate by themselves too: chains, cycles, stages, samples, variables (θ, θₐ),
    without-chain (all but one chain), first:N (the N samples that come first)."""
    weights: Names = ()
    """How samples are weighted besides equally: harmonic (cycles by their training likelihoods, cSG-MCMC's appendix F),
    stacking (on the split val), truncated (densities: by the posterior's mass that each cycle explored)."""
    measures: Names = ()
    """Further analyses: calibration, ood, corrupted, agreement, diversity, interpolation, diagnostics, reference, flatness.
    Each has tables and figures of its own in the run's folder and report: docs/evaluation.md."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write an arm's samples as one file, an ensemble for use without store, data and Ray.

    Load it with raychains.PosteriorPredictive.load(FILE): docs/deploy.md.

    Example: raychains export runs/runs/digits-1a2b3c4d --to digits.safetensors
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
    arm: Text = None
    """The arm's name; default the first."""
    group: int = 0
    """Which group of repeats, from 0."""
    to: Text = None
    """The file, a new one; default NAME.safetensors in the current folder."""
    first: Integer = None
    """Take this many samples, the first draws of all chains first; default all."""
    dtype: Annotated[str | None, arg(metavar="{fp32,bf16,fp16}", help_behavior_hint="")] = None
    """What tensors are rounded to; default the samples' own."""
    data_root: Text = None
    """Folder with the data sets, which the task's identity is checked against; default as for run."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw a run's report again from its stored results.

    Example: raychains report runs/runs/digits-1a2b3c4d --compare runs/runs/digits-5e6f7a8b
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
    compare: Names = ()
    """Further runs of the task, evaluated on the same split: laid beside it on a page compare-OTHER.html in its folder."""


@dataclass(frozen=True, kw_only=True)
class InitTask:
    """Write a commented task that runs as it is: change its model, its data and its likelihood into yours.

    Example: raychains init-task mytask.py
    """

    file: Positional[str]
    """A new Python file; the folder that it lies in is where to run it."""
