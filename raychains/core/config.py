"""The options of every command: one flat dataclass each, the same names on the command line and in Python.

A number that is left out takes the method's default for the task, which the printed plan shows. Optional options are shown
by their kind alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from raychains.core.registry import modules_defining

MEASURES = (
    f"Further analyses: {', '.join(modules_defining('measures', 'MEASURE'))}. Each has tables and figures of its own in the "
    "run's folder and report: docs/reference/measures.md. module:MEASURE is one of your own."
)
Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Integer = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
PerSampler = Annotated[float | str | None, arg(metavar="NUMBER | SAMPLER=NUMBER,…", help_behavior_hint="")]
IntegerPerSampler = Annotated[int | str | None, arg(metavar="INT | SAMPLER=INT,…", help_behavior_hint="")]
Duration = Annotated[float | str, arg(metavar="TIME")]
Settings = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE …", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], arg(metavar="NAME …", help_behavior_hint="")]
Patterns = Annotated[tuple[str, ...], arg(metavar="PATTERN …", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of the store and of the resources."""

    store: str = "runs"
    """Folder of the run store, or any URI that pyarrow knows (s3://bucket/prefix)."""
    name: Text = None
    """Name of the run; by default the task and the first digits of the plan's digest, so one plan has one name."""
    resume: bool = False
    """Continue the run of this name, if there is one: finished chains are not run again, stopped ones continue."""
    data_root: Text = None
    """Folder with the data sets (torchvision's layout); default RAYCHAINS_DATA, else a folder of the user's cache."""
    address: Text = None
    """Ray cluster to join, HOST:PORT; default RAY_ADDRESS, else Ray is started on this machine."""
    namespace: str = "raychains"
    """Ray's namespace, in which the actors have their names: raychains/NAME/chain-worker-0-1a2b3c."""
    cpus_per_chain: int = 1
    """CPU cores per chain, which are also its torch threads."""
    gpus_per_chain: Number = None
    """GPUs per chain: 1/k shares one between k chains; default 1 where Ray has GPUs, else 0. 8 is eight workers of one each."""
    workers_per_chain: Integer = None
    """Processes that run each chain together, each with cpus_per_chain and at most one GPU; the batch is divided among them.
    Samples do not depend on their number, given micro_batch."""
    accelerator_type: Text = None
    """Run chains, and evaluators with a share of a GPU, on GPUs of this type only, named as Ray does: A100, H100, T4."""
    concurrent: Integer = None
    """Largest number of chains that run at once; default as many as the cluster holds. On a cluster that was joined, that
    many workers are requested even if no node has room yet, so that an autoscaler adds nodes."""
    slot_timeout: Annotated[float | str | None, arg(metavar="TIME", help_behavior_hint="")] = None
    """Time that a run without any running chain waits for room, in seconds or as 5min, 1h, before it ends, to be resumed;
    default 15min if no node has room, and no limit if others occupy it."""
    evaluators: Integer = None
    """Evaluation workers; default one for every two slots."""
    gpus_per_evaluator: Number = None
    """GPUs per evaluation worker, 1/k or whole ones, which chains then do without; default 0: it predicts on the CPU."""
    checkpoint_every: Duration = 60.0
    """Time between checkpoints of each chain, in seconds or as 60s, 5min, 1h; ends of cycles have checkpoints as well."""
    max_failures: int = 3
    """Losses of its worker in a row, without progress, that a chain survives; also how often on_divergence restarts it."""
    on_divergence: Annotated[str, arg(metavar="{stop,restart-cycle,drop-chain}")] = "stop"
    """Action for a chain whose loss or parameters become non-finite: stop gives it up, and its arms have no result;
    restart-cycle goes back to the start of its cycle with fresh noise; drop-chain evaluates its arms without it."""
    bins: int = 15
    """Bins of calibration errors and reliability diagrams; 8 is ATMC's number."""
    keep_predictions: Annotated[str, arg(metavar="{auto,all,none}")] = "auto"
    """Keep samples' predictions in the store, for further measures without a forward pass; auto: up to 1 GB."""
    object_store_memory: Integer = None
    """Bytes of Ray's object store when Ray is started here; default 1 GB or 20 % of the memory, whichever is less."""
    callback: Names = ()
    """Callbacks that get the run's events besides the terminal: jsonl (events in STORE/runs/NAME/events),
    tensorboard, ray-metrics, wandb, mlflow (the last two are extras); module:Class is one of your own.
    docs/how-to/monitor.md says what each gets."""
    log: Text = None
    """A local file to append every event to, one JSON object per line."""
    tensorboard: Text = None
    """Local folder of TensorBoard's files, which are written when it is given; default with --callback tensorboard:
    STORE/runs/NAME/tensorboard where the store is a local folder."""


@dataclass(frozen=True, kw_only=True)
class Sampling(Common):
    """Settings of the chains that run and compare share."""

    epochs: Integer = None
    """Passes over the data of each chain (tasks with data)."""
    steps: Integer = None
    """Gradient steps of each chain (densities)."""
    chains: int = 4
    """Parallel chains."""
    cycles: IntegerPerSampler = None
    """M: how often a cyclical step size restarts."""
    exploration: PerSampler = None
    """β in [0, 1): share of each cycle spent without noise."""
    samples_per_cycle: Integer = None
    """Samples kept at the end of each cycle."""
    thinning: Integer = None
    """Steps between kept samples; default an epoch (1 for densities)."""
    lr: PerSampler = None
    """Initial step size on the mean-loss scale, as in torch.optim.SGD. Here and wherever SAMPLER=… is shown, a comparison's
    samplers may differ, as in sgld=.1,sghmc=.01; those that are not named have their defaults."""
    final_lr: PerSampler = None
    """Step size at the last step of a linear or exponential schedule; default a hundredth of lr."""
    burn_in: IntegerPerSampler = None
    """Epochs (steps of a density) without noise at the start of the run, or of each cycle; instead of β."""
    temperature_ramp: PerSampler = None
    """Share of the run (or cycle) over which T grows linearly from 0 once the noise sets in; default 0, at once."""
    momentum: PerSampler = None
    """Momentum m in [0, 1) of the methods that have it; the friction is 1 − m."""
    temperature: PerSampler = None
    """Posterior temperature T: 1 samples the posterior, 0 optimises."""
    weight_decay: PerSampler = None
    """Strength λ of the Gaussian prior N(0, 1/(Nλ)) on the mean-loss scale."""
    batch_size: Integer = None
    """Examples per gradient step."""
    micro_batch: Integer = None
    """Examples of the pieces that a batch's gradient is added up from, each normalised by itself in BatchNorm; default the
    whole batch, or a worker's share of it."""
    batchnorm: Text = None
    """BatchNorm's running statistics in samples: keep the chain's, reestimate by a pass over the training data, shared (the
    chain's for draws of other variables, too: an ablation), or refuse."""
    precision: Annotated[str, arg(metavar="{fp32,tf32,bf16,fp64}")] = "fp32"
    """Arithmetic of the network: tf32 rounds factors of products (GPUs), bf16 runs the forward pass in half precision;
    parameters, sampler and loss stay in single precision then. docs/concepts/execution.md says what is exact where."""
    compile: Annotated[str, arg(metavar="{none,default,cuda-graphs}")] = "none"
    """torch.compile of the network's forward pass, with CUDA graphs on a GPU; the chain is then not exact on resume."""
    fast: bool = False
    """Let a GPU tune its kernels and use those that are not reproducible: the same law, other bytes on resume."""
    init_from: Text = None
    """File at which all chains start: safetensors, or a torch state dict (its content is part of the chain's digest)."""
    sample_only: Patterns = ()
    """Shell patterns of the parameters to sample, e.g. 'fc.*'; the others stay at init_from, which is needed."""
    sampler_settings: Settings = ()
    """Further settings of the samplers, e.g. eta=4e-4 update=gibbs; docs/reference/samplers.md lists them."""
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
class _OfTask(Sampling):
    """Settings of chains, and the task that they sample."""

    task: str = "digits"
    """The task to sample: digits, mnist-mlp, mnist-cnn, mnist-1v7, fashion-mnist-mlp, cifar10-resnet18, cifar100-resnet18,
    cifar10-resnet18-frn, cifar10-resnetpp56, cifar10-resnet20, cifar10-lenet, cifar100-lenet, the densities mixture25,
    gaussian, two-modes, linear-regression, blr-australian, blr-german, blr-heart, the prepared sets imagenet-resnet50,
    imagenet-resnetpp50, imagefolder-lenet, imagefolder-resnet18, imagefolder-resnet50, imagefolder-resnetpp; or
    module:make_task, a task of your own, searched from the current folder on (see raychains init-task)."""


@dataclass(frozen=True, kw_only=True)
class Run(_OfTask):
    """Sample one posterior: one task, one sampler, one schedule, several chains.

    Writes samples, an evaluation and a report to STORE/runs/NAME. With --options FILE the options that a JSON file names,
    such as a sweep's best.json, have its values; the command line's come first.

    Example: raychains run --task digits --sampler csghmc --chains 2 --epochs 80
    """

    sampler: Text = None
    """Method; default the task's, csghmc for most. One of sgd sgdm snapshot-sgd snapshot-sgdm sgld csgld sghmc csghmc
    psgld cpsgld sgnht atmc emcmc entropy-sgd entropy-sgld sam bsam. The name gives update rule, schedule and the
    paper's settings."""
    schedule: Text = None
    """Step size: cyclical, decreasing, constant, linear, exponential or step; default the method's own."""


@dataclass(frozen=True, kw_only=True)
class Compare(_OfTask):
    """Compare parallel with single chains at equal cost, as cSG-MCMC's Table 2 (classifiers) or Table 4 (densities).

    The arms are cyclical + parallel (E epochs, n chains), decreasing + parallel (E, n), decreasing + parallel (E/2, n)
    and cyclical + single (E, 1), for every sampler. Chains that two arms share run once. With --options FILE the options
    that a JSON file names have its values; the command line's come first.

    Example: raychains compare --task digits --sampler sgld sghmc --epochs 200 --repeats 5
    """

    sampler: Names = ()
    """Methods to compare, as for raychains run; default the task's. One that names its schedule, like csgld, has only
    that schedule's arms."""
    schedule: Names = ("cyclical", "decreasing")
    """Schedules whose arms are compared; default both, cyclical and decreasing."""
    preset: Text = None
    """A named comparison instead, of arms that differ in one setting: emcmc-eta, emcmc-temperature, emcmc-variables,
    emcmc-batchnorm, emcmc-burn-in, emcmc-augmentation, atmc-cycles (on digits), mnist-1v7, mnist-uncertainty,
    imagenet-table3, imagenet-emcmc, imagenet-atmc. It says task, sampler and schedule itself: docs/reference/presets.md."""


@dataclass(frozen=True, kw_only=True)
class Plan(Compare):
    """Estimate the cost of a comparison without running it: the options are those of raychains compare.

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
    """Price of one device for an hour, in any currency."""
    devices: Integer = None
    """Devices that there are, for days; default one for every chain."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Run):
    """Find good settings by a sweep, judged on the split val; the test split is never read. Every point is one chain.

    Every point costs the same gradient evaluations. After each cycle it reports what the ensemble so far is worth, to
    STORE/sweeps/NAME; raychains run --options STORE/sweeps/NAME/best.json then runs the best one. Settings that all
    points share are given as for raychains run. docs/how-to/sweeps.md

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
    """The metric of the split val that decides: nll, error, brier, ece, …"""
    asha: bool = False
    """Stop the worse points early: asynchronous successive halving, by reports at equal epochs."""
    asha_grace: float = 0.25
    """Share of the epochs before which no point is stopped."""
    asha_reduction: float = 3.0
    """The best 1/asha_reduction of the points that reach a rung continue; the next rung is as many times later."""
    repeats: Integer = None
    """Independent repetitions of every point, whose mean decides; default 1."""


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
    """Weightings of samples besides the equal one: harmonic (cycles by their training likelihoods, cSG-MCMC's appendix F),
    stacking (on the split val), truncated (densities: by the posterior's mass that each cycle explored)."""
    measures: Annotated[tuple[str, ...], arg(metavar="NAME …", help=MEASURES, help_behavior_hint="")] = ()


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write an arm's samples as one file, an ensemble for use without store, data and Ray.

    Load it with raychains.PosteriorPredictive.load(FILE): docs/how-to/export.md.

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
    """dtype that tensors are rounded to; default the samples' own."""
    data_root: Text = None
    """Folder with the data sets, which the task's identity is checked against; default as for run."""
    trust: bool = False
    """Import the modules of your own tasks, samplers and schedules that the run names, which runs their code. Without it
    nothing is imported because a store names it, and a task of your own is needed for its network."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw the report of a run or a sweep again from its stored results.

    Example: raychains report runs/runs/digits-1a2b3c4d --compare runs/runs/digits-5e6f7a8b
    """

    run: Positional[str]
    """The run: STORE/runs/NAME; or a sweep: STORE/sweeps/NAME."""
    compare: Names = ()
    """Further runs of the task, evaluated on the same split: laid beside it on a page compare-OTHER.html in its folder."""
    trust: bool = False
    """Import the modules of your own tasks, samplers and schedules that the run names, which runs their code. Without it
    nothing is imported because a store names it; figures that need such a schedule are then left out."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """Report the progress of a run or a sweep from its store, from any terminal that can read it.

    Shows drivers, chains, budget and what is left; how old what is known of running chains is, too.

    Example: raychains status s3://bucket/prefix/runs/digits-1a2b3c4d --watch 10s
    """

    path: Positional[str]
    """STORE/runs/NAME, STORE/sweeps/NAME, or STORE for a list of all of them."""
    watch: Annotated[float | str | None, arg(metavar="TIME", help_behavior_hint="")] = None
    """Look again every so many seconds, or 10s, 1min, until it ends."""
    chains: int = 30
    """Chains that are shown at most; failed and running ones come first."""
    json: bool = False
    """Print one JSON object with everything, for machines."""


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Prepare an image set for streaming: ILSVRC's tar files as they are distributed, or any folder of classes.

    Writes parquet shards of JPEG bytes and, last, a manifest. The same command continues an interrupted one. The tasks
    imagenet-* and imagefolder-* train on it.

    Example: raychains prepare imagenet --from /raw/ILSVRC2012 --to s3://bucket/data/imagenet
    """

    set: Positional[str]
    """The set's name, by which tasks find it in the data root: imagenet for the tasks imagenet-*."""
    source: Annotated[str, arg(name="from", metavar="DIR")]
    """Folder with ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, or with train/CLASS/*
    and val/CLASS/*; every node must see it."""
    to: Text = None
    """Target of the set: a folder, or a URI that pyarrow knows; default a folder of its name in the data root."""
    shards: Integer = None
    """Files per split; default one for every 2,048 pictures."""
    row_group: int = 64
    """Pictures that are read at once, and mixed with those of others."""
    seed: int = 0
    """Seed of the order in which pictures are stored."""
    skip_damaged: bool = False
    """Leave damaged pictures out, instead of refusing the set with their names."""
    address: Text = None
    """Ray cluster to join, as for run."""
    object_store_memory: Integer = None
    """As for run."""


@dataclass(frozen=True, kw_only=True)
class InitTask:
    """Write a commented task that runs as it is: change its model, its data and its likelihood into yours.

    Example: raychains init-task mytask.py
    """

    file: Positional[str]
    """A new Python file; the folder that it lies in is where to run it."""


@dataclass(frozen=True, kw_only=True)
class Reproduce(Common):
    """Run published tables and figures and show our numbers beside the papers', with the differences and their reasons.

    Chains that several of them need run once; whatever was run before is found in the store. Tables, figures, what became
    of each claim, and an index page are written to STORE/reproduce/SCALE. docs/how-to/reproduce.md

    Example: raychains reproduce table4 fig2 fig5 --scale cpu
    """

    names: Positional[Names] = ()
    """Which: all, or names such as table2 fig3c emcmc-fig2 theorem1; --list says what each is."""
    scale: Annotated[str, arg(metavar="{smoke,cpu,gpu,paper}")] = "cpu"
    """smoke: every code path in minutes on made-up data; cpu: honest reduced settings for two cores; gpu: the papers'
    networks on one GPU; paper: the published settings. Results of different scales are never mixed."""
    list: bool = False
    """Say what there is: data, gradient evaluations and hours at every scale. Nothing is run."""
    dry_run: bool = False
    """Say what would be run, and what sharing chains saves. Nothing is run."""
    max_hours: Number = None
    """Stop after so many hours; the same command continues the rest."""
    to: Text = None
    """Folder or URI for tables, figures and pages; default STORE/reproduce/SCALE."""
